"""Whether the work that runs in this thread was cancelled."""

from __future__ import annotations

import threading

__all__ = ["cancelled", "running"]

_local = threading.local()


class running:  # noqa: N801 - reads as a word in a with statement
    """Make an event the sign, for this thread, that its work is cancelled.

    Parameters
    ----------
    sign
        Set by whoever cancels; None for work that can't be cancelled.
    """

    def __init__(self, sign: threading.Event | None) -> None:
        self._sign = sign

    def __enter__(self) -> None:
        _local.sign = self._sign

    def __exit__(self, *exception: object) -> None:
        _local.sign = None


def cancelled() -> bool:
    """Return whether the work in this thread is to stop."""
    sign: threading.Event | None = getattr(_local, "sign", None)
    return sign is not None and sign.is_set()
