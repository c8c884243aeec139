"""Where a text may be cut: token positions, sentence, line and word ends, grapheme clusters."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal

from nbrag.protocols import TokenCounter

if TYPE_CHECKING:
    from regex import Pattern

__all__ = [
    "CutKind",
    "TokenMap",
    "best_cut",
    "cluster_border",
    "cut_stretch",
    "trim",
]

CutKind = Literal["prose", "lines", "rows", "words"]
#: Longest text that is tokenized in one call.
_STRETCH = 200_000
#: How far behind the limit a grapheme cluster is looked for.
_CLUSTER_REACH = 64
#: Ends of sentences: a full stop needs white space and no small letter behind it and no
#: abbreviation before it; the stops of scripts without spaces stand for themselves.
_SENTENCE = (
    r"(?<![.!?…\u061f\u06d4])"
    r"(?:(?<!\b(?:\p{Lu}|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Fig|vs|cf|e\.g|i\.e|z\.B|etc))\."
    r"|[!?…\u061f\u06d4])++[\p{SB=CL}]*+\s++(?!\p{Ll})"
    r"|[\p{SB=ST}--[!?…\u061f\u06d4]]++[\p{SB=CL}]*+\s*+"
)
_BLANK_LINE = r"\n[^\S\n]*\n\s*+"
#: Best place first.
_PATTERNS: dict[CutKind, tuple[str, ...]] = {
    "prose": (_BLANK_LINE, _SENTENCE, r"\n"),
    "lines": (_BLANK_LINE, r"\n", _SENTENCE),
    "rows": (r"\n", _SENTENCE),
    "words": (),
}


@cache
def _compiled(pattern: str) -> Pattern[str]:
    import regex

    return regex.compile(pattern, regex.VERSION1)


class TokenMap:
    """Where the tokens of a text stand, so that a stretch is counted without a tokenizer call.

    Parameters
    ----------
    counter
        The embedder's tokenizer.
    text
        The whole text; it is tokenized once, in stretches that end at white space.
    """

    def __init__(self, counter: TokenCounter, text: str) -> None:
        self._length = len(text)
        self._starts = array("q")
        self._ends = array("q")
        for begin, end in _stretches(text):
            for start, stop in counter.token_spans(text[begin:end]):
                self._starts.append(begin + start)
                self._ends.append(begin + stop)

    def count(self, start: int, end: int) -> int:
        """Return how many tokens lie in ``text[start:end]``, a cut one at its start included."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return last - first + self._is_inside(first, start)

    def reach(self, start: int, tokens: int) -> int:
        """Return the furthest end of a stretch from ``start`` that has at most ``tokens``."""
        first = bisect_left(self._starts, start)
        beyond = first + tokens - self._is_inside(first, start)
        return self._starts[beyond] if beyond < len(self._starts) else self._length

    def back(self, end: int, tokens: int) -> int:
        """Return where the ``tokens`` tokens before ``end`` begin."""
        first = bisect_left(self._starts, end) - tokens
        return self._starts[first] if first > 0 else 0

    def _is_inside(self, first: int, start: int) -> bool:
        return first > 0 and self._ends[first - 1] > start


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Yield borders of stretches of bounded length that end behind white space if they can."""
    start = 0
    while start < len(text):
        end = min(start + _STRETCH, len(text))
        if end < len(text):
            space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            end = space + 1 if space > start else end
        yield start, end
        start = end


def best_cut(text: str, start: int, limit: int, kind: CutKind) -> int:
    """Return the best place to cut, after ``start`` and at ``limit`` at the latest.

    Tried in order: the ends that the kind names, in the second half of the stretch; the last
    white space; the last border between grapheme clusters. Only a single cluster that is longer
    than the stretch is cut between its code points.

    Parameters
    ----------
    text
        The whole text.
    start
        Where the stretch begins; the beginning of a grapheme cluster.
    limit
        The last allowed place; more than ``start``.
    kind
        What kind of places are good.
    """
    borders = _cluster_borders(text, start, limit)

    def last(pattern: str, after: int) -> int:
        ends = (match.end() for match in _compiled(pattern).finditer(text, start, limit))
        return max((e for e in ends if e > after and (borders is None or e in borders)), default=0)

    middle = start + (limit - start) // 2
    for pattern in _PATTERNS[kind]:
        if found := last(pattern, middle):
            return found
    return last(r"\s+", start) or (limit if borders is None else max(borders, default=limit))


def cluster_border(text: str, start: int, limit: int) -> int:
    """Return the last border between grapheme clusters at or before ``limit``."""
    borders = _cluster_borders(text, start, limit)
    return limit if borders is None else max(borders, default=start)


def _cluster_borders(text: str, start: int, limit: int) -> frozenset[int] | None:
    """Return the ends of the grapheme clusters up to ``limit``; None when all places are ends."""
    window = text[start : limit + 1]
    if window.isascii() and "\r\n" not in window:
        return None
    # A slice of its own: within a long text the engine would look back over a run of flags.
    window = text[start : limit + _CLUSTER_REACH]
    ends = (start + match.end() for match in _compiled(r"\X").finditer(window))
    return frozenset(end for end in ends if end <= limit)


def _cluster_end(text: str, start: int) -> int:
    reach = _CLUSTER_REACH
    while match := _compiled(r"\X").match(text[start : start + reach]):
        if match.end() < reach or start + reach >= len(text):
            return start + int(match.end())
        reach *= 8
    return start + 1


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the stretch without white space at its ends, splitting no grapheme cluster.

    A stretch that begins with a line keeps that line's indentation.
    """
    end = start + len(text[start:end].rstrip())
    at_line_start = start == 0 or text[start - 1] == "\n"
    pattern = r"(?:[^\S\n]*\n)*+" if at_line_start else r"\s*+"
    match = _compiled(pattern).match(text, start, end)
    first = match.end() if match else start
    if start < first < end and _compiled(r"\X").fullmatch(text[first - 1 : first + 1]):
        first -= 1  # a mark that sits on the blank before it
    return first, end


def cut_stretch(
    text: str,
    start: int,
    end: int,
    tokens: TokenMap,
    *,
    kind: CutKind,
    budgets: tuple[int, int],
    max_characters: int,
    min_tokens: int = 0,
) -> list[tuple[int, int]]:
    """Cut ``text[start:end]`` into trimmed pieces, in time linear in its length.

    A grapheme cluster stays whole even where it is over the budget.

    Parameters
    ----------
    text, start, end
        The stretch.
    tokens
        Positions of the text's tokens.
    kind
        Which places are good to cut at.
    budgets
        Most tokens of the first piece, and of the others.
    max_characters
        Most characters of a piece.
    min_tokens
        The last piece should not have fewer; the one before it is cut earlier.
    """
    pieces: list[tuple[int, int]] = []
    budget = max(1, budgets[0])
    while start < end:
        left = tokens.count(start, end)
        whole = _cluster_end(text, start)
        if whole >= end or (left <= budget and end - start <= max_characters):
            pieces.append(trim(text, start, end))
            break
        wanted = left - min_tokens if budget < left < budget + min_tokens else budget
        limit = min(tokens.reach(start, max(1, wanted)), start + max_characters, end - 1)
        cut = whole if limit <= whole else best_cut(text, start, limit, kind)
        pieces.append(trim(text, start, cut))
        start = _skip_blanks(text, cut, end)
        budget = max(1, budgets[1])
    return [piece for piece in pieces if piece[0] < piece[1]]


def _skip_blanks(text: str, start: int, end: int) -> int:
    return trim(text, start, end)[0] if text[start:end].strip() else end
