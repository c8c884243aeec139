"""The one background event loop on which all of nbrag's waiting is done.

A notebook's main thread already runs a loop, so a magic can't call ``asyncio.run``; and model
clients break when they are used from several loops. So there is one loop on one daemon thread,
scripts and magics submit to it, and awaited calls from other loops are forwarded to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future, wait
from typing import Any, TypeVar

__all__ = ["on_loop", "run", "run_with_progress", "submit"]

_Result = TypeVar("_Result")
_State = TypeVar("_State")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
#: Seconds between two looks of a waiting main thread: keeps Ctrl-C and progress lively.
_SLICE = 0.1
#: Seconds that cancelled work gets to roll back before the interrupt is passed on.
_GRACE = 5.0


def _background_loop() -> asyncio.AbstractEventLoop:
    """Return the running background loop, starting its thread at first use."""
    global _loop  # noqa: PLW0603 - one loop for the process is the point
    with _lock:
        if _loop is None or _loop.is_closed():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(loop,), name="nbrag-loop", daemon=True)
            thread.start()
            _loop = loop
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop for ever, even when a coroutine raises SystemExit: its caller gets that."""
    while not loop.is_closed():
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _forget_loop() -> None:
    """Start anew in a forked child, where the parent's thread does not exist."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)


def submit(coroutine: Coroutine[Any, Any, _Result]) -> Future[_Result]:
    """Start a coroutine on the background loop and return at once; cancelling stops it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _background_loop())


def run(
    coroutine: Coroutine[Any, Any, _Result], *, on_wait: Callable[[], None] | None = None
) -> _Result:
    """Run a coroutine to its end from ordinary code, and return its result.

    Works in scripts, in notebook cells and in magics. An interrupt (Ctrl-C, the stop button)
    cancels the work, waits a few seconds for it to roll back, and is raised again.

    Parameters
    ----------
    coroutine
        What to run.
    on_wait
        Called in this thread about ten times a second while waiting, e.g. to draw progress.

    Raises
    ------
    RuntimeError
        When called on the background loop itself, where it would wait for itself.
    """
    if threading.current_thread().name == "nbrag-loop":
        coroutine.close()
        raise RuntimeError("nbrag.run() was called from nbrag's own loop; use await there")
    future = submit(coroutine)
    try:
        while not wait((future,), timeout=_SLICE).done:
            if on_wait is not None:
                on_wait()
    except BaseException:
        future.cancel()
        _wait_for_rollback()
        raise
    try:
        return future.result()
    except FutureCancelledError:
        raise KeyboardInterrupt from None


def _wait_for_rollback() -> None:
    """Give cancelled work its time to leave consistent tables."""
    drained = threading.Event()
    loop = _background_loop()

    async def drain() -> None:
        pending = [
            task
            for task in asyncio.all_tasks(loop)
            if task is not asyncio.current_task() and task.cancelling()
        ]
        if pending:
            await asyncio.wait(pending, timeout=_GRACE)
        drained.set()

    with contextlib.suppress(RuntimeError):
        asyncio.run_coroutine_threadsafe(drain(), loop)
        drained.wait(_GRACE)


async def on_loop(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Await a coroutine on the background loop, from whichever loop the caller is on.

    Cancelling the caller cancels the work.
    """
    loop = _background_loop()
    if asyncio.get_running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def run_with_progress(
    start: Callable[[Callable[[_State], None]], Coroutine[Any, Any, _Result]],
    progress: Callable[[_State], None] | None,
) -> _Result:
    """Run a coroutine, and tell in the calling thread how far it is.

    Parameters
    ----------
    start
        Makes the coroutine; it gets a function to be called with each new state, from any thread.
    progress
        Called in the calling thread with the latest state, about ten times a second and at the
        end.
    """
    latest: list[_State] = []

    def show() -> None:
        if latest and progress is not None:
            progress(latest[0])

    result = run(start(lambda state: latest.__setitem__(slice(None), [state])), on_wait=show)
    show()
    return result
