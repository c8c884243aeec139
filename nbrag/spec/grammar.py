r"""The text form of a pipeline: one stage per line, ``name key=value ...``, ``#`` comments.

Values with blanks, ``#``, quotes or commas stand in double quotes, with ``\"`` and ``\\``
inside; lists are written with commas. Nothing else is special, so that ``what's $5 {x}`` needs no
escaping beyond the quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbrag.errors import SpecificationError

__all__ = ["RawStage", "format_stage", "format_stages", "format_value", "parse_stages"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\s*=\s*")
_BARE = re.compile(r"[^\s\"#,=]+")
_SAFE = re.compile(r"[^\s\"#,=\\]+")


@dataclass(frozen=True, slots=True)
class RawStage:
    """A stage as it is written: values are text, lists of text where commas were."""

    name: str
    options: Mapping[str, tuple[str, ...]]
    quoted: frozenset[str]
    line: int


def parse_stages(text: str, *, first_line: int = 1) -> list[RawStage]:
    r"""Return the stages of a body, in order.

    Parameters
    ----------
    text
        The body; lines end with ``\n``. A line ending in a backslash goes on in the next.
    first_line
        Number of the body's first line, for error messages.

    Raises
    ------
    SpecificationError
        With the line, the stage and the key.
    """
    stages: list[RawStage] = []
    pending, start = "", first_line
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), start=first_line):
        if not pending:
            start = number
        if raw.endswith("\\"):
            pending += raw[:-1] + " "
            continue
        stage = _parse_line(pending + raw, start)
        pending = ""
        if stage is not None:
            stages.append(stage)
    if pending:
        stage = _parse_line(pending, start)
        if stage is not None:
            stages.append(stage)
    return stages


def _parse_line(line: str, number: int) -> RawStage | None:
    position = _skip_blanks(line, 0)
    if position >= len(line) or line[position] == "#":
        return None
    match = _NAME.match(line, position)
    if match is None or (match.end() < len(line) and not re.match(r"[\s#]", line[match.end()])):
        word = line[position:].split(maxsplit=1)[0]
        hint = (
            "a line starts with a stage's name, then key=value"
            if "=" in word
            else "a stage's name has letters, digits, _ and -"
        )
        raise SpecificationError(f"'{word}' is not a stage name.", hint=hint, line=number)
    name, position = match.group(), match.end()
    options: dict[str, tuple[str, ...]] = {}
    quoted: set[str] = set()
    while True:
        position = _skip_blanks(line, position)
        if position >= len(line) or line[position] == "#":
            return RawStage(name, options, frozenset(quoted), number)
        match = _KEY.match(line, position)
        if match is None:
            word = line[position:].split(maxsplit=1)[0]
            raise SpecificationError(
                f"stage '{name}': '{word}' is not key=value.",
                hint=f"write {word}=...; put values with blanks in double quotes",
                line=number,
                stage=name,
            )
        key = match.group(1).replace("-", "_")
        if key in options:
            raise SpecificationError(
                f"stage '{name}': option '{key}' is given twice.", line=number, stage=name, key=key
            )
        values, was_quoted, position = _parse_values(line, match.end(), number, name, key)
        options[key] = values
        if was_quoted:
            quoted.add(key)


def _parse_values(
    line: str, position: int, number: int, stage: str, key: str
) -> tuple[tuple[str, ...], bool, int]:
    values: list[str] = []
    was_quoted = False
    while True:
        if position < len(line) and line[position] == '"':
            value, position = _parse_quoted(line, position, number, stage, key)
            was_quoted = True
        else:
            match = _BARE.match(line, position)
            if match is None:
                raise SpecificationError(
                    f"stage '{stage}': option '{key}' has no value.",
                    hint=f"write {key}=value, or leave the option out",
                    line=number,
                    stage=stage,
                    key=key,
                )
            value, position = match.group(), match.end()
        values.append(value)
        if position < len(line) and line[position] == ",":
            position += 1
            continue
        if position < len(line) and not (line[position].isspace() or line[position] == "#"):
            raise SpecificationError(
                f"stage '{stage}': option '{key}': unexpected '{line[position]}'.",
                hint="put the value in double quotes",
                line=number,
                stage=stage,
                key=key,
            )
        return tuple(values), was_quoted, position


def _parse_quoted(line: str, position: int, number: int, stage: str, key: str) -> tuple[str, int]:
    parts: list[str] = []
    index = position + 1
    escapes = {"n": "\n", "t": "\t", "r": "\r"}
    while index < len(line):
        char = line[index]
        if char == '"':
            return "".join(parts), index + 1
        if char == "\\" and index + 1 < len(line):
            following = line[index + 1]
            parts.append(escapes.get(following, following))
            index += 2
            continue
        parts.append(char)
        index += 1
    raise SpecificationError(
        f"stage '{stage}': option '{key}': the closing quote is missing.",
        line=number,
        stage=stage,
        key=key,
    )


def _skip_blanks(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position


def format_value(value: object) -> str:
    """Return one value as it is written in a cell."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | frozenset | set):
        items = sorted(value) if isinstance(value, frozenset | set) else value
        return ",".join(_format_text(str(item)) for item in items)
    if isinstance(value, int | float):
        return repr(value)
    return _format_text(str(value))


def _format_text(text: str) -> str:
    # A bare "none" would be read as no value at all.
    if _SAFE.fullmatch(text) and text != "none":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for char, code in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        escaped = escaped.replace(char, code)
    return f'"{escaped}"'


def format_stage(name: str, options: Mapping[str, object], *, width: int = 0) -> str:
    """Return a stage's line; ``width`` pads the name so that options stand in a column."""
    pairs = [f"{key}={format_value(value)}" for key, value in options.items()]
    return "  ".join([name.ljust(width), *pairs]) if pairs else name


def format_stages(stages: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """Return a body, one line per stage."""
    width = max((len(name) for name, _ in stages), default=0)
    return "".join(format_stage(name, options, width=width) + "\n" for name, options in stages)
