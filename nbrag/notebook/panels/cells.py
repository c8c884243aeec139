"""Which panel belongs to which cell: running a cell again closes what it showed before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.notebook.panels.base import Panel

__all__ = ["adopt", "close_panels", "forget", "open_panels"]

#: Per open panel: the cell that showed it, and which run of the cell.
_open: list[tuple[str, str, Panel]] = []


def _running_cell(panel: Panel) -> tuple[str, str]:
    """Return the running cell and its run; outside of a kernel there is one cell per panel."""
    from IPython.core.getipython import get_ipython

    kernel: Any = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return type(panel).__qualname__, ""
    parent = kernel.get_parent("shell") or {}
    run = str(parent.get("header", {}).get("msg_id", ""))
    content = parent.get("content", {})
    # Not every front end tells the cell; then it is known by what stands in it.
    cell = parent.get("metadata", {}).get("cellId") or content.get("code") or ""
    return str(cell), run


def adopt(panel: Panel) -> None:
    """Note a new panel; those of earlier runs of its cell are closed."""
    cell, run = _running_cell(panel)
    earlier = [
        other
        for other_cell, other_run, other in _open
        if other_cell == cell and (other_run != run or not run)
    ]
    for other in earlier:
        other.close()
    _open.append((cell, run, panel))


def forget(panel: Panel) -> None:
    """Take a closed panel off the list."""
    _open[:] = [entry for entry in _open if entry[2] is not panel]


def open_panels() -> list[Panel]:
    """Return the panels that are open, in the order in which they were opened."""
    return [panel for _, _, panel in _open]


def close_panels() -> None:
    """Close all panels; their work is stopped."""
    for panel in open_panels():
        panel.close()
