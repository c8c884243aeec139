"""The state of the ingest panel: sources, stages, and what came of looking and of running."""

from __future__ import annotations

import json
from typing import Any

from traitlets import Any as AnyValue
from traitlets import Bool, Tuple, Unicode

from nbrag.errors import SpecificationError
from nbrag.ingestion.preview import IngestPreview
from nbrag.ingestion.report import IngestionProgress, IngestReport
from nbrag.notebook.panels.snapshots import facts
from nbrag.notebook.panels.stages_state import StageListState
from nbrag.rendering import Cell, Rendering, render_table
from nbrag.spec import PipelineSpec

__all__ = ["IngestState", "counts_table", "stage_table"]

_UNITS = {"reading": "documents read", "cutting": "chunks cut", "writing": "documents written"}


class IngestState(StageListState):
    """An ingestion in the making; its name is that of the collection.

    Attributes
    ----------
    sources
        Files, folders, globs and URLs, in the order given.
    remove_missing
        Whether documents that the sources no longer give are deleted at the end.
    collections
        Names that there are.
    folder, entries
        The folder that is looked into, and what is in it: names, folders with a slash.
    cut
        How the first documents would be cut; None before anyone asked.
    counts
        What the ingestion would do; None before anyone asked.
    progress
        How far the run is, or was when it ended; None before the first.
    report
        What became of the documents; None before the first run ended.
    unfinished
        The run that was begun and has not come to its end; empty for none.
    code, code_kind
        The text in the text field, and what it is: ``cell``, ``python`` or empty.
    """

    sources: Any = Tuple()
    remove_missing = Bool(False)
    collections: Any = Tuple()
    folder = Unicode(".")
    entries: Any = Tuple()
    cut: Any = AnyValue(None, allow_none=True)
    counts: Any = AnyValue(None, allow_none=True)
    progress: Any = AnyValue(None, allow_none=True)
    report: Any = AnyValue(None, allow_none=True)
    unfinished = Unicode()
    code = Unicode()
    code_kind = Unicode()

    def __init__(self) -> None:
        super().__init__("ingestion")
        self.name = "docs"

    def pipeline(self) -> PipelineSpec:
        """Return the ingestion; raises what the first bad option is told with."""
        return self.spec(sources=tuple(self.sources))

    def fingerprint(self) -> str:
        """Return what a run depends on; empty while the stages don't fit."""
        try:
            return json.dumps([self.pipeline().to_dict(), self.remove_missing])
        except SpecificationError:
            return ""

    @property
    def resumes(self) -> bool:
        """Whether the next run goes on with one that was stopped."""
        return bool(self.unfinished) and self.unfinished == self.fingerprint()

    @property
    def failed(self) -> int:
        """How many documents of the last run failed."""
        report: IngestReport | None = self.report
        return 0 if report is None else len(report.failed)


def counts_table(preview: IngestPreview) -> Rendering:
    """Return what an ingestion would do: documents, chunks, tokens, calls and what they cost."""
    counts = preview.counts
    costs = [stage.cost for stage in preview.stages]
    known = [cost for cost in costs if cost is not None]
    cost = "nothing: no stage asks a chat model"
    if costs:
        cost = f"${sum(known):.4f} for reading" if len(known) == len(costs) else "unknown"
    rows: list[tuple[str, Cell]] = [
        ("documents to ingest", counts.documents),
        *((f"documents {outcome}", count) for outcome, count in counts.outcomes.items()),
        ("chunks", counts.chunks),
        ("tokens to embed, at most", counts.tokens),
        ("calls of the chat model", preview.calls),
        ("tokens it reads", sum(stage.input_tokens for stage in preview.stages)),
        ("cost of the chat model", cost),
    ]
    table = facts(f"What a run into {preview.collection} would do; nothing was done yet", rows)
    if not preview.stages:
        return table
    stages = preview._repr_mimebundle_()
    return {kind: f"{table[kind]}\n\n{stages[kind]}" for kind in ("text/plain", "text/html")}


def stage_table(progress: IngestionProgress, *notes: str) -> Rendering:
    """Return how far each stage is, in the order in which documents go through them."""
    rows: list[list[str | int]] = []
    for name, count in progress.stages.items():
        unit = _UNITS.get(name, "chunks")
        if name == "embedding":
            unit = "chunks embedded"
        rows.append([name, count, unit])
    total = progress.documents_total
    known = "" if total is None else f" of {total}"
    return render_table(
        f"{progress.documents_done}{known} documents are done",
        ["stage", "count", "of what"],
        rows,
        notes=notes,
    )
