"""The legs' answers from the in-memory indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.exact import ExactSnapshot
from nbrag.stores.plans import LegAnswer, LegRequest

if TYPE_CHECKING:
    from nbrag.stores._keyword_query import KeywordQuery

__all__ = ["exact_answers", "keyword_answers"]

Rows = NDArray[np.int64]


def exact_answers(
    request: LegRequest,
    index: ExactSnapshot,
    vectors: NDArray[np.float32],
    k: int,
    allowed: Rows | None,
) -> list[LegAnswer]:
    """Return the nearest rows of each variant.

    Parameters
    ----------
    request, vectors
        What is looked for; float32 of shape (variants, dimension).
    index
        The matrix, with all rows of the collection.
    k, allowed
        How many rows at most, and which may be found; None for all.
    """
    count = len(index) if allowed is None else len(allowed)
    return [
        LegAnswer(
            request,
            number,
            rows,
            scores,
            partial(index.scores, vectors[number]),
            f"exact over {count:,} rows",
        )
        for number, (rows, scores) in enumerate(index.search(vectors, k, allowed))
    ]


def keyword_answers(
    request: LegRequest,
    queries: Sequence[KeywordQuery],
    size: int,
    k: int,
    allowed: Rows | None,
) -> list[LegAnswer]:
    """Return the best rows of each variant.

    Parameters
    ----------
    request, queries
        What is looked for; one query per variant.
    size
        How many rows the index has.
    k, allowed
        As for :func:`exact_answers`.
    """
    count = size if allowed is None else len(allowed)
    return [
        LegAnswer(
            request,
            number,
            *query.best(k, allowed),
            query.scores,
            f"BM25 over {count:,} rows",
        )
        for number, query in enumerate(queries)
    ]
