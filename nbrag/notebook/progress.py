"""Progress of a long magic: one output, updated in place, whose final state is the result.

In a notebook it is one display handle; in a terminal one line that is written over; elsewhere
(a pipe, a log) nothing.
"""

from __future__ import annotations

import html
import sys
from types import TracebackType
from typing import Any, Self

from nbrag.rendering import Rendering, clip, plain

__all__ = ["Progress", "ProgressState", "show_no_more"]

_WIDTH = 100


class ProgressState:
    """What is shown at one moment.

    Parameters
    ----------
    text
        One line.
    done, total
        How far the work is; ``total`` is None while it is unknown. Both None: it is over.
    """

    def __init__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self.text = " ".join(plain(text).split())
        self.done = done
        self.total = total

    def __eq__(self, other: object) -> bool:
        """Return whether the same would be shown."""
        return isinstance(other, ProgressState) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return a hash of what is shown."""
        return hash((self.text, self.done, self.total))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the state as text and, while the work goes on, with a bar."""
        words = html.escape(self.text, quote=True)
        if self.done is None:
            return {"text/plain": self.text, "text/html": f'<div role="status">{words}</div>'}
        known = "" if not self.total else f' value="{self.done}" max="{self.total}"'
        return {
            "text/plain": self.text,
            "text/html": f'<div role="status"><progress aria-label="{words}"{known}></progress> '
            f"{words}</div>",
        }

    def __repr__(self) -> str:
        """Return the line."""
        return self.text


class Progress:
    """Shows how far a magic is; a context manager that also tells of a stop.

    Parameters
    ----------
    shell
        The IPython shell, which decides how progress is shown; None outside of one.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._in_kernel = getattr(shell, "kernel", None) is not None
        self._handle: Any = None
        self._shown: ProgressState | None = None
        self._on_line = False

    def update(self, text: str, done: int, total: int | None) -> None:
        """Show a state of the work."""
        self._show(ProgressState(text, done, total))

    def show(self, state: ProgressState) -> None:
        """Show a state that has more to show than a line and a bar."""
        self._show(state)

    def finish(self, result: Any, *, summary: str | None = None) -> None:
        """Let the result take the place of the progress, so that the cell has one output.

        Parameters
        ----------
        result
            What the magic returns; IPython does not show it a second time.
        summary
            A line to be left instead, for a magic that returns nothing.
        """
        if summary is not None:
            self._show(ProgressState(summary))
        elif self._handle is not None:
            self._handle.update(result)
            show_no_more(self._shell, result)
        self._end_line(keep=summary is not None)

    def _show(self, state: ProgressState) -> None:
        if state == self._shown:
            return
        self._shown = state
        if self._in_kernel:
            if self._handle is None:
                from IPython.display import display

                self._handle = display(state, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._handle.update(state)
        elif sys.stderr.isatty():
            # Back to the line's start, and what an earlier, longer text left behind is erased.
            sys.stderr.write(f"\r{clip(state.text, _WIDTH)}\x1b[K")
            sys.stderr.flush()
            self._on_line = True

    def _end_line(self, *, keep: bool) -> None:
        if self._on_line:
            sys.stderr.write("\n" if keep else "\r\x1b[K")
            sys.stderr.flush()
            self._on_line = False

    def __enter__(self) -> Self:
        """Return the progress; nothing is shown before the first update."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say that the work was stopped, where it was."""
        if kind is not None and self._shown is not None and self._shown.done is not None:
            how = "interrupted" if issubclass(kind, KeyboardInterrupt) else "stopped"
            self._show(ProgressState(f"{self._shown.text}; {how}"))
        self._end_line(keep=True)


def show_no_more(shell: Any, result: Any) -> None:
    """Keep IPython from showing an object that the running cell shows already.

    ``_`` and ``Out`` hold it all the same, and later cells show it as ever.

    Parameters
    ----------
    shell
        The IPython shell.
    result
        The object.
    """
    formatter = shell.display_formatter.ipython_display_formatter
    kind = type(result)

    def forget() -> None:
        if formatter.type_printers.get(kind) is skip:
            formatter.pop(kind)
        if forget in shell.events.callbacks["post_execute"]:
            shell.events.unregister("post_execute", forget)

    def skip(value: Any) -> None:
        if value is not result:
            # To IPython: this printer does not apply, go on to the next.
            raise NotImplementedError
        forget()

    formatter.for_type(kind, skip)
    shell.events.register("post_execute", forget)
