"""The ingest panel: what is read, how it is cut and enriched, and what came of it."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbrag.errors import NbragError
from nbrag.notebook.panels import ingest_actions as actions
from nbrag.notebook.panels.base import Panel
from nbrag.notebook.panels.controls import (
    button,
    choice,
    column,
    listing,
    markup,
    row,
    text_area,
    text_line,
)
from nbrag.notebook.panels.ingest_state import IngestState, counts_table, stage_table
from nbrag.notebook.panels.messages import without_private
from nbrag.notebook.panels.snapshots import facts, part, rendered
from nbrag.notebook.panels.stages_view import StageEditor
from nbrag.notebook.pipeline_files import read_pipeline_text
from nbrag.rendering import Rendering, plain

if TYPE_CHECKING:
    from nbrag.workspace import Workspace

__all__ = ["IngestPanel"]

_STOPPED = "Stopped: what is written stays. Resume goes on, and skips it."
_EXAMPLES = "handbook/\nnotes/**/*.md\nhttps://example.org/page.html"


class IngestPanel(Panel):
    """Reads documents into a collection: the same ingestion as a cell or the builder makes.

    Parameters
    ----------
    workspace
        Where the collection is, or will be.
    sources
        Files, folders, globs and URLs to begin with.
    collection
        An existing collection, or the name of a new one.
    cell
        The text of a cell to begin with.
    """

    heading = "Ingest"
    state: IngestState

    def __init__(
        self,
        workspace: Workspace | Callable[[], Workspace],
        *sources: str,
        collection: str | None = None,
        cell: str | None = None,
    ) -> None:
        state = IngestState()
        super().__init__(workspace, state)
        self._run: actions.Run | None = None
        self.editor = StageEditor(self, state)
        self._make_controls()
        self._tie()
        self.act(lambda: self._begin(sources, collection, cell))

    def _make_controls(self) -> None:
        self._collection = text_line(
            "Collection", suggestions=(), width="22em", help_text="An existing one, or a new name"
        )
        self._missing = choice(
            "Gone documents",
            [("stay in the collection", False), ("are removed", True)],
            False,
            width="24em",
            label_width="10em",
            help_text="What happens to documents that the sources no longer give",
        )
        self._sources = text_area("Sources", rows=4, placeholder=_EXAMPLES)
        self._folder = text_line("Folder", width="22em", help_text="A folder to look into")
        self._entries = listing("Files", rows=6)
        self._open = button("Open folder")
        self._add = button("Add to sources", help_text="Read the chosen file or folder")
        self._add_all = button("Add this folder", help_text="Read all files in the shown folder")
        self._preview = button("Preview chunks", help_text="Cut the first three documents")
        self._dry = button("Count", help_text="Count documents, chunks and calls, and do nothing")
        self._start = button("Run", kind="primary")
        self._again = button("Retry what failed")
        self._cut, self._counts = markup(), markup()
        self._stages, self._report = markup(), markup()
        self._as_cell = button("Show as cell")
        self._as_python = button("Show as Python")
        self._code = text_area("Text", placeholder="a %%rag_ingest cell, or its stages", rows=7)
        self._load_text = button("Load text", help_text="Edit the ingestion that the text says")
        files = column(
            self._sources,
            row(self._folder, self._open),
            self._entries,
            row(self._add, self._add_all),
            grow=True,
        )
        files.layout.padding = "0 0.5em 0 0"
        stages = column(self.editor.view, width="36em")
        stages.layout.margin = "0 1.5em 0 0"
        both = row(stages, files)
        both.layout.align_items = "flex-start"
        self.lay_out(
            row(self._collection, self._missing),
            both,
            row(self._preview, self._dry, self._start, self._again),
            self._counts,
            self._cut,
            self._stages,
            self._report,
            row(self._as_cell, self._as_python, self._load_text),
            self._code,
        )

    def _tie(self) -> None:
        state = self.state
        self.on_change(self._collection, lambda value: state.set_trait("name", value.strip()))
        self.on_change(self._missing, lambda value: state.set_trait("remove_missing", value))
        self.on_change(self._sources, lambda value: actions.set_sources(state, value))
        self.on_change(self._folder, lambda value: actions.look_into(state, value.strip() or "."))
        self.on_change(self._code, self._typed)
        self.on_click(self._open, lambda: actions.look_into(state, self._entries.value or "."))
        self.on_click(self._add, lambda: actions.add_source(state, self._entries.value or "../"))
        self.on_click(self._add_all, lambda: actions.add_source(state, None))
        self.on_click(self._preview, self.preview)
        self.on_click(self._dry, self.count)
        self.on_click(self._start, self.run)
        self.on_click(self._again, self.retry)
        self.on_click(self._load_text, self._from_text)
        self.on_click(self._as_cell, lambda: self._show("cell"))
        self.on_click(self._as_python, lambda: self._show("python"))
        self.follow(["name", "collections", "remove_missing", "sources"], self._redraw_names)
        self.follow(["folder", "entries"], self._redraw_files)
        self.follow(["cut", "counts"], self._redraw_looks)
        self.follow(["progress", "done", "status", "busy"], self._redraw_progress)
        self.follow(["report"], self._redraw_report)
        changed = ["busy", "unfinished", "stages", "name", "sources", "remove_missing", "report"]
        self.follow(changed, self._redraw_buttons)
        self.follow(["code"], lambda: self._code.set_trait("value", state.code))
        watched = ["stages", "name", "sources", "remove_missing"]
        state.observe(lambda _: self._refresh_code(), names=watched)

    # Actions -----------------------------------------------------------------------------

    def _begin(self, sources: tuple[str, ...], collection: str | None, cell: str | None) -> None:
        actions.set_sources(self.state, "\n".join(sources))
        actions.look_into(self.state, ".")
        if cell is not None:
            actions.take(self.state, read_pipeline_text("ingestion", cell, name="docs"))
            collection = collection or self.state.name
        actions.begin(self.workspace, self.state, collection)

    def preview(self) -> None:
        """Cut the first three documents."""
        work, done = actions.cut(self.workspace, self.state)
        self.start(work, done, key="cut", label="Cutting three documents")

    def count(self) -> None:
        """Count what a run would do."""
        work, done = actions.count(self.workspace, self.state)
        self.start(work, done, key="count", label="Counting")

    def run(self) -> None:
        """Ingest; after a stop, go on where it was."""
        self._run, work, done = actions.run(self.workspace, self.state)
        self.start(work, done, label="Ingestion")

    def retry(self) -> None:
        """Try again what failed, and nothing else."""
        self._run, work, done = actions.retry(self.workspace, self.state)
        self.start(work, done, label="Second try")

    def _from_text(self) -> None:
        spec = read_pipeline_text("ingestion", self._code.value, name=self.state.name)
        actions.take(self.state, spec)

    def _show(self, kind: str) -> None:
        actions.show_code(self.workspace, self.state, kind)

    def _refresh_code(self) -> None:
        with self.guard():
            actions.refresh_code(self.workspace, self.state)

    def _typed(self, text: str) -> None:
        self.state.code_kind = ""
        self.state.code = text

    # Drawing -----------------------------------------------------------------------------

    def _redraw_names(self) -> None:
        state = self.state
        self._collection.options = state.collections
        self._collection.value = state.name
        self._missing.value = state.remove_missing
        self._sources.value = "\n".join(state.sources)

    def _redraw_files(self) -> None:
        self._folder.value = without_private(self.state.folder)
        self._entries.options = [(plain(name), name) for name in self.state.entries]

    def _redraw_looks(self) -> None:
        state = self.state
        self._cut.value = _markup(state.cut)
        self._counts.value = "" if state.counts is None else _markup(counts_table(state.counts))

    def _redraw_progress(self) -> None:
        if self._run is not None and self._run.progress is not None:
            self.state.progress = self._run.progress
        progress = self.state.progress
        notes = [_STOPPED] if self.state.resumes and not self.state.busy else []
        self._stages.value = "" if progress is None else stage_table(progress, *notes)["text/html"]

    def _redraw_report(self) -> None:
        self._report.value = _markup(self.state.report)

    def _redraw_buttons(self) -> None:
        state = self.state
        self._start.description = "Resume" if state.resumes and not state.busy else "Run"
        self._start.disabled = state.busy
        self._again.disabled = state.busy or not state.failed

    def snapshot_parts(self) -> list[Rendering]:
        """Return the ingestion as a cell, and what came of it."""
        state = self.state
        parts = [facts("Settings", [("collection", state.name)])]
        try:
            cell = state.pipeline().to_cell(remove_missing=state.remove_missing)
            parts.append(part(cell, f"<pre>{html.escape(cell, quote=True)}</pre>"))
        except NbragError as error:
            parts.append(part(str(error)))
        counts = None if state.counts is None else counts_table(state.counts)
        shown = (counts, state.cut, state.report)
        return parts + [rendered(made) for made in shown if made is not None]


def _markup(made: Any) -> str:
    return "" if made is None else rendered(made)["text/html"]
