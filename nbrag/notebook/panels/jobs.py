"""Long work of a panel: on nbrag's background loop, its news brought back to the kernel's thread.

Widgets are changed by one thread only, the one that runs cells. Between two cells it runs what
was posted to it; so work goes on while cells run, and cells run while work goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from nbrag.background import submit

__all__ = ["Dispatcher", "Job", "Jobs", "Report"]

#: Called with what is done, what there is in all (None: unknown), and a line of text.
Report = Callable[[int, "int | None", str], None]
#: Seconds between two shown states of progress.
_PAUSE = 0.1


class Dispatcher:
    """Runs functions in the thread that widgets live in.

    In a kernel that is between cells. Elsewhere, and in a cell that waits, it is :meth:`wait`
    that runs them.
    """

    def __init__(self) -> None:
        from IPython.core.getipython import get_ipython

        kernel: Any = getattr(get_ipython(), "kernel", None)
        self._loop: Any = getattr(kernel, "io_loop", None)
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, function: Callable[[], None]) -> None:
        """Have a function run there; may be called from any thread."""
        self._posted.put(function)
        if self._loop is not None:
            self._loop.add_callback(self._drain)

    def _drain(self) -> None:
        while True:
            try:
                function = self._posted.get_nowait()
            except queue.Empty:
                return
            function()

    def wait(self, until: Callable[[], bool], timeout: float) -> None:
        """Run what is posted, in this thread, until a condition holds.

        Raises
        ------
        TimeoutError
            When it does not hold after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the panel was still busy after {timeout:g} seconds")
            try:
                function = self._posted.get(timeout=min(left, _PAUSE))
            except queue.Empty:
                continue
            function()


class Job:
    """One piece of work.

    Attributes
    ----------
    quiet
        Whether it is left out of what a person sees as "busy".
    """

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.future: Future[Any] | None = None
        self._lock = threading.Lock()
        self._latest: tuple[int, int | None, str] | None = None
        self._posted = False

    def news(self, dispatcher: Dispatcher, tell: Callable[[int, int | None, str], None]) -> Report:
        """Return the function that the work reports to; many reports become few."""
        last = 0.0

        def show() -> None:
            nonlocal last
            with self._lock:
                latest, self._posted = self._latest, False
                last = time.monotonic()
            if latest is not None:
                tell(*latest)

        def report(done: int, total: int | None, text: str = "") -> None:
            with self._lock:
                self._latest = (done, total, text)
                complete = total is not None and done >= total
                if self._posted or (time.monotonic() - last < _PAUSE and not complete):
                    return
                self._posted = True
            dispatcher.post(show)

        return report


class Jobs:
    """The running work of one panel, at most one piece per key: a new one replaces the old.

    Parameters
    ----------
    dispatcher
        Where results are handled.
    changed
        Called there whenever work begins or ends.
    """

    def __init__(self, dispatcher: Dispatcher, changed: Callable[[], None]) -> None:
        self._dispatcher = dispatcher
        self._changed = changed
        self._running: dict[str, Job] = {}

    @property
    def busy(self) -> bool:
        """Whether work is running that a person has asked for."""
        return any(not job.quiet for job in self._running.values())

    @property
    def idle(self) -> bool:
        """Whether nothing at all is running."""
        return not self._running

    def start(
        self,
        key: str,
        work: Callable[[Report], Coroutine[Any, Any, Any]],
        *,
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None],
        stopped: Callable[[], None],
        progress: Callable[[int, int | None, str], None],
        quiet: bool = False,
    ) -> None:
        """Start work.

        Parameters
        ----------
        key
            Work of the same key is replaced; its result is not looked at any more.
        work
            Makes the coroutine, which runs on the background loop.
        done, failed, stopped, progress
            Called in the widgets' thread: at the end with the result or the error, when it was
            stopped, and now and then on the way.
        quiet
            Whether a person need not see that it runs.
        """
        self.drop(key)
        job = Job(quiet=quiet)
        self._running[key] = job

        def tell(made: int, total: int | None, text: str) -> None:
            if self._running.get(key) is job:
                progress(made, total, text)

        def finish() -> None:
            if self._running.get(key) is not job or job.future is None:
                return
            del self._running[key]
            self._changed()
            if job.future.cancelled():
                stopped()
            elif (error := job.future.exception()) is not None:
                failed(error)
            else:
                done(job.future.result())

        job.future = submit(work(job.news(self._dispatcher, tell)))
        self._changed()
        job.future.add_done_callback(lambda _: self._dispatcher.post(finish))

    def stop(self, key: str | None = None) -> None:
        """Stop the work of a key, or all that a person has asked for."""
        for name, job in list(self._running.items()):
            if job.future is not None and (name == key or (key is None and not job.quiet)):
                job.future.cancel()

    def drop(self, key: str | None = None) -> None:
        """Stop work, or all of it, and don't care for how it ends."""
        for name in [key] if key is not None else list(self._running):
            job = self._running.pop(name, None)
            if job is not None and job.future is not None:
                job.future.cancel()
