"""Reading a search plan: which lists are asked for, and how the answers are written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.vectors import checked_query
from nbrag.types import QueryVariant, RankedItem, RankedList, SearchLeg, SearchPlan

__all__ = ["LegAnswer", "LegRequest", "leg_requests", "ranked_lists"]


@dataclass(frozen=True, slots=True, eq=False)
class LegRequest:
    """What one leg has to search for.

    Attributes
    ----------
    leg
        Which search.
    places
        Indices into the plan's variants.
    variants
        The variants themselves.
    """

    leg: SearchLeg
    places: tuple[int, ...]
    variants: tuple[QueryVariant, ...]

    @property
    def texts(self) -> list[str]:
        """The variants' words."""
        return [variant.text for variant in self.variants]

    def vectors(self, dimension: int) -> NDArray[np.float32]:
        """Return the variants' vectors, of shape (n, dimension).

        Raises
        ------
        QueryError
            When one has no vector, or one that can't be searched with.
        """
        return np.stack([checked_query(variant.vector, dimension) for variant in self.variants])


def leg_requests(plan: SearchPlan) -> list[LegRequest]:
    """Return one request per leg that has something to do; a weight of 0 takes a variant out."""
    requests = []
    legs: tuple[SearchLeg, ...] = ("vector", "keyword")
    for leg in legs:
        places = tuple(
            place
            for place, variant in enumerate(plan.variants)
            if leg in plan.legs
            and leg in variant.legs
            and variant.weight > 0
            # A variant that is only a vector has no words to look for.
            and (leg == "vector" or variant.text.strip())
        )
        if places:
            requests.append(LegRequest(leg, places, tuple(plan.variants[p] for p in places)))
    return requests


@dataclass(frozen=True, slots=True, eq=False)
class LegAnswer:
    """What a leg found for one variant.

    Attributes
    ----------
    request, number
        The request, and which of its variants this answers.
    rows, scores
        int64 and float32 of shape (n,), best first.
    score_of
        Returns the scores, float32, that rows found by others have here.
    explanation
        How it was searched.
    hits
        int64 of shape (n,): the rows that were hit, where they led to ``rows``; None when those
        were hit themselves.
    """

    request: LegRequest
    number: int
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    score_of: Callable[[NDArray[np.int64]], NDArray[np.float32]]
    explanation: str
    hits: NDArray[np.int64] | None = None


def ranked_lists(
    answers: Sequence[LegAnswer],
    ids_of: Callable[[NDArray[np.int64]], Sequence[str | None]],
) -> list[RankedList]:
    """Return the answers as lists of chunk ids, each with its scores of the others' rows.

    Parameters
    ----------
    answers
        One per leg and variant.
    ids_of
        Returns the chunk ids of rows; None for a row that is gone, which is left out.
    """
    found = np.unique(np.concatenate([answer.rows for answer in answers] or [np.empty(0, int)]))
    ids = dict(zip(found.tolist(), ids_of(found), strict=True))
    lists = []
    for answer in answers:
        request, place = answer.request, answer.number
        others = np.setdiff1d(found, answer.rows, assume_unique=True)
        scores = answer.score_of(others) if len(others) else np.empty(0, np.float32)
        lists.append(
            RankedList(
                request.leg,
                request.places[place],
                request.variants[place].weight,
                _items(ids, answer.rows, answer.scores, _ways(answer, ids_of)),
                answer.explanation,
                _items(ids, others, scores),
            )
        )
    return lists


def _ways(
    answer: LegAnswer, ids_of: Callable[[NDArray[np.int64]], Sequence[str | None]]
) -> Mapping[int, str | None]:
    """Return the ids of the rows that led to others, by the row that they led to."""
    if answer.hits is None:
        return {}
    led = answer.hits != answer.rows
    return dict(zip(answer.rows[led].tolist(), ids_of(answer.hits[led]), strict=True))


def _items(
    ids: Mapping[int, str | None],
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
    ways: Mapping[int, str | None] = MappingProxyType({}),
) -> tuple[RankedItem, ...]:
    return tuple(
        RankedItem(chunk_id, score, ways.get(row))
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
        if (chunk_id := ids[row]) is not None
    )
