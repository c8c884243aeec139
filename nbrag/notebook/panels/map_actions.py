"""What the map panel does, through the same calls as scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from nbrag.maps import CollectionMap, colour_fields, make_map

if TYPE_CHECKING:
    from nbrag.notebook.panels.jobs import Report
    from nbrag.notebook.panels.map_state import MapState
    from nbrag.workspace import Workspace

__all__ = ["choose", "draw", "refresh"]

_Made = tuple[CollectionMap, list[str]]


def refresh(workspace: Workspace, state: MapState) -> None:
    """Look which collections and pipelines there are."""
    state.collections = tuple(workspace.collections())
    state.saved = tuple(workspace.pipelines())


def choose(state: MapState, collection: str) -> None:
    """Take another collection, with fields of its own."""
    with state.hold_trait_notifications():
        state.collection = collection
        state.by = ""


def draw(
    workspace: Workspace, state: MapState
) -> tuple[Callable[[Report], Coroutine[Any, Any, _Made]], Callable[[_Made], None]]:
    """Return the work that makes the map, and what takes its end."""
    name = state.collection or None
    options: dict[str, Any] = {
        "by": state.by or None,
        "method": cast("Any", state.method),
        "question": state.question,
        "pipeline": state.pipeline,
        "top_k": state.top_k,
        "most": state.most,
    }

    async def work(_: Report) -> _Made:
        """Return the map, and the fields that may colour it."""
        made = await make_map(workspace, name, **options)
        target = await asyncio.to_thread(lambda: workspace[made.collection])
        return made, await colour_fields(target)

    def done(result: _Made) -> None:
        made, fields = result
        with state.hold_trait_notifications():
            state.drawn = made
            state.collection, state.by = made.collection, made.by
            state.fields = tuple(fields)
            state.status = f"The map of {made.collection} is drawn."

    return work, done
