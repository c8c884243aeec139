"""The JSON values in a model's words, found in one pass, and never inside a broken value.

No repair library is used: those close a value that was cut off, so that half a list looks like a
whole one.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

__all__ = ["FoundValue", "JsonScan", "scan_json"]

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
#: What opens a JSON value rather than a bracket of prose: a key, or the start of an element. Keys
#: in other quotes or none are no JSON, but their value's parts are no answers either.
_KEY = rf"(?:{_STRING}|'[^'\n]*+'|[^\W\d]\w*+)\s*+:"
_OPENING = re.compile(rf'\{{\s*+(?:\}}|{_KEY})|\[\s*+(?:["\[{{\]\d-]|true|false|null)', re.DOTALL)
_TOKEN = re.compile(rf'{_STRING}|[\[\]{{}}"]', re.DOTALL)
_THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_NEXT = re.compile(rf"[\[{{]|{_THOUGHT.pattern}", re.IGNORECASE)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*+[\]}}])", re.DOTALL)
#: Where a value that was cut off ends at the latest, so that a fresh start after it counts.
_BREAK = re.compile(r"\n[ \t]*+\r?\n|\n[ \t]*+```")
#: After so many values that were cut off no more is looked for: each look may go to the end.
_MOST_CUTS = 10
#: Deeper values are refused: Python's parser would run out of its stack.
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A whole JSON value.

    Attributes
    ----------
    value
        An object or an array.
    start, end
        Where it stands in the text.
    """

    value: Any
    start: int
    end: int


@dataclass(slots=True)
class JsonScan:
    """What a text holds.

    Attributes
    ----------
    values
        Objects and arrays that are not part of another one, in order.
    broken
        Why the last value that could not be read is none, empty when all could.
    """

    values: list[FoundValue]
    broken: str = ""


def scan_json(text: str) -> JsonScan:
    """Find the JSON objects and arrays of a text, thoughts (``<think>...</think>``) left out.

    Of a thought that never ends, only a value that ends the text counts. Takes time in
    proportion to the text's length, whatever is in it.
    """
    scan = JsonScan([])
    thinking = False
    cuts = 0
    place = 0
    while (found := _NEXT.search(text, place)) is not None:
        start = found.start()
        if found.group() not in "[{":
            place = found.end()
            if found.group(1):
                # What stands before the end of a thought was thought.
                scan.values.clear()
                scan.broken = ""
            elif not thinking:
                closing = _end_of_thought(text, place)
                thinking = closing is None
                place = place if closing is None else closing
            continue
        if _OPENING.match(text, start) is None:
            place = start + 1
            continue
        end = _end_of_value(text, start)
        if end is None:
            scan.broken = "the JSON is cut off"
            cuts += 1
            cut = _BREAK.search(text, start)
            if cut is None or cuts == _MOST_CUTS:
                break
            place = cut.end()
            continue
        place = end
        try:
            scan.values.append(FoundValue(_loaded(text[start:end]), start, end))
        except (ValueError, RecursionError) as error:
            scan.broken = f"the JSON can't be read: {error}"
    if thinking:
        ends = scan.values and not text[scan.values[-1].end :].strip("`\r\n\t .")
        scan.values = scan.values[-1:] if ends else []
        scan.broken = scan.broken or "the reply is a thought without an end"
    return scan


def _end_of_thought(text: str, start: int) -> int | None:
    """Return where the answer begins after a thought, None when the thought has no end."""
    closings = (tag.end() for tag in _THOUGHT.finditer(text, start) if tag.group(1))
    return next(closings, None)


def _end_of_value(text: str, start: int) -> int | None:
    """Return where the value that opens at ``start`` ends, None when it is cut off."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        sign = token.group()
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
            if depth == 0:
                return token.end()
        elif sign == '"':
            return None  # a string without an end
    return None


def _loaded(source: str) -> Any:
    """Return a JSON value; raw line breaks in strings and trailing commas are let pass."""
    depth = deepest = 0
    for token in _TOKEN.finditer(source):
        sign = token.group()
        depth += (sign in "[{") - (sign in "]}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
    try:
        return _decoder.decode(source)
    except json.JSONDecodeError as error:
        mended = _TRAILING_COMMA.sub(r"\1", source)
        if mended == source:
            raise
        try:
            return _decoder.decode(mended)
        except json.JSONDecodeError:
            raise error from None


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


_decoder = json.JSONDecoder(strict=False, parse_float=_number, parse_constant=_constant)
