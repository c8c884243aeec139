"""A question to the keyword index, ready to be answered from one state of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    _all: list[_Scores] = field(default_factory=list)

    def best(self, k: int, allowed: _Rows | None = None) -> tuple[_Rows, _Scores]:
        """Return the best rows, as :meth:`nbrag.stores.keyword.KeywordIndex.search`."""
        if k < 1 or not self.segments:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        wanted = None if allowed is None else np.asarray(allowed, np.int64)
        found = [
            _best_of_segment(segment, scores, k, segment.mask(wanted))
            for segment, scores in zip(self.segments, self._scores(), strict=True)
        ]
        if len(found) == 1:
            return found[0]
        rows, scores = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((rows, -scores))[:k]
        return rows[order], scores[order]

    def scores(self, rows: _Rows) -> _Scores:
        """Return the scores of these living rows, float32 of shape (n,); 0 without a common term.

        The same numbers as :meth:`best` gives.
        """
        found = np.zeros(len(rows), np.float32)
        for segment, scores in zip(self.segments, self._scores(), strict=True):
            places = np.minimum(np.searchsorted(segment.rows, rows), len(segment) - 1)
            here = segment.rows[places] == rows
            found[here] = scores[places[here]]
        return found

    def _scores(self) -> list[_Scores]:
        """Return the scores of each segment's documents, computed once."""
        if not self._all:
            self._all.extend(
                _segment_scores(segment, postings, self.factors, norms)
                for segment, postings, norms in zip(
                    self.segments, self.postings, self.norms, strict=True
                )
            )
        return self._all


def _segment_scores(
    segment: Segment,
    postings: Sequence[_Postings],
    factors: Sequence[float],
    norms: NDArray[np.float32],
) -> _Scores:
    scores = np.zeros(len(segment), np.float32)
    for (documents, counts), factor in zip(postings, factors, strict=True):
        weights = norms.take(documents)
        weights += counts
        np.divide(counts, weights, out=weights)
        weights *= np.float32(factor)
        scores[documents] += weights
    return scores


def _best_of_segment(
    segment: Segment, scores: _Scores, k: int, mask: NDArray[np.bool_] | None
) -> tuple[_Rows, _Scores]:
    """Return one segment's best rows, best first; those of the mask, where there is one."""
    if mask is not None:
        scores = scores * mask
    # A bound of 0 means fewer than k hits: then every score above 0 counts.
    bound = top_bound(scores, k) if k < len(scores) else np.float32(0)
    hits = np.flatnonzero(scores >= bound) if bound > 0 else np.flatnonzero(scores)
    values = scores[hits]
    if len(hits) > k:
        chosen = values >= np.partition(values, len(hits) - k)[len(hits) - k]
        hits, values = hits[chosen], values[chosen]
    order = np.lexsort((segment.rows[hits], -values))[:k]
    return segment.rows[hits[order]], values[order]
