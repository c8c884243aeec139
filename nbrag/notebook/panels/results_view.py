"""What one pipeline found: its results to choose from, its warnings, and their way."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from nbrag.notebook.panels.controls import column, listing, markup
from nbrag.notebook.panels.messages import without_private
from nbrag.notebook.panels.rank_flow import rank_flow
from nbrag.rendering import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from nbrag.notebook.panels.base import Panel
    from nbrag.notebook.panels.search_state import SearchState

__all__ = ["ResultsView", "note_html"]

_NOTE = "border-left:3px solid #c77700;padding:0.2em 0.6em;margin:0.3em 0"


def note_html(words: str) -> str:
    """Return a remark, as results have them."""
    return f'<div role="note" style="{_NOTE}">{html.escape(plain(words), quote=True)}</div>'


class ResultsView:
    """The results of one side of a search panel.

    Parameters
    ----------
    panel
        The panel that it is part of.
    state
        The panel's state.
    side
        ``A`` or ``B``.
    choose
        Called with side and chunk id when a person chooses a result.

    Attributes
    ----------
    view
        The box to be laid out.
    """

    def __init__(
        self, panel: Panel, state: SearchState, side: str, choose: Callable[[str, str], None]
    ) -> None:
        self._state = state
        self._side = side
        self._list = listing(f"Results {side}", rows=6, label_width="5.5em")
        self._said = markup()
        self._flow = markup()
        self.view = column(self._list, self._said, self._flow, grow=True)
        self.view.layout.margin = "0 1em 0 0"
        panel.on_change(self._list, lambda chunk_id: choose(side, chunk_id or ""))
        panel.follow(["found", "marks", "side", "chosen", "second"], self._redraw_list)
        panel.follow(["found"], self._redraw_way)

    def _redraw_list(self) -> None:
        state, side = self._state, self._side
        self.view.layout.display = "" if state.pipeline(side) else "none"
        shown = [
            (state.label(side, rank, chunk), chunk.id)
            for rank, chunk in enumerate(state.results(side) or (), start=1)
        ]
        self._list.options = shown
        chosen = state.chosen if side == state.side else ""
        self._list.value = chosen if chosen in [chunk_id for _, chunk_id in shown] else None

    def _redraw_way(self) -> None:
        results = self._state.results(self._side)
        said = [] if results is None else list(results.warnings)
        if results is not None and not results:
            said.insert(0, "nothing was found")
        self._said.value = "".join(note_html(without_private(words)) for words in said)
        flow = None if results is None else rank_flow(results.trace, self._state.title(self._side))
        self._flow.value = "" if flow is None else without_private(flow["text/html"])
