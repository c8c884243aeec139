"""The search panel: one question, two pipelines, the way of each result, and marks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from nbrag.notebook.panels import search_actions as actions
from nbrag.notebook.panels.base import Panel
from nbrag.notebook.panels.controls import (
    button,
    choice,
    markup,
    number,
    row,
    text_line,
    title,
)
from nbrag.notebook.panels.filter_view import FilterBuilder
from nbrag.notebook.panels.messages import without_private
from nbrag.notebook.panels.passages import passage_html
from nbrag.notebook.panels.rank_flow import rank_flow
from nbrag.notebook.panels.results_view import ResultsView, note_html
from nbrag.notebook.panels.search_state import SIDES, SearchState
from nbrag.notebook.panels.snapshots import facts, part
from nbrag.rendering import Rendering

if TYPE_CHECKING:
    from nbrag.workspace import Workspace

__all__ = ["SearchPanel"]

_READ_ONLY = "The workspace is open for reading only: marks can't be kept."


class SearchPanel(Panel):
    """Asks a question of one or two pipelines, and shows how they came to their results.

    Parameters
    ----------
    workspace
        Where is searched, and marks are kept.
    names
        The pipelines A and B; by default the built-in one alone.
    collection
        The collection; by default the first pipeline's own, or the one that there is.
    question
        What is asked at once.
    """

    heading = "Search"
    state: SearchState

    def __init__(
        self,
        workspace: Workspace | Callable[[], Workspace],
        *names: str,
        collection: str | None = None,
        question: str = "",
    ) -> None:
        state = SearchState()
        super().__init__(workspace, state)
        state.question = question
        self.filter = FilterBuilder(self, state)
        self._make_controls()
        self._tie()
        self.act(lambda: self._begin(names, collection))
        if question and not state.alert:
            self.act(self.search)
            self.settle()

    def _make_controls(self) -> None:
        self._question = text_line(
            "Question", placeholder="How long are backups kept?", width="46em"
        )
        self._search = button("Search", kind="primary")
        self._collection = choice("Collection", [], width="21em")
        self._pipelines = {side: choice(f"Pipeline {side}", [], width="18em") for side in SIDES}
        self._top_k = number("Results", 5, least=1, most=100, width="10em", label_width="initial")
        self._results = [ResultsView(self, self.state, side, self._choose) for side in SIDES]
        self._passage = markup()
        self._more = button("More of the document", help_text="Show more around the passage")
        self._set = text_line("Judgements", width="18em", help_text="The set that marks go to")
        self._marks = {
            "Relevant": button("Relevant", help_text="The chosen result answers the question"),
            "Not relevant": button("Not relevant", help_text="The chosen result does not"),
            "No mark": button("No mark", help_text="Forget the mark of the chosen result"),
        }
        self._marking = markup()
        both = row(*(results.view for results in self._results))
        both.layout.align_items = "flex-start"
        self.lay_out(
            row(self._question, self._search),
            row(self._collection, *self._pipelines.values(), self._top_k),
            self.filter.view,
            both,
            title("The chosen result in its document", level=4),
            self._passage,
            row(self._more, self._set, *self._marks.values()),
            self._marking,
        )

    def _tie(self) -> None:
        state = self.state
        self.on_change(self._question, self._ask)
        self.on_click(self._search, self.search)
        self.on_change(self._collection, self._choose_collection)
        for side, trait in zip(SIDES, ("first", "second"), strict=True):
            self.on_change(self._pipelines[side], partial(self._choose_pipeline, trait))
        self.on_change(self._top_k, lambda value: state.set_trait("top_k", value))
        self.on_click(self._more, lambda: self._open(more=True))
        self.on_change(self._set, self._choose_set)
        for words, grade in (("Relevant", 1), ("Not relevant", 0), ("No mark", None)):
            self.on_click(self._marks[words], partial(self._mark, grade))
        self.follow(
            ["collection", "collections", "pipelines", "first", "second", "question", "top_k"],
            self._redraw_choices,
        )
        self.follow(["passage"], self._redraw_passage)
        self.follow(["writable", "chosen", "judgements"], self._redraw_marking)

    # Actions -----------------------------------------------------------------------------

    def _begin(self, names: tuple[str, ...], collection: str | None) -> None:
        actions.begin(self.workspace, self.state, names, collection)
        self.filter.read_fields()

    def _choose_collection(self, name: str) -> None:
        self.state.collection = name or ""
        actions.refresh(self.workspace, self.state)
        if name:
            self.filter.read_fields()

    def _choose_pipeline(self, trait: str, name: str) -> None:
        self.state.set_trait(trait, name or "")
        if self.state.asked[0]:
            self.search()

    def _ask(self, question: str) -> None:
        self.state.question = question
        if question.strip():
            self.search()

    def search(self) -> None:
        """Ask both pipelines the question."""
        actions.refresh(self.workspace, self.state)
        work, take = actions.search(self.workspace, self.state)
        self.start(work, take, label="Searching")

    def _choose(self, side: str, chunk_id: str) -> None:
        if chunk_id:
            self.state.side, self.state.chosen = side, chunk_id
            self._open()

    def _open(self, *, more: bool = False) -> None:
        made = actions.open_passage(self.workspace, self.state, more=more)
        if made is not None:
            self.start(*made, key="passage", quiet=True)

    def _choose_set(self, name: str) -> None:
        self.state.judgements = name.strip() or self.state.judgements
        actions.read_marks(self.workspace, self.state)

    def _mark(self, grade: int | None) -> None:
        actions.mark(self.workspace, self.state, grade)

    # Drawing -----------------------------------------------------------------------------

    def _redraw_choices(self) -> None:
        state = self.state
        self._question.value = state.question
        self._top_k.value = state.top_k
        self._collection.options = _with(state.collections, state.collection)
        self._collection.value = state.collection or None
        first, second = self._pipelines.values()
        first.options = _with(state.pipelines, state.first)
        first.value = state.first
        names = _with(state.pipelines, state.second)
        second.options = [("none", ""), *((name, name) for name in names)]
        second.value = state.second

    def _redraw_passage(self) -> None:
        passage = self.state.passage
        self._more.disabled = passage is None or not passage.more
        self._passage.value = (
            '<p style="opacity:0.75">Choose a result in a list to read it here.</p>'
            if passage is None
            else without_private(passage_html(passage))
        )

    def _redraw_marking(self) -> None:
        state = self.state
        self._set.value = state.judgements
        for control in self._marks.values():
            control.disabled = not (state.writable and state.chosen)
        self._marking.value = "" if state.writable else note_html(_READ_ONLY)

    def snapshot_parts(self) -> list[Rendering]:
        """Return what was asked, and what each pipeline found on which way."""
        state = self.state
        asked: list[tuple[str, Any]] = [
            ("question", state.question),
            ("collection", state.collection),
            *((f"pipeline {side}", state.pipeline(side)) for side in SIDES),
            ("filter", state.where),
        ]
        parts = [facts("Asked", asked)]
        for side in SIDES:
            results = state.results(side)
            if results is not None:
                flow = rank_flow(results.trace, state.title(side))
                parts += [part(f"Results {state.title(side)}"), results._repr_mimebundle_()]
                parts += [] if flow is None else [flow]
        return parts


def _with(names: tuple[str, ...], chosen: str) -> list[str]:
    """Return the names, also one that is chosen and no longer there."""
    return [*names, *([chosen] if chosen and chosen not in names else [])]
