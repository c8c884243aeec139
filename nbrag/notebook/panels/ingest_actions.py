"""What the ingest panel does, through the same calls as magics and scripts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrag.errors import ConfigurationError, ReaderError, SourceNotFound, SpecificationError
from nbrag.ingestion import IngestionPipelineBuilder
from nbrag.ingestion.chunk_preview import ChunkingPreview, preview_chunks
from nbrag.ingestion.preview import IngestPreview, given_sources, preview
from nbrag.ingestion.report import IngestionProgress, IngestReport
from nbrag.ingestion.retrying import failed_sources, merged_report
from nbrag.notebook.panels.messages import shown_database
from nbrag.spec import PipelineSpec

if TYPE_CHECKING:
    from nbrag.ingestion import IngestionPipeline
    from nbrag.notebook.panels.ingest_state import IngestState
    from nbrag.notebook.panels.jobs import Report
    from nbrag.protocols import Collection
    from nbrag.workspace import Workspace

__all__ = [
    "Run",
    "add_source",
    "begin",
    "count",
    "cut",
    "look_into",
    "refresh",
    "refresh_code",
    "retry",
    "run",
    "set_sources",
    "show_code",
    "shown_source",
    "take",
]

#: Entries of a folder that are listed.
_SHOWN_ENTRIES = 500
_UP = "../"


def refresh(workspace: Workspace, state: IngestState) -> None:
    """Look which collections there are."""
    state.collections = tuple(workspace.collections())


def begin(workspace: Workspace, state: IngestState, collection: str | None) -> None:
    """Begin with the default stages and a collection, by default the first there is."""
    refresh(workspace, state)
    if not state.stages:
        state.add("chunk")
    known = state.collections
    state.name = collection or (known[0] if known else state.name)


def take(state: IngestState, spec: PipelineSpec) -> None:
    """Edit an ingestion; its sources stay where it has none."""
    state.load(spec)
    if spec.sources:
        state.sources = spec.sources


# Sources ---------------------------------------------------------------------------------


def shown_source(source: str) -> str:
    """Return a source without this machine's folders, as far as it still means the same."""
    place = Path(source)
    if not place.is_absolute():
        return source
    end = "/" if source.endswith("/") else ""
    for folder, short in ((Path.cwd(), "."), (Path.home(), "~")):
        if place == folder:
            return f"{short}{end}"
        if place.is_relative_to(folder):
            beginning = "" if short == "." else f"{short}/"
            return f"{beginning}{place.relative_to(folder).as_posix()}{end}"
    return source


def set_sources(state: IngestState, text: str) -> None:
    """Take the sources that stand in a text, one per line."""
    given = (line.strip() for line in text.splitlines())
    state.sources = tuple(dict.fromkeys(shown_source(line) for line in given if line))


def add_source(state: IngestState, name: str | None) -> None:
    """Add an entry of the folder that is looked into; the folder itself for no entry."""
    if name == _UP:
        raise SourceNotFound("no file is chosen.", hint="choose a file or a folder in the list")
    path = os.path.normpath(Path(state.folder) / (name or ""))
    source = shown_source(path) + ("/" if name is None or name.endswith("/") else "")
    state.sources = tuple(dict.fromkeys((*state.sources, source)))


def look_into(state: IngestState, name: str) -> None:
    """List a folder: one of the list, ``../`` for the one above, or a path.

    Raises
    ------
    SourceNotFound
        When it can't be listed.
    """
    folder = Path(os.path.normpath(Path(state.folder).expanduser() / Path(name).expanduser()))
    try:
        found = sorted(folder.iterdir(), key=lambda path: (not path.is_dir(), path.name))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SourceNotFound(
            f"{shown_source(str(folder))} can't be listed: {reason}.", hint="choose a folder"
        ) from None
    visible = [path for path in found if not path.name.startswith(".")]
    names = [f"{path.name}/" if path.is_dir() else path.name for path in visible]
    state.folder = shown_source(str(folder))
    state.entries = (_UP, *names[:_SHOWN_ENTRIES])
    if len(names) > _SHOWN_ENTRIES:
        state.status = (
            f"{_SHOWN_ENTRIES} of {len(names)} entries are listed: name others among the sources."
        )


# Looking ahead ---------------------------------------------------------------------------


def cut(workspace: Workspace, state: IngestState) -> tuple[Any, Callable[[ChunkingPreview], None]]:
    """Return the work that cuts the first documents, and what takes its end."""
    spec = _complete(state)
    context = workspace.context
    return lambda _: preview_chunks(spec, None, context), lambda made: state.set_trait("cut", made)


def count(workspace: Workspace, state: IngestState) -> tuple[Any, Callable[[IngestPreview], None]]:
    """Return the work that counts what a run would do, and what takes its end."""
    spec = _complete(state)
    context = workspace.context
    known = workspace[spec.name] if spec.name in workspace.collections() else None

    def work(_: Report) -> Coroutine[Any, Any, IngestPreview]:
        return preview(spec, None, context, known)

    return work, lambda made: state.set_trait("counts", made)


# Running ---------------------------------------------------------------------------------


class Run:
    """One run, which the panel looks at while the background loop works on it.

    Attributes
    ----------
    progress
        How far it is; None before it has begun to read.
    """

    def __init__(self) -> None:
        self.progress: IngestionProgress | None = None

    def follow(self, report: Report) -> Callable[[IngestionProgress], None]:
        """Return what the pipeline tells its progress to."""

        def tell(progress: IngestionProgress) -> None:
            self.progress = progress
            report(progress.documents_done, progress.documents_total, _line(progress))

        return tell


def _line(progress: IngestionProgress) -> str:
    total = "" if progress.documents_total is None else f" of {progress.documents_total}"
    return (
        f"{progress.documents_done}{total} documents, {progress.chunks_embedded} chunks embedded "
        f"({progress.stage}{f' {progress.current}' if progress.current else ''})"
    )


def run(workspace: Workspace, state: IngestState) -> tuple[Run, Any, Callable[[Any], None]]:
    """Return a run, its work and what takes its end.

    What an earlier run of the same has done is skipped, so a run that was stopped goes on.
    """
    spec = _complete(state)
    begun = Run()
    removing, fingerprint = state.remove_missing, state.fingerprint()

    def work(report: Report) -> Coroutine[Any, Any, IngestReport]:
        return _ingest(workspace, spec, None, begun.follow(report), remove_missing=removing)

    def done(report: IngestReport) -> None:
        state.unfinished = ""
        _finish(workspace, state, begun, report)

    state.unfinished = fingerprint
    return begun, work, done


def retry(workspace: Workspace, state: IngestState) -> tuple[Run, Any, Callable[[Any], None]]:
    """Return a run over what failed alone; its outcomes take the place of the failures."""
    before: IngestReport | None = state.report
    if before is None or not before.failed:
        raise ConfigurationError("nothing has failed.", hint="run the ingestion first")
    spec = _complete(state)
    begun = Run()

    def work(report: Report) -> Coroutine[Any, Any, IngestReport]:
        items = failed_sources(spec.sources, before)
        return _ingest(workspace, spec, items, begun.follow(report), remove_missing=False)

    return begun, work, lambda made: _finish(workspace, state, begun, merged_report(before, made))


async def _ingest(
    workspace: Workspace,
    spec: PipelineSpec,
    sources: Any,
    progress: Callable[[IngestionProgress], None],
    *,
    remove_missing: bool,
) -> IngestReport:
    """Do what ``Workspace.ingest`` does, in a way that can be stopped."""

    def prepared() -> tuple[IngestionPipeline, Collection]:
        # Building may load a model, and a new collection is written: not on the loop.
        built = IngestionPipelineBuilder(spec, workspace.context).build()
        return built, workspace.collection(spec.name, embedder=built.embedder)

    pipeline, target = await asyncio.to_thread(prepared)
    return await pipeline.run(
        given_sources(spec, sources), target, remove_missing=remove_missing, progress=progress
    )


def _finish(workspace: Workspace, state: IngestState, begun: Run, report: IngestReport) -> None:
    with state.hold_trait_notifications():
        state.progress = begun.progress
        state.report = report
        state.status = report.summary
    refresh(workspace, state)
    if report.failed:
        first = report.failed[0]
        several = "1 document" if len(report.failed) == 1 else f"{len(report.failed)} documents"
        raise ReaderError(
            f"{several} could not be ingested, e.g. {first.uri}: {first.reason}",
            hint="all others are in the collection; mend the cause, then press Retry what failed",
        )


# Showing ---------------------------------------------------------------------------------


def show_code(workspace: Workspace, state: IngestState, kind: str) -> None:
    """Show the ingestion as a ``cell`` or as ``python``."""
    spec = state.pipeline()
    removing = state.remove_missing
    state.code_kind = kind
    if kind == "cell":
        state.code = spec.to_cell(remove_missing=removing)
        return
    chosen = workspace.embedder_choice
    state.code = spec.to_python(
        database=shown_database(workspace.path),
        embedder=chosen if isinstance(chosen, str) else None,
        remove_missing=removing,
    )


def refresh_code(workspace: Workspace, state: IngestState) -> None:
    """Keep the shown text true; there is none of an ingestion that does not fit."""
    if state.code_kind:
        try:
            show_code(workspace, state, state.code_kind)
        except SpecificationError:
            state.code = ""


def _complete(state: IngestState) -> PipelineSpec:
    """Return the ingestion, with all that it needs for a run.

    Raises
    ------
    NbragError
        When the collection has no name, nothing is to be read, or options don't fit.
    """
    from nbrag.stores.duckdb.identifiers import check_collection_name

    spec = state.pipeline()
    if not spec.sources:
        raise ConfigurationError(
            "no sources are given.", hint="name files, folders, globs or URLs, one per line"
        )
    check_collection_name(spec.name)
    return spec
