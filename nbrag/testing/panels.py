"""Tests of panels: a click that fails makes the test fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["control", "controls", "panel_failures"]


@contextlib.contextmanager
def panel_failures() -> Iterator[list[BaseException]]:
    """Raise at the end what callbacks of panels failed with.

    A panel shows such errors as a line, and a click never raises; so a test needs this to see
    them. Errors that people cause (:class:`nbrag.errors.NbragError`) are not among them: look at
    ``panel.state.alert``. Take an expected failure out of the list that the block is given.
    """
    from nbrag.notebook.panels.guarding import watched_failures

    with watched_failures() as seen:
        yield seen


def controls(panel: Any) -> Iterator[Any]:
    """Yield all controls of a panel, in the order in which the tab key goes through them."""
    for child in getattr(panel, "children", ()):
        yield child
        yield from controls(child)


def control(panel: Any, label: str) -> Any:
    """Return the one control of that label, or button with these words.

    Raises
    ------
    LookupError
        When there is none, or more than one.
    """
    named = [(c, getattr(c, "description", "")) for c in controls(panel)]
    found = [c for c, name in named if name == label]
    if len(found) != 1:
        known = sorted({name for _, name in named if name})
        raise LookupError(f"{len(found)} controls are called '{label}'; there are {known}")
    return found[0]
