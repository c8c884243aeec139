"""The state of the search panel: a question, a filter, what two pipelines found, and marks."""

from __future__ import annotations

from typing import Any

from traitlets import Any as AnyValue
from traitlets import Bool, Dict, Int, Tuple, Unicode

from nbrag.evaluation.kept import DEFAULT_SET
from nbrag.notebook.panels.messages import without_private
from nbrag.notebook.panels.state import PanelState
from nbrag.rendering import clip, plain
from nbrag.types import RetrievalChunk, RetrievalResults

__all__ = ["SIDES", "SearchState"]

SIDES = ("A", "B")
_PLACE = 70
_GRADES = {0: "not relevant", 1: "relevant"}


class SearchState(PanelState):
    """One question, asked through one or two pipelines.

    Attributes
    ----------
    question, top_k, collection
        What is asked, and of what.
    collections, pipelines
        Names that there are.
    first, second
        The pipelines A and B; an empty ``second`` leaves B out.
    fields
        The collection's fields with their types.
    field, operator, value
        The condition in the making.
    values, more_values
        Values that the field has and that hold what is typed, and whether there are more.
    where
        The filter's text.
    found
        What was found, by side.
    asked
        The question, and the collection, that ``found`` is for.
    side, chosen
        The result that is open, by its chunk id.
    passage
        The open passage; None for none.
    judgements
        The set that marks are kept in.
    marks
        Grade by chunk id.
    writable
        Whether marks can be kept.
    """

    question = Unicode()
    top_k = Int(5)
    collection = Unicode()
    collections: Any = Tuple()
    pipelines: Any = Tuple()
    first = Unicode("default")
    second = Unicode()
    fields: Any = Dict()
    field = Unicode()
    operator = Unicode("is")
    value = Unicode()
    values: Any = Tuple()
    more_values = Bool()
    where = Unicode()
    found: Any = Dict()
    asked: Any = Tuple(("", ""))
    side = Unicode("A")
    chosen = Unicode()
    passage: Any = AnyValue(None, allow_none=True)
    judgements = Unicode(DEFAULT_SET)
    marks: Any = Dict()
    writable = Bool(True)

    def pipeline(self, side: str) -> str:
        """Return the name of a side's pipeline; empty for none."""
        return str(self.first if side == "A" else self.second)

    def title(self, side: str) -> str:
        """Return what a side is called."""
        return f"{side}, {self.pipeline(side)}"

    def results(self, side: str) -> RetrievalResults | None:
        """Return what a side found; None for nothing yet."""
        found: RetrievalResults | None = self.found.get(side)
        return found

    def chunk(self) -> RetrievalChunk | None:
        """Return the open result."""
        results = self.results(self.side) or ()
        return next((chunk for chunk in results if chunk.id == self.chosen), None)

    def label(self, side: str, rank: int, chunk: RetrievalChunk) -> str:
        """Return a result's line: rank, score, where the other side has it, its mark, place."""
        parts = [f"{rank}.", f"{chunk.score:.3f}"]
        other = SIDES[1 - SIDES.index(side)]
        others = self.results(other)
        if others is not None:
            ranks = {found.id: at for at, found in enumerate(others, start=1)}
            at = ranks.get(chunk.id)
            parts.append(f"(not in {other})" if at is None else f"({other}: {at})")
        if chunk.id in self.marks:
            grade = self.marks[chunk.id]
            parts.append(f"[{_GRADES.get(grade, f'grade {grade}')}]")
        # The list is narrow: the file's name and the nearest heading; the passage has it all.
        name = chunk.source.rstrip("/").rpartition("/")[2] or chunk.source
        parts.append(clip(plain(" > ".join((name, *chunk.heading_path[-1:]))), _PLACE))
        return without_private("  ".join(parts))
