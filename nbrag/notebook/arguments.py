"""How a magic's line is read: options first, then positions or a question taken verbatim.

Declarations and help are argparse's, in IPython's form; the splitting is nbrag's own, because a
question must arrive as it was typed, with its quotes, ``$5``, ``#`` and ``-k``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from IPython.core.magic_arguments import MagicArgumentParser

from nbrag.errors import MagicUsageError, did_you_mean

__all__ = [
    "MagicParser",
    "argument",
    "identifier",
    "magic_options",
    "positive_integer",
    "read_token",
    "split_line",
    "split_words",
]

_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])")
_LOOKS_LIKE_OPTION = re.compile(r"--?[A-Za-z]")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_ESCAPABLE = " \t\"'"


class MagicParser(MagicArgumentParser):
    """An argument parser whose errors are :class:`~nbrag.errors.MagicUsageError`.

    Options must be written in full, so that a new option never changes an old notebook.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self.allow_abbrev = False

    def error(self, message: str) -> NoReturn:
        """Raise an error that shows as one line and turns a notebook red."""
        raise MagicUsageError(
            f"%{self.prog}: {message}.", hint=f"%{self.prog}? shows the options"
        ) from None

    def actions(self) -> dict[str, argparse.Action]:
        """Return the declared options by each way of writing them."""
        return dict(self._option_string_actions)

    def actions_of_position(self) -> list[argparse.Action]:
        """Return the declared positions."""
        return [action for action in self._actions if not action.option_strings]

    def unknown_option(self, word: str, *, free_text: bool) -> NoReturn:
        """Raise for an option that there is not."""
        hint = did_you_mean(word, self._option_string_actions, what="options")
        if free_text:
            hint += f"{'' if hint.endswith('?') else ';'} write -- before a question with a dash"
        raise MagicUsageError(f"%{self.prog} has no option {word}.", hint=hint)


def argument(*names: str, **settings: Any) -> Callable[[_Function], _Function]:
    """Declare an option or a position of a magic, as for ``argparse.add_argument``.

    Parameters
    ----------
    *names, **settings
        What ``add_argument`` takes.
    """

    def declare(function: _Function) -> _Function:
        # Decorators run from the last one up; help shows what stands first, first.
        vars(function).setdefault("declarations", []).insert(0, (names, settings))
        return function

    return declare


def magic_options(function: _Function) -> _Function:
    """Build a magic's parser and its help text from the declarations below this decorator."""
    options: dict[str, Any] = {"description": function.__doc__}
    parser = MagicParser(function.__name__, **options)
    for names, settings in vars(function).get("declarations", ()):
        parser.add_argument(*names, **settings)
    parser.add_argument("--help", action="store_true", help="Show this help.")
    function.__doc__ = parser.format_help()
    vars(function)["parser"] = parser
    return function


def positive_integer(text: str) -> int:
    """Return a whole number of 1 or more; for ``type=`` of an argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return number


def identifier(text: str) -> str:
    """Return a name that a variable can have; for ``type=`` of an argument."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"'{text}' can't be the name of a variable")
    return text


def read_token(line: str, position: int) -> tuple[str, int]:
    r"""Return the word at ``position`` without its quotes, and where it ends.

    Quotes may stand anywhere in a word. A backslash counts only before a blank or a quote, so
    that ``C:\docs`` is itself. ``{{ name }}`` is one word.

    Raises
    ------
    MagicUsageError
        When a closing quote is missing.
    """
    parts: list[str] = []
    index = position
    while index < len(line) and not line[index].isspace():
        char = line[index]
        close = line.find("}}", index + 2) if line.startswith("{{", index) else -1
        if close >= 0:
            parts.append(line[index : close + 2])
            index = close + 2
        elif char in "\"'":
            text, index = _read_quoted(line, index)
            parts.append(text)
        elif char == "\\" and line[index + 1 : index + 2] and line[index + 1] in _ESCAPABLE:
            parts.append(line[index + 1])
            index += 2
        else:
            parts.append(char)
            index += 1
    return "".join(parts), index


def _read_quoted(line: str, position: int) -> tuple[str, int]:
    quote = line[position]
    parts: list[str] = []
    index = position + 1
    while index < len(line):
        char = line[index]
        if char == quote:
            return "".join(parts), index + 1
        # In single quotes nothing is special, as in a shell.
        if quote == '"' and char == "\\" and line[index + 1 : index + 2] in ('"', "\\"):
            parts.append(line[index + 1])
            index += 2
            continue
        parts.append(char)
        index += 1
    raise MagicUsageError(
        f"the closing quote of {line[position:].strip()} is missing.",
        hint="close it, or put a value that holds a quote into quotes of the other kind",
    )


def split_words(line: str) -> list[str]:
    """Return the words of a line, without their quotes."""
    words: list[str] = []
    position = _skip_blanks(line, 0)
    while position < len(line):
        word, position = read_token(line, position)
        words.append(word)
        position = _skip_blanks(line, position)
    return words


def split_line(
    parser: MagicParser, line: str, *, free_text: bool
) -> tuple[list[tuple[str, str | None]], str]:
    """Split a magic's line into options, positions and the question.

    Parameters
    ----------
    parser
        Knows which options there are and which of them take a value.
    line
        The line after the magic's name.
    free_text
        Whether the first word that is no option starts a question, which is taken verbatim to
        the end of the line.

    Returns
    -------
    words, text
        Each word is an option with its value (None for a flag, or when the values follow as
        words of their own), or ``("", word)`` for a position. ``text`` is the question.

    Raises
    ------
    MagicUsageError
        For an unknown option, a missing value, or an open quote.
    """
    actions = parser.actions()
    words: list[tuple[str, str | None]] = []
    position = _skip_blanks(line, 0)
    while position < len(line):
        rest = line[position:]
        if free_text and (rest == "--" or re.match(r"--\s", rest)):
            return words, rest[2:].strip()
        if not _LOOKS_LIKE_OPTION.match(rest):
            if free_text:
                return words, rest.strip()
            word, position = read_token(line, position)
            words.append(("", word))
        else:
            option, value, position = _read_option(parser, actions, line, position, free_text)
            words.append((option, value))
        position = _skip_blanks(line, position)
    return words, ""


def _read_option(
    parser: MagicParser,
    actions: dict[str, argparse.Action],
    line: str,
    position: int,
    free_text: bool,  # noqa: FBT001 - private
) -> tuple[str, str | None, int]:
    match = _OPTION.match(line, position)
    name = match.group() if match else ""
    after = match.end() if match else position
    action = actions.get(name)
    attached = line[after : after + 1]
    short = not name.startswith("--")
    if action is None or (attached and not attached.isspace() and attached != "=" and not short):
        parser.unknown_option(
            line[position:].split(maxsplit=1)[0].partition("=")[0], free_text=free_text
        )
    if action.nargs == 0:
        if attached and not attached.isspace():
            parser.unknown_option(line[position:].split(maxsplit=1)[0], free_text=free_text)
        return name, None, after
    if attached and not attached.isspace():
        value, end = read_token(line, after + (attached == "="))
        return name, value, end
    if action.nargs == "+":
        return name, None, after
    start = _skip_blanks(line, after)
    if start >= len(line):
        parser.error(f"option {name} needs a value")
    value, end = read_token(line, start)
    return name, value, end


def _skip_blanks(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position
