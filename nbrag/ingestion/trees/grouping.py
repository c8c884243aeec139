"""Cuts a sequence into groups within a token limit, so that an edit moves few borders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["GroupItem", "consecutive_groups"]

#: The part of a sequence's tokens that stays on either side of a cut, where that is possible.
_MARGIN = 0.25


@dataclass(frozen=True, slots=True)
class GroupItem:
    """One thing in a sequence.

    Attributes
    ----------
    id
        Decides between places that are equally good to cut at.
    tokens
        How much of the limit it takes.
    path
        Where it belongs, outermost first: headings, folders. Items of one path stay together if
        they can.
    """

    id: str
    tokens: int
    path: tuple[str, ...] = ()


def consecutive_groups(items: Sequence[GroupItem], limit: int) -> list[list[int]]:
    """Return the places of consecutive items in groups within the limit.

    What is over the limit is cut in two, each part likewise: where the outermost heading or
    folder changes, and among such places before the item with the lowest id, which is as good as
    drawn by lot and does not change when others do. At least a quarter of the tokens stays on
    either side, unless single items are too large for that. So a changed item changes its own
    group, and rarely another.

    Parameters
    ----------
    items
        In order.
    limit
        Most tokens of a group; an item over it is a group by itself.
    """
    ends = list(itertools.accumulate((item.tokens for item in items), initial=0))
    groups: list[list[int]] = []
    open_parts = [(0, len(items))]
    while open_parts:
        first, end = open_parts.pop()
        if end - first <= 1 or ends[end] - ends[first] <= limit:
            if end > first:
                groups.append(list(range(first, end)))
            continue
        cut = _cut(items, ends, first, end)
        open_parts += [(cut, end), (first, cut)]
    return groups


def _cut(items: Sequence[GroupItem], ends: Sequence[int], first: int, end: int) -> int:
    """Return the place of the item before which a part is cut."""
    total = ends[end] - ends[first]
    places = range(first + 1, end)
    inner = [
        place
        for place in places
        if _MARGIN * total <= ends[place] - ends[first] <= (1 - _MARGIN) * total
    ]
    if not inner:
        middle = ends[first] + total / 2
        return min(places, key=lambda place: (abs(ends[place] - middle), place))
    return min(inner, key=lambda place: (_shared(items, place), items[place].id))


def _shared(items: Sequence[GroupItem], place: int) -> int:
    """Return how many outer parts of its path an item shares with the one before it."""
    pairs = zip(items[place - 1].path, items[place].path, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
