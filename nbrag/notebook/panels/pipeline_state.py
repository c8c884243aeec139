"""The state of the pipeline panel: stages being edited, and what a question finds with them."""

from __future__ import annotations

import json
from typing import Any

from traitlets import Any as AnyValue
from traitlets import Bool, Int, Tuple, Unicode

from nbrag.notebook.panels.stages_state import StageListState
from nbrag.rendering import Cell, Rendering, render_table
from nbrag.spec import PipelineSpec
from nbrag.types import RetrievalResults

__all__ = ["PipelineState", "compared_table", "movement"]


class PipelineState(StageListState):
    """A retrieval pipeline in the making.

    Attributes
    ----------
    collection
        The collection that it searches; empty for whichever is chosen when it runs.
    collections, saved
        Names that there are.
    question, top_k
        What is asked while the pipeline is changed, and how many results are wanted.
    live
        Whether each change asks again, as long as no stage asks a chat model.
    results, before
        What the last question found, and the one before it; None for nothing yet.
    asked
        Question and pipeline that the results come from.
    code, code_kind
        The text in the text field, and what it is: ``cell``, ``python`` or empty.
    """

    collection = Unicode()
    collections: Any = Tuple()
    saved: Any = Tuple()
    question = Unicode()
    top_k = Int(5)
    live = Bool(True)
    results: Any = AnyValue(None, allow_none=True)
    before: Any = AnyValue(None, allow_none=True)
    asked = Unicode()
    code = Unicode()
    code_kind = Unicode()

    def __init__(self) -> None:
        super().__init__("retrieval")

    def pipeline(self) -> PipelineSpec:
        """Return the pipeline; raises what the first bad option is told with."""
        return self.spec(collection=self.collection or None)

    @property
    def follows(self) -> bool:
        """Whether a change should ask the question again by itself."""
        return self.live and bool(self.question.strip()) and not self.asking

    def fingerprint(self, spec: PipelineSpec) -> str:
        """Return what a run depends on, so that the same is not asked twice."""
        return json.dumps([spec.to_dict(), self.question, self.top_k])

    def keep(self, results: RetrievalResults, asked: str) -> None:
        """Take what was found; what was there of the same question becomes the one before."""
        same = self.results is not None and self.results.query.text == results.query.text
        with self.hold_trait_notifications():
            self.before = self.results if same else None
            self.asked = asked
            self.results = results


def movement(place: int, before: int | None, *, compared: bool) -> str:
    """Return in words how a rank changed; empty where there is nothing to compare with."""
    if not compared:
        return ""
    if before is None:
        return "+ new"
    if before == place:
        return "= same"
    return f"▲ was {before}" if before > place else f"▼ was {before}"


def compared_table(
    results: RetrievalResults, before: RetrievalResults | None, *, width: int = 60
) -> Rendering:
    """Return results as a table that says what changed since the run before."""
    old = {} if before is None else {c.id: i for i, c in enumerate(before, start=1)}
    compared = before is not None
    rows: list[list[Cell]] = []
    for place, chunk in enumerate(results, start=1):
        change = movement(place, old.get(chunk.id), compared=compared)
        where = " > ".join((chunk.source, *chunk.heading_path))
        rows.append([place, change, chunk.score, where, chunk.content])
    notes = [str(warning) for warning in results.warnings]
    if not rows:
        notes.insert(0, "nothing was found")
    gone = len(set(old) - {chunk.id for chunk in results})
    if gone:
        notes.append(f"{gone} of the run before {'is' if gone == 1 else 'are'} no longer found")
    columns = ["rank", "change", "score", "place", "text"]
    if not compared:
        columns.pop(1)
        rows = [[row[0], *row[2:]] for row in rows]
    return render_table(
        results.query.text,
        columns,
        rows,
        details=[chunk.content for chunk in results],
        notes=notes,
        width=width,
        paths=["place"],
    )
