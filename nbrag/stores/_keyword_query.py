"""A question to the keyword index, ready to be answered from one state of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbrag.stores._segments import Segment
from nbrag.stores._top import top_bound

__all__ = ["KeywordQuery"]

_Rows = NDArray[np.int64]
_Scores = NDArray[np.float32]
#: Document numbers and counts of one term in one segment.
_Postings = tuple[NDArray[np.int32], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class KeywordQuery:
    """A question's terms with what the index knows of them.

    Attributes
    ----------
    segments
        The index's segments; none when the question has no term that occurs.
    postings
        Per segment, each term's postings.
    factors
        Per term: its count in the question, its inverse document frequency and ``k1 + 1``,
        multiplied.
    norms
        Per segment, float32 of shape (documents,): ``k1 * (1 - b + b * length / average)``.
    """

    segments: tuple[Segment, ...]
    postings: tuple[tuple[_Postings, ...], ...]
    factors: tuple[float, ...]
    norms: tuple[NDArray[np.float32], ...]

    def best(self, k: int, allowed: _Rows | None = None) -> tuple[_Rows, _Scores]:
        """Return the best rows, as :meth:`nbrag.stores.keyword.KeywordIndex.search`."""
        if k < 1 or not self.segments:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        wanted = None if allowed is None else np.asarray(allowed, np.int64)
        found = [
            _search_segment(
                segment, postings=postings, factors=self.factors, norms=norms, k=k, wanted=wanted
            )
            for segment, postings, norms in zip(
                self.segments, self.postings, self.norms, strict=True
            )
        ]
        if len(found) == 1:
            return found[0]
        rows, scores = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((rows, -scores))[:k]
        return rows[order], scores[order]

    def scores(self, rows: _Rows) -> _Scores:
        """Return the scores of these rows, float32 of shape (n,); 0 without a common term.

        The same numbers as :meth:`best` gives, without a look at any other row.
        """
        scores = np.zeros(len(rows), np.float32)
        for segment, postings, norms in zip(self.segments, self.postings, self.norms, strict=True):
            documents, here = _places(segment.rows, rows)
            for (listed, counts), factor in zip(postings, self.factors, strict=True):
                places, there = _places(listed, documents)
                there &= here
                count = counts[places[there]]
                scores[there] += factor * (count / (count + norms[documents[there]]))
        return scores


def _places(
    increasing: NDArray[np.integer], wanted: NDArray[np.integer]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where the wanted values stand in increasing ones, and which of them do."""
    if not len(increasing):
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(increasing, wanted), len(increasing) - 1)
    return places, increasing[places] == wanted


def _search_segment(
    segment: Segment,
    *,
    postings: Sequence[_Postings],
    factors: Sequence[float],
    norms: NDArray[np.float32],
    k: int,
    wanted: NDArray[np.int64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return one segment's best rows, best first."""
    scores = np.zeros(len(segment), np.float32)
    for (documents, counts), factor in zip(postings, factors, strict=True):
        scores[documents] += factor * (counts / (counts + norms[documents]))
    mask = segment.mask(wanted)
    if mask is not None:
        scores *= mask
    # A bound of 0 means fewer than k hits: then every score above 0 counts.
    bound = top_bound(scores, k) if k < len(scores) else np.float32(0)
    hits = np.flatnonzero(scores >= bound) if bound > 0 else np.flatnonzero(scores)
    values = scores[hits]
    if len(hits) > k:
        chosen = values >= np.partition(values, len(hits) - k)[len(hits) - k]
        hits, values = hits[chosen], values[chosen]
    order = np.lexsort((segment.rows[hits], -values))[:k]
    return segment.rows[hits[order]], values[order]
