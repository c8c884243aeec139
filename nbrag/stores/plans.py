"""Reading a search plan: which lists are asked for, and how the answers are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.vectors import checked_query
from nbrag.types import QueryVariant, RankedItem, RankedList, SearchLeg, SearchPlan

__all__ = ["LegRequest", "leg_requests", "ranked_list"]


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


def ranked_list(
    request: LegRequest,
    number: int,
    ids: Sequence[str | None],
    scores: NDArray[np.float32],
    explanation: str,
) -> RankedList:
    """Return what a leg found for its ``number``-th variant; rows that are gone are left out."""
    items = tuple(
        RankedItem(chunk_id, score)
        for chunk_id, score in zip(ids, scores.tolist(), strict=True)
        if chunk_id is not None
    )
    weight = request.variants[number].weight
    return RankedList(request.leg, request.places[number], weight, items, explanation)
