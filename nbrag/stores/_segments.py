"""One immutable piece of an inverted index: postings by term, lengths by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Segment", "merge_segments"]

_Integers = NDArray[np.int32]
_MOST_COUNTED = np.iinfo(np.uint16).max
#: Row numbers per document up to which a mask is made by flags.
_MOST_SPREAD = 8


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Postings of n rows in compressed column form.

    Attributes
    ----------
    rows
        int64 (n,), increasing: the row number of each document.
    lengths
        int32 (n,): terms of each document.
    alive
        bool (n,), or None while all are.
    terms
        int32 (t,), increasing: the terms that occur.
    offsets
        int64 (t + 1,): where each term's postings begin.
    documents, counts
        int32 and uint16 (p,): document numbers, increasing within a term, and how often the
        term occurs there.
    alive_count
        How many documents live.
    derived
        bool (n,): documents that are found like the others but don't count in the statistics;
        None while all do.
    counted, counted_length
        How many living documents count, and their terms in all.
    """

    rows: NDArray[np.int64]
    lengths: _Integers
    alive: NDArray[np.bool_] | None
    terms: _Integers
    offsets: NDArray[np.int64]
    documents: _Integers
    counts: NDArray[np.uint16]
    alive_count: int
    derived: NDArray[np.bool_] | None
    counted: int
    counted_length: int

    @classmethod
    def empty(cls) -> Self:
        """Return a segment of nothing."""
        nothing = np.empty(0, np.int32)
        return cls.build(nothing.astype(np.int64), nothing, nothing)

    @classmethod
    def build(
        cls,
        rows: NDArray[np.int64],
        terms: _Integers,
        lengths: _Integers,
        derived: NDArray[np.bool_] | None = None,
    ) -> Self:
        """Return the segment of documents given as runs of term numbers.

        Parameters
        ----------
        rows
            Row numbers, shape (n,).
        terms
            All documents' term numbers, one document after the other.
        lengths
            How many terms each document has.
        derived
            Which documents don't count in the statistics, shape (n,); None when all do.
        """
        document_of = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
        if np.any(np.diff(rows) < 0):
            order = np.argsort(rows, kind="stable")
            place = np.empty(len(rows), np.int32)
            place[order] = np.arange(len(rows), dtype=np.int32)
            moved = np.argsort(place[document_of], kind="stable")
            terms, document_of = terms[moved], place[document_of[moved]]
            rows, lengths = rows[order], lengths[order]
            derived = None if derived is None else derived[order]
        order = _order_of(terms)
        terms, document_of = terms[order], document_of[order]
        new = np.ones(len(terms), np.bool_)
        new[1:] = (terms[1:] != terms[:-1]) | (document_of[1:] != document_of[:-1])
        first = np.flatnonzero(new)
        counts = np.diff(first, append=len(terms))
        return cls._of(
            rows,
            lengths,
            terms[first],
            document_of[first],
            np.minimum(counts, _MOST_COUNTED).astype(np.uint16),
            derived=derived,
        )

    @classmethod
    def _of(
        cls,
        rows: NDArray[np.int64],
        lengths: _Integers,
        term_of: _Integers,
        documents: _Integers,
        counts: NDArray[np.uint16],
        *,
        derived: NDArray[np.bool_] | None,
    ) -> Self:
        """Return a segment from postings sorted by term, then document."""
        starts = np.flatnonzero(np.diff(term_of, prepend=-1))
        offsets = np.append(starts, len(term_of)).astype(np.int64)
        return cls(
            rows,
            lengths,
            None,
            term_of[starts],
            offsets,
            documents,
            counts,
            len(rows),
            derived if derived is not None and derived.any() else None,
            *_counted(lengths, None, derived),
        )

    def __len__(self) -> int:
        """Return how many documents there are, dead ones included."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    def postings(self, term: int) -> tuple[_Integers, NDArray[np.float32]]:
        """Return the documents with a term, and how often it occurs in each."""
        position = int(np.searchsorted(self.terms, term))
        if position == len(self.terms) or self.terms[position] != term:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        part = slice(int(self.offsets[position]), int(self.offsets[position + 1]))
        return self.documents[part], self.counts[part].astype(np.float32)

    def count_of(self, documents: _Integers) -> int:
        """Return how many of the documents live and count in the statistics."""
        if self.alive is None and self.derived is None:
            return len(documents)
        kept = np.ones(len(documents), np.bool_)
        if self.alive is not None:
            kept &= self.alive[documents]
        if self.derived is not None:
            kept &= ~self.derived[documents]
        return int(np.count_nonzero(kept))

    def mask(self, wanted: NDArray[np.int64] | None) -> NDArray[np.bool_] | None:
        """Return which documents live and are among the wanted rows; None for all."""
        if wanted is None or not len(self.rows):
            return self.alive
        low, high = int(self.rows[0]), int(self.rows[-1])
        if high - low < _MOST_SPREAD * len(self.rows):
            # Row numbers lie close together: a flag for each is faster than a search for each.
            flags = np.zeros(high - low + 1, np.bool_)
            if len(wanted) and (wanted.min() < low or wanted.max() > high):
                wanted = wanted[(wanted >= low) & (wanted <= high)]
            flags[wanted - low] = True
            chosen = flags if len(flags) == len(self.rows) else flags[self.rows - low]
        else:
            chosen = np.zeros(len(self.rows), np.bool_)
            places = np.searchsorted(self.rows, wanted)
            places[places == len(self.rows)] = 0
            chosen[places[self.rows[places] == wanted]] = True
        return chosen if self.alive is None else chosen & self.alive

    def without(self, gone: NDArray[np.int64]) -> Segment:
        """Return the segment with some rows dead; those are dropped once they are half of all."""
        hit = self.mask(gone)
        if hit is None or not hit.any():
            return self
        alive = np.ones(len(self.rows), np.bool_) if self.alive is None else self.alive
        alive = alive & ~hit
        counted, length = _counted(self.lengths, alive, self.derived)
        less = replace(
            self,
            alive=alive,
            alive_count=int(alive.sum()),
            counted=counted,
            counted_length=length,
        )
        return less if 2 * less.alive_count > len(self) else less.compacted()

    def compacted(self) -> Segment:
        """Return the segment without its dead documents."""
        return self if self.alive is None else merge_segments(self, Segment.empty())

    def renumbered(self) -> Self:
        """Return the segment with its terms numbered from 0, in their order."""
        return replace(self, terms=np.arange(len(self.terms), dtype=np.int32))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a segment whose documents all live."""
        none = np.zeros(len(self.rows), np.bool_)
        return {
            "rows": self.rows,
            "lengths": self.lengths,
            "derived": none if self.derived is None else self.derived,
            "terms": self.terms,
            "offsets": self.offsets,
            "documents": self.documents,
            "counts": self.counts,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], *, terms: int) -> Self:
        """Read what :meth:`arrays` gives, for a vocabulary of so many terms.

        Raises
        ------
        ValueError
            When the arrays do not fit together.
        """
        rows, lengths = arrays["rows"], arrays["lengths"]
        numbers, offsets = arrays["terms"], arrays["offsets"]
        documents, counts = arrays["documents"], arrays["counts"]
        derived = arrays["derived"]
        fits = (
            len(rows) == len(lengths) == len(derived)
            and bool(np.all(np.diff(rows) > 0))
            and bool(np.all(np.diff(numbers, prepend=-1) > 0))
            and (not len(numbers) or numbers[-1] < terms)
            and len(offsets) == len(numbers) + 1
            and bool(np.all(np.diff(offsets, prepend=0) >= 0))
            and len(documents) == len(counts) == offsets[-1]
            and (not len(documents) or 0 <= documents.min() <= documents.max() < len(rows))
        )
        if not fits:
            raise ValueError("the arrays of the index do not fit together")
        return cls(
            rows,
            lengths,
            None,
            numbers,
            offsets,
            documents,
            counts,
            len(rows),
            derived if derived.any() else None,
            *_counted(lengths, None, derived),
        )


def _counted(
    lengths: _Integers, alive: NDArray[np.bool_] | None, derived: NDArray[np.bool_] | None
) -> tuple[int, int]:
    """Return how many living documents count in the statistics, and their terms in all."""
    kept = np.ones(len(lengths), np.bool_) if alive is None else alive
    if derived is not None:
        kept = kept & ~derived
    return int(kept.sum()), int(lengths[kept].sum(dtype=np.int64))


def _order_of(terms: _Integers) -> NDArray[np.int64]:
    """Return what sorts term numbers, equal ones left as they stand.

    NumPy sorts 16 bits by radix, three times as fast as whole numbers: the low half first.
    """
    order = np.argsort((terms & 0xFFFF).astype(np.uint16), kind="stable")
    high = (terms >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def _living(segment: Segment) -> tuple[_Integers, _Integers, NDArray[np.uint16]]:
    """Return term, document and count of each living posting."""
    term_of = np.repeat(segment.terms, np.diff(segment.offsets))
    if segment.alive is None:
        return term_of, segment.documents, segment.counts
    kept = segment.alive[segment.documents]
    return term_of[kept], segment.documents[kept], segment.counts[kept]


def merge_segments(first: Segment, second: Segment) -> Segment:
    """Return one segment with the living documents of both."""
    parts = [first, second]
    kept = [s.alive if s.alive is not None else np.ones(len(s), np.bool_) for s in parts]
    rows = np.concatenate([s.rows[k] for s, k in zip(parts, kept, strict=True)])
    lengths = np.concatenate([s.lengths[k] for s, k in zip(parts, kept, strict=True)])
    flags = [s.derived if s.derived is not None else np.zeros(len(s), np.bool_) for s in parts]
    derived = np.concatenate([f[k] for f, k in zip(flags, kept, strict=True)])
    order = np.argsort(rows, kind="stable")
    place = np.empty(len(rows), np.int32)
    place[order] = np.arange(len(rows), dtype=np.int32)
    begin, terms, documents, counts = 0, [], [], []
    for segment, alive in zip(parts, kept, strict=True):
        term_of, old, count = _living(segment)
        renumbered = np.cumsum(alive) - 1 + begin
        terms.append(term_of)
        documents.append(place[renumbered[old]] if len(old) else old)
        counts.append(count)
        begin += int(alive.sum())
    term_of, document_of = np.concatenate(terms), np.concatenate(documents)
    sequence = np.argsort(term_of.astype(np.int64) * max(len(rows), 1) + document_of, kind="stable")
    return Segment._of(  # noqa: SLF001 - the same module
        rows[order],
        lengths[order],
        term_of[sequence],
        document_of[sequence],
        np.concatenate(counts)[sequence],
        derived=derived[order],
    )
