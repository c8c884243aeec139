"""The legs' answers from the in-memory indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.exact import ExactSnapshot
from nbrag.stores.plans import LegAnswer, LegRequest
from nbrag.stores.questions import Scope, led_answers

if TYPE_CHECKING:
    from nbrag.stores._keyword_query import KeywordQuery

__all__ = ["exact_answers", "keyword_answers"]


def exact_answers(
    request: LegRequest,
    index: ExactSnapshot,
    vectors: NDArray[np.float32],
    k: int,
    scope: Scope,
) -> list[LegAnswer]:
    """Return the nearest rows of each variant.

    Parameters
    ----------
    request, vectors
        What is looked for; float32 of shape (variants, dimension).
    index
        The matrix, with all rows of the collection.
    k, scope
        How many rows at most, and which may be found.
    """
    count = len(index) if scope.rows is None else len(scope.rows)

    def search(depth: int) -> list[LegAnswer]:
        """Return so many rows of each variant."""
        return [
            LegAnswer(
                request,
                number,
                rows,
                scores,
                partial(index.scores, vectors[number]),
                f"exact over {count:,} rows",
            )
            for number, (rows, scores) in enumerate(index.search(vectors, depth, scope.rows))
        ]

    return led_answers(search, k, scope.leads)


def keyword_answers(
    request: LegRequest,
    queries: Sequence[KeywordQuery],
    size: int,
    k: int,
    scope: Scope,
) -> list[LegAnswer]:
    """Return the best rows of each variant.

    Parameters
    ----------
    request, queries
        What is looked for; one query per variant.
    size
        How many rows the index has.
    k, scope
        As for :func:`exact_answers`.
    """
    count = size if scope.rows is None else len(scope.rows)

    def search(depth: int) -> list[LegAnswer]:
        """Return so many rows of each variant."""
        return [
            LegAnswer(
                request,
                number,
                *query.best(depth, scope.rows),
                query.scores,
                f"BM25 over {count:,} rows",
            )
            for number, query in enumerate(queries)
        ]

    return led_answers(search, k, scope.leads)
