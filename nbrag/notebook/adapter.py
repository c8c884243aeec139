"""What all magics have in common, so that each of them is only its own few lines.

Reading the line, ``{{ name }}``, ``--help``, ``-o NAME``, ``-q``, and errors that IPython can
show as one line.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nbrag.errors import MagicUsageError, NbragError
from nbrag.notebook.arguments import MagicParser, argument, identifier, split_line
from nbrag.notebook.expansion import expand, expand_body
from nbrag.notebook.session import NotebookSession

__all__ = ["Call", "adapter", "common_options", "read_call"]


class _Host(Protocol):
    """What the adapter needs of the class of magics."""

    shell: Any
    session: NotebookSession


class Call:
    """One call of a magic.

    Attributes
    ----------
    options
        The parsed options and positions, expanded.
    text
        The question: the rest of the line, else the cell's body, verbatim.
    body
        The cell's body, expanded as stages; None for a line magic.
    namespace
        The notebook's variables.
    """

    def __init__(
        self, options: argparse.Namespace, text: str, body: str | None, namespace: Mapping[str, Any]
    ) -> None:
        self.options = options
        self.text = text
        self.body = body
        self.namespace = namespace


def common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options that all magics with a result share."""
    for declare in (
        argument("--raw", action="store_true", help="Leave {{ name }} as it is."),
        argument("-q", "--quiet", action="store_true", help="Return nothing."),
        argument("-o", "--output", metavar="NAME", type=identifier, help="Keep the result."),
    ):
        function = declare(function)
    return function


def adapter(*, free_text: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn ``(self, call) -> result`` into a magic ``(self, line, cell)``.

    Parameters
    ----------
    free_text
        Whether a question follows the options, on the line or as the cell.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def magic(
            self: _Host,
            line: str,
            cell: str | None = None,
            local_ns: Mapping[str, Any] | None = None,
        ) -> Any:
            def run() -> Any:
                self.session.apply()
                namespace = {**self.shell.user_ns, **(local_ns or {})}
                parser: MagicParser = magic.parser  # type: ignore[attr-defined]
                call = read_call(parser, line, cell, namespace, free_text=free_text)
                if call is None:
                    print(parser.format_help())  # noqa: T201 - what --help is for
                    return None
                result = function(self, call)
                output = getattr(call.options, "output", None)
                if output is not None:
                    self.shell.user_ns[output] = result
                return None if getattr(call.options, "quiet", False) else result

            return _without_groups(run)

        return magic

    return decorate


def read_call(
    parser: MagicParser,
    line: str,
    cell: str | None,
    namespace: Mapping[str, Any],
    *,
    free_text: bool,
) -> Call | None:
    """Read a magic's line and cell; None when only help is wanted.

    Raises
    ------
    MagicUsageError
        When the line can't be read.
    """
    words, text = split_line(parser, line, free_text=free_text)
    names = {name for name, _ in words}
    if "--help" in names:
        return None
    raw = "--raw" in names

    def expanded(value: str) -> str:
        return value if raw else expand(value, namespace)

    arguments: list[str] = []
    for name, value in words:
        if not name:
            arguments.append(expanded(value or ""))
        elif value is None:
            arguments.append(name)
        else:
            # Joined by "=" (or directly, after one dash), a value may begin with a dash.
            joiner = "=" if name.startswith("--") else ""
            arguments.append(f"{name}{joiner}{expanded(value)}")
    options = parser.parse_args(arguments)
    body = cell
    if cell is not None and free_text:
        if text and cell.strip():
            raise MagicUsageError(
                f"%%{parser.prog}: there is a question on the line and another in the cell.",
                hint="keep one of them; options stand before the question",
            )
        text = text or cell.strip()
    elif cell is not None and not raw:
        body = expand_body(cell, namespace)
    return Call(options, expanded(text), body, namespace)


def _without_groups(run: Callable[[], Any]) -> Any:
    """Run, and raise what comes so that IPython shows an NbragError as one line.

    IPython prints the full native traceback as soon as an ExceptionGroup is anywhere in an
    error's chain; so an NbragError is freed of such a chain and raised outside of any handler.
    """
    failure: NbragError
    try:
        return run()
    except BaseExceptionGroup as group:
        ours = _first_of_ours(group)
        if ours is None:
            raise
        failure = ours
    except NbragError as error:
        failure = error
    if _chain_has_group(failure):
        failure.__context__ = None
        failure.__cause__ = None
    raise failure


def _first_of_ours(group: BaseExceptionGroup[BaseException]) -> NbragError | None:
    """Return the first NbragError of a group that holds nothing else."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending[:0] = error.exceptions
        else:
            leaves.append(error)
    ours = [error for error in leaves if isinstance(error, NbragError)]
    return ours[0] if len(ours) == len(leaves) else None


def _chain_has_group(error: BaseException) -> bool:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error.__context__, error.__cause__]
    while pending:
        link = pending.pop()
        if link is None or id(link) in seen:
            continue
        if isinstance(link, BaseExceptionGroup):
            return True
        seen.add(id(link))
        pending += [link.__context__, link.__cause__]
    return False
