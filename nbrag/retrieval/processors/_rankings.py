"""Orders of long lists from short ones, and rankings in a model's words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

from pydantic import BaseModel, Field

from nbrag.errors import ReplyInvalid
from nbrag.models.chat import parse_reply

__all__ = ["Ranking", "permutation", "ranking_in", "sliding_windows"]

_THOUGHT = r"(?:think|thinking|thought|reasoning)>"
#: What stands up to the end of the last thought, or after the beginning of one without an end.
_THOUGHTS = re.compile(rf"(?is)\A.*</{_THOUGHT}|<{_THOUGHT}.*\Z")
_ID = r"(?<!\d)\d{1,9}(?!\d)"
_NAMED = rf"(?:passage\s{{1,4}})?\[?{_ID}\]?"
#: Rankings in words: 2 > [1] > passage 3; "[2]", "[1]", "[3]"; [2, 1, 3].
_CHAINS = (
    re.compile(rf"{_NAMED}(?:\s*>\s*{_NAMED})+", re.IGNORECASE),
    re.compile(rf"\[{_ID}\](?:[\s,;\"'>]*\[{_ID}\])+"),
    re.compile(rf"\[\s*{_ID}(?:\s*,\s*{_ID})+\s*\]"),
)


class Ranking(BaseModel):
    """A model's ranking of numbered passages."""

    ranking: list[int] = Field(description="ids of all passages, best first, each once")


def sliding_windows(count: int, window: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches (start, end) of a list in which its items are compared.

    From the bottom up, each ``step`` higher than the one before; the last one begins at 0, so
    that the top of the list is compared too. There are ``1 + ceil((count - window) / step)`` of
    them, one for a list that is no longer than a window, none for less than two items.
    """
    if count < 2:
        return
    start = count - window
    while start > 0:
        yield start, start + window
        start -= step
    yield 0, min(window, count)


def permutation(ids: Iterable[int], count: int) -> list[int]:
    """Return positions from 0: those of ``ids`` (from 1), then all that ``ids`` forgot, in order.

    Repeated ids count once, and ids out of range not at all.
    """
    named = dict.fromkeys(number - 1 for number in ids if 1 <= number <= count)
    return [*named, *(place for place in range(count) if place not in named)]


def ranking_in(reply: str, count: int) -> list[int]:
    """Return the best ranking of passages 1 to ``count`` in a reply, empty when there is none.

    A reply counts that has the form of :class:`Ranking` with gaps or wrong ids, and so does a
    chain in words, such as ``[2] > [1] > [3]``. Of several the one that ranks most passages
    counts, and of these the last. Numbers that stand in prose by themselves are no ranking.
    """
    words = _THOUGHTS.sub("", reply)
    found: list[list[int]] = []
    with contextlib.suppress(ReplyInvalid):
        found.append(parse_reply(words, Ranking).ranking)
    for chain in _CHAINS:
        found += [
            [int(number) for number in re.findall(_ID, match.group())]
            for match in chain.finditer(words)
        ]
    valid = [list(dict.fromkeys(i for i in ids if 1 <= i <= count)) for ids in found]
    return max(reversed(valid), key=len, default=[])
