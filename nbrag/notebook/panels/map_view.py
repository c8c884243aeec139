"""The map panel: a collection's chunks in two dimensions, with a question among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbrag.notebook.panels import map_actions as actions
from nbrag.notebook.panels.base import Panel
from nbrag.notebook.panels.controls import button, choice, markup, number, row, text_line
from nbrag.notebook.panels.map_state import MapState
from nbrag.notebook.panels.snapshots import facts, rendered
from nbrag.rendering import Rendering

if TYPE_CHECKING:
    from nbrag.workspace import Workspace

__all__ = ["MapPanel"]

_ANY = ("whichever is chosen", "")
_BEST = ("what tells the most", "")
_METHODS = [("principal components, at once", "pca"), ("UMAP, takes up to a minute", "umap")]


class MapPanel(Panel):
    """Draws a collection; the picture is the same one where there is no kernel.

    Parameters
    ----------
    workspace
        Where the collection is.
    collection
        What is drawn at once; without one, the one that a search would take.
    question
        What is marked at once, with its results.
    by
        What the marks tell: ``document`` or a field.
    method
        ``pca`` or ``umap``.
    """

    heading = "Map of a collection"
    state: MapState

    def __init__(
        self,
        workspace: Workspace | Callable[[], Workspace],
        *,
        collection: str | None = None,
        question: str = "",
        by: str | None = None,
        method: str = "pca",
    ) -> None:
        state = MapState()
        super().__init__(workspace, state)
        state.collection, state.question = collection or "", question
        state.by, state.method = by or "", method
        self._make_controls()
        self._tie()
        self.act(self._begin)

    def _make_controls(self) -> None:
        self._collection = choice("Collection", [_ANY], "", width="22em")
        self._by = choice("Marks tell", [_BEST], "", width="22em")
        self._method = choice("Method", _METHODS, "pca", width="26em")
        self._most = number(
            "Most chunks", 3_000, least=10, most=5_000, help_text="A fixed random sample of all"
        )
        self._question = text_line("Question", placeholder="How long are backups kept?")
        self._pipeline = choice("Pipeline", ["default"], "default", width="22em")
        self._top_k = number("Results", 5, least=1, most=20, width="14em")
        self._draw = button("Draw", kind="primary")
        self._picture = markup()
        self.lay_out(
            row(self._collection, self._by),
            row(self._method, self._most),
            row(self._question, self._pipeline, self._top_k),
            row(self._draw),
            self._picture,
        )

    def _tie(self) -> None:
        self.on_change(self._collection, self._choose)
        for control, trait in (
            (self._by, "by"),
            (self._method, "method"),
            (self._most, "most"),
            (self._question, "question"),
        ):
            self.on_change(control, self._taker(trait, at_once=True))
        self.on_change(self._pipeline, self._taker("pipeline"))
        self.on_change(self._top_k, self._taker("top_k"))
        self.on_click(self._draw, self.draw)
        names = ["collections", "collection", "saved", "pipeline", "fields", "by"]
        self.follow(names, self._redraw_names)
        self.follow(["method", "most", "question", "top_k"], self._redraw_values)
        self.follow(["drawn"], self._redraw_picture)

    # Actions -----------------------------------------------------------------------------

    def _begin(self) -> None:
        actions.refresh(self.workspace, self.state)
        if self.state.collection or self.state.collections:
            self.draw()
            # The still picture is taken now; UMAP may go on behind it.
            self.settle()

    def _taker(self, trait: str, *, at_once: bool = False) -> Callable[[Any], None]:
        """Return what takes a control's new value, and draws where that needs no more."""

        def take(value: Any) -> None:
            self.state.set_trait(trait, value)
            if at_once or self.state.question:
                self.draw()

        return take

    def _choose(self, collection: str) -> None:
        actions.choose(self.state, collection)
        self.draw()

    def draw(self) -> None:
        """Draw the map as the controls say."""
        actions.refresh(self.workspace, self.state)
        work, done = actions.draw(self.workspace, self.state)
        self.start(work, done, label="Drawing")

    # Drawing -----------------------------------------------------------------------------

    def _redraw_names(self) -> None:
        state = self.state
        for control, first, known, value in (
            (self._collection, [_ANY], state.collections, state.collection),
            (self._by, [_BEST], state.fields, state.by),
            (self._pipeline, [], state.saved, state.pipeline),
        ):
            # What is gone stays visible, so that the panel tells the truth.
            names = [name for name in dict.fromkeys((*known, value)) if name]
            control.options = [*first, *((name, name) for name in names)]
            control.value = value

    def _redraw_values(self) -> None:
        self._method.value = self.state.method
        self._most.value = self.state.most
        self._question.value = self.state.question
        self._top_k.value = self.state.top_k

    def _redraw_picture(self) -> None:
        drawn = self.state.drawn
        self._picture.value = "" if drawn is None else rendered(drawn)["text/html"]

    def snapshot_parts(self) -> list[Rendering]:
        """Return the picture, and what is marked on it."""
        state = self.state
        parts = [facts("Settings", [("question", state.question), ("pipeline", state.pipeline)])]
        parts = parts if state.question else []
        return [*parts, rendered(state.drawn)] if state.drawn is not None else parts
