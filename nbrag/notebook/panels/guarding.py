"""Errors of callbacks: kept where a test finds them, because a click never raises."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from nbrag.errors import NbragError

__all__ = ["note_failure", "watched_failures"]

_log = logging.getLogger("nbrag.panels")
_watchers: list[list[BaseException]] = []


def note_failure(error: BaseException) -> None:
    """Log what no user could have caused, and hand it to the one who watches."""
    if isinstance(error, NbragError):
        return
    if _watchers:
        _watchers[-1].append(error)
    _log.error("a panel's callback failed", exc_info=error)


@contextlib.contextmanager
def watched_failures() -> Iterator[list[BaseException]]:
    """Collect the failures of callbacks that are no :class:`nbrag.errors.NbragError`.

    The first one that is still in the list at the end is raised, so that a test whose clicks
    fail is red.
    """
    seen: list[BaseException] = []
    _watchers.append(seen)
    try:
        yield seen
    finally:
        _watchers.remove(seen)
    if seen:
        raise seen[0]
