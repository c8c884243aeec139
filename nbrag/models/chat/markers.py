"""Numbers of passages in an answer's text, ``[2]``, and the sentences that they belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

__all__ = ["Statement", "cited_numbers", "known_markers", "statements", "without_markers"]

#: [1], [1, 2], [passage 3], 【4†source】; words such as array[0] in code are passed over.
_MARKER = re.compile(
    r"[\[【]\s*(?P<numbers>(?:passages?|ids?|nos?\.?|#)?\s*\d{1,6}"
    r"(?:\s*(?:[,;&]|and)\s*(?:passages?|ids?|nos?\.?|#)?\s*\d{1,6})*)\s*(?:†[^\]】\n]{0,80})?[\]】]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
#: After a sentence, with the markers behind it: the next one begins with no small letter.
_BEHIND = r"(?:\s*[\[\u3010][^\]\u3011\n]{1,40}[\]\u3011])*"
_END = re.compile(
    rf"(?<=[.!?])[\"'\u201d\u2019\u00bb)\]\u3011*_]*{_BEHIND}\s+(?![a-z\[\u3010])"
    rf"|(?<=[\u3002\uff01\uff1f])[\u300d\u300f\u201d]*{_BEHIND}(?!\s*[\[\u3010])|\n+"
)
#: Brackets and marks of code, and what stands for them meanwhile.
_MASK = str.maketrans("[\u3010`", "\ue000\ue001\ue002")
_UNMASK = str.maketrans("\ue000\ue001\ue002", "[\u3010`")
_WORD = re.compile(r"\w+")
#: A shorter stretch without a number is no statement of its own: "e.g.", "Yes.", a list's dash.
_FEWEST_WORDS = 3


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of an answer.

    Attributes
    ----------
    text
        Its words, without the numbers.
    numbers
        The passages that it cites, in order, none twice.
    """

    text: str
    numbers: tuple[int, ...]


def cited_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text's markers, in order, none twice."""
    found = [number for _, numbers in _markers(text) for number in numbers]
    return tuple(dict.fromkeys(found))


def known_markers(text: str, known: Container[int]) -> tuple[str, tuple[int, ...]]:
    """Return the text with markers of known numbers alone, and the unknown numbers.

    Each number gets brackets of its own; a marker that is left out takes the blanks before it
    along.
    """
    unknown: dict[int, None] = {}

    def kept(numbers: tuple[int, ...]) -> str:
        unknown.update(dict.fromkeys(number for number in numbers if number not in known))
        return "".join(f"[{number}]" for number in numbers if number in known)

    return _replaced(text, kept), tuple(unknown)


def without_markers(text: str) -> str:
    """Return the text without any marker."""
    return _replaced(text, lambda _: "").strip()


def statements(text: str) -> list[Statement]:
    """Return the sentences of an answer, each with the numbers that it cites.

    Numbers behind a full stop belong to the sentence before; stretches of one or two words without
    a number, and lines that end in a colon, belong to what follows.
    """
    found: list[Statement] = []
    waiting = ""
    # Code may be parted from its marks by the division into sentences.
    masked = _CODE.sub(lambda code: code.group().translate(_MASK), text)
    for stretch in _stretches(masked):
        whole = f"{waiting} {stretch}".strip()
        numbers = cited_numbers(whole)
        words = without_markers(whole)
        short = len(_WORD.findall(words)) < _FEWEST_WORDS and words.isascii()
        if not numbers and (short or whole.endswith(":")):
            waiting = whole
            continue
        waiting = "" if words else whole
        if not words and found:
            # Numbers on a line of their own, below what they belong to.
            waiting, last = "", found[-1]
            found[-1] = Statement(last.text, tuple(dict.fromkeys((*last.numbers, *numbers))))
        elif words:
            found.append(Statement(words, numbers))
    if waiting and without_markers(waiting):
        found.append(Statement(without_markers(waiting), cited_numbers(waiting)))
    return [Statement(one.text.translate(_UNMASK), one.numbers) for one in found]


def _stretches(text: str) -> Iterator[str]:
    start = 0
    for border in _END.finditer(text):
        yield text[start : border.end()].strip()
        start = border.end()
    yield text[start:].strip()


def _markers(text: str) -> Iterator[tuple[re.Match[str], tuple[int, ...]]]:
    """Yield the markers that stand outside of code, with their numbers."""
    code = [stretch.span() for stretch in _CODE.finditer(text)]
    for marker in _MARKER.finditer(text):
        if not any(start <= marker.start() < end for start, end in code):
            yield marker, tuple(map(int, _NUMBER.findall(marker["numbers"])))


def _replaced(text: str, put: Callable[[tuple[int, ...]], str]) -> str:
    parts, last = [], 0
    for marker, numbers in _markers(text):
        before = text[last : marker.start()]
        kept = put(numbers)
        parts += [before if kept else before.rstrip(" \t"), kept]
        last = marker.end()
    return "".join([*parts, text[last:]])
