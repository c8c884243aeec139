"""Exact nearest-neighbour search: blocks of one float32 matrix, and a product with the query.

Readers work on an immutable snapshot and need no lock; writers replace what they change. Scores
are cosine similarities. The product is only used to find candidates: those are scored again in
float64, row by row, so that equal vectors get equal scores wherever they stand, and ties go to
the lower row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbrag.stores._top import top_bound

__all__ = ["ExactIndex", "ExactSnapshot", "top_rows", "unit_vectors"]

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
Found = tuple[Rows, Vectors]

#: Rows of a block: small ones while the index is small, so that little is left unused.
_SMALLEST, _LARGEST = 256, 16_384
#: So many small full blocks in a row are joined: each block costs a product of its own.
_SMALL_BLOCKS = 6
#: A float32 product may be off by this much; all rows within it of the k-th are scored again.
_SLACK = 4e-6
#: Below this share of allowed rows, copying them out is cheaper than one product over all.
_SPARSE = 0.12
#: Queries multiplied at once, which bounds the memory of the scores.
_QUERIES = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Rows ``[0, count)`` of the arrays are in use; ``alive`` is None while none is removed.

    ``gapless`` says that each row's number is one more than the row's before it.
    """

    rows: Rows
    matrix: Vectors
    count: int
    alive: NDArray[np.bool_] | None = None
    gapless: bool = True

    @property
    def living(self) -> int:
        return self.count if self.alive is None else int(self.alive[: self.count].sum())

    def places(self, wanted: Rows) -> NDArray[np.intp]:
        """Return where the wanted rows stand in the block; ``wanted`` is sorted."""
        rows = self.rows[: self.count]
        first, last = int(rows[0]), int(rows[-1])
        if self.gapless:
            inside = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, last, "right")]
            return inside - first
        return np.flatnonzero(np.isin(rows, wanted))


@dataclass(frozen=True, slots=True, eq=False)
class ExactSnapshot:
    """The index as it was at one moment; stays valid and unchanged."""

    dimension: int
    blocks: tuple[_Block, ...] = ()
    size: int = 0

    def __len__(self) -> int:
        return self.size

    def search(self, vectors: Vectors, k: int, allowed: Rows | None = None) -> list[Found]:
        """Search as :meth:`ExactIndex.search` does, in this snapshot."""
        queries = unit_vectors(np.atleast_2d(vectors))
        if allowed is not None:
            allowed = _increasing(allowed)
        if k <= 0 or not self.size or (allowed is not None and not len(allowed)):
            return [_nothing() for _ in queries]
        if allowed is not None and len(allowed) < _SPARSE * self.size:
            rows, matrix = self.take(allowed)
            return [top_rows(rows, matrix, query, k) for query in queries]
        open_places = self._open_places(allowed)
        found: list[Found] = []
        for start in range(0, len(queries), _QUERIES):
            found += self._search(queries[start : start + _QUERIES], k, open_places)
        return found

    def scores(self, vector: Vectors, wanted: Rows) -> Vectors:
        """Return the cosine similarities of these rows, float32 of shape (n,).

        The same numbers as :meth:`search` gives.

        Parameters
        ----------
        vector
            float32 of shape (dimension,), any length but zero.
        wanted
            int64 of shape (n,), each once, all of them in the index.
        """
        rows, matrix = self.take(np.sort(wanted))
        query = unit_vectors(np.atleast_2d(vector))[0]
        order = np.argsort(rows)
        by_row = _rescored(matrix, query)[order]
        return by_row[np.searchsorted(rows[order], wanted)]

    def take(self, wanted: Rows) -> tuple[Rows, Vectors]:
        """Return the given rows that are in the index, in index order, with their vectors."""
        rows: list[Rows] = []
        matrices: list[Vectors] = []
        for block in self.blocks:
            places = block.places(wanted)
            if block.alive is not None:
                places = places[block.alive[places]]
            if len(places):
                rows.append(block.rows[places])
                matrices.append(block.matrix[places])
        if not rows:
            return np.empty(0, np.int64), np.empty((0, self.dimension), np.float32)
        return np.concatenate(rows), np.concatenate(matrices)

    def _open_places(self, allowed: Rows | None) -> NDArray[np.intp] | None:
        """Return which places may be found, in block order; None when all may."""
        if allowed is None and all(block.alive is None for block in self.blocks):
            return None
        start, parts = 0, []
        for block in self.blocks:
            places = np.arange(block.count) if allowed is None else block.places(allowed)
            if block.alive is not None:
                places = places[block.alive[places]]
            parts.append(places + start)
            start += block.count
        return np.concatenate(parts)

    def _search(
        self, queries: Vectors, k: int, open_places: NDArray[np.intp] | None
    ) -> list[Found]:
        total = sum(block.count for block in self.blocks)
        scores = np.empty((len(queries), total), np.float32)
        start = 0
        for block in self.blocks:
            stop = start + block.count
            for query, line in zip(queries, scores, strict=True):
                _products(block.matrix[: block.count], query, line[start:stop])
            start = stop
        found = []
        for query, line in zip(queries, scores, strict=True):
            if open_places is None:
                places = _near_top(line, k)
            else:
                places = open_places[_near_top(line[open_places], k)]
            rows, matrix = self._at(places)
            found.append(_ordered(rows, matrix, query, k))
        return found

    def _at(self, places: NDArray[np.intp]) -> tuple[Rows, Vectors]:
        """Return rows and vectors by place in block order."""
        starts = np.cumsum([0, *(block.count for block in self.blocks)])
        owner = np.searchsorted(starts, places, side="right") - 1
        rows = np.empty(len(places), np.int64)
        matrix = np.empty((len(places), self.dimension), np.float32)
        for number in np.unique(owner):
            here = owner == number
            inside = places[here] - starts[number]
            rows[here] = self.blocks[number].rows[inside]
            matrix[here] = self.blocks[number].matrix[inside]
        return rows, matrix


class ExactIndex:
    """All vectors of a collection in memory, searched exactly.

    Takes at most 1.3 times ``rows x dimension x 4`` bytes once it holds some thousands of rows.
    One thread may write while any number of threads search.

    Parameters
    ----------
    dimension
        Length of a vector.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._snapshot = ExactSnapshot(dimension)

    def __len__(self) -> int:
        return len(self._snapshot)

    @property
    def nbytes(self) -> int:
        """Bytes that the index holds, unused ones included."""
        return sum(
            block.rows.nbytes
            + block.matrix.nbytes
            + (0 if block.alive is None else block.alive.nbytes)
            for block in self._snapshot.blocks
        )

    def snapshot(self) -> ExactSnapshot:
        """Return the index as it is now; later writes do not change it."""
        return self._snapshot

    def add(self, rows: Rows, vectors: Vectors) -> None:
        """Add vectors; they are kept at length 1.

        Parameters
        ----------
        rows
            int64 of shape (n,), none of them in the index yet.
        vectors
            float32 of shape (n, dimension), none of them zero.
        """
        if vectors.shape != (len(rows), self.dimension):
            raise ValueError(f"vectors of shape {vectors.shape} for {len(rows)} rows")
        blocks = list(self._snapshot.blocks)
        start = 0
        while start < len(rows):
            last = blocks[-1] if blocks else None
            if last is None or last.count == len(last.rows):
                _merge_small(blocks)
                incoming = len(rows) - start
                capacity = min(_LARGEST, max(_SMALLEST, (len(self) + start) // 8, incoming))
                last = _Block(
                    np.empty(capacity, np.int64),
                    np.empty((capacity, self.dimension), np.float32),
                    0,
                )
                blocks.append(last)
            stop = min(len(rows), start + len(last.rows) - last.count)
            blocks[-1] = _filled(last, rows[start:stop], vectors[start:stop])
            start = stop
        self._snapshot = ExactSnapshot(self.dimension, tuple(blocks), len(self) + len(rows))

    def remove(self, rows: Rows) -> None:
        """Remove rows; those that are not in the index are passed over."""
        if not len(rows):
            return
        gone = _increasing(rows)
        changed = (_without(block, gone) for block in self._snapshot.blocks)
        blocks = tuple(block for block in changed if block.living)
        size = sum(block.living for block in blocks)
        self._snapshot = ExactSnapshot(self.dimension, blocks, size)

    def search(self, vectors: Vectors, k: int, allowed: Rows | None = None) -> list[Found]:
        """Return the nearest rows of each query.

        Parameters
        ----------
        vectors
            float32 of shape (q, dimension) or (dimension,), any length but zero.
        k
            How many rows at most.
        allowed
            int64 rows that may be found; None means all.

        Returns
        -------
        list of (rows, scores)
            Per query int64 rows and float32 cosine similarities, best first, ties by lower row.
        """
        return self._snapshot.search(vectors, k, allowed)


def unit_vectors(vectors: Vectors) -> Vectors:
    """Return float32 vectors of length 1, of the same shape (n, dimension)."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    unit: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return unit


def top_rows(rows: Rows, matrix: Vectors, query: Vectors, k: int) -> Found:
    """Return the best ``k`` of the rows for one query, ties by lower row.

    Parameters
    ----------
    rows, matrix
        int64 of shape (n,) and float32 of shape (n, dimension), each of length 1.
    query
        float32 of shape (dimension,), of length 1.
    k
        How many rows at most.
    """
    if not len(rows):
        return _nothing()
    places = _near_top(_products(matrix, query, np.empty(len(rows), np.float32)), k)
    return _ordered(rows[places], matrix[places], query, k)


def _nothing() -> Found:
    return np.empty(0, np.int64), np.empty(0, np.float32)


def _products(matrix: Vectors, query: Vectors, out: Vectors) -> Vectors:
    """Write the rows' products with the query into ``out``, in this thread alone, and return it.

    One dot product per row: a matrix product would be shared among a linear-algebra library's
    threads, which wait for each other by spinning. That is slower even on an idle machine, and
    many times slower as soon as something else uses a core.
    """
    np.matmul(matrix[:, None, :], query[:, None], out=out[:, None, None])
    return out


def _near_top(scores: Vectors, k: int) -> NDArray[np.intp]:
    """Return the places of all scores that may be among the best ``k``."""
    if k >= len(scores):
        return np.arange(len(scores))
    bound = top_bound(scores, k)
    places = np.flatnonzero(scores >= bound - np.float32(_SLACK))
    near = scores[places]
    threshold = np.partition(near, len(near) - k)[len(near) - k]
    kept: NDArray[np.intp] = places[near >= threshold - np.float32(_SLACK)]
    return kept


def _increasing(rows: Rows) -> Rows:
    """Return the rows in increasing order, each once."""
    return rows if (rows[1:] > rows[:-1]).all() else np.unique(rows)


def _rescored(matrix: Vectors, query: Vectors) -> Vectors:
    """Return products that don't depend on where in the matrix a vector stands."""
    exact = np.empty(len(matrix), np.float64)
    wide = query.astype(np.float64)
    for start in range(0, len(matrix), 4096):
        part = matrix[start : start + 4096]
        exact[start : start + 4096] = (part * wide).sum(axis=1)
    return exact.astype(np.float32)


def _ordered(rows: Rows, matrix: Vectors, query: Vectors, k: int) -> Found:
    scores = _rescored(matrix, query)
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _filled(block: _Block, rows: Rows, vectors: Vectors) -> _Block:
    """Write behind what snapshots see, and return the longer block."""
    stop = block.count + len(rows)
    block.rows[block.count : stop] = rows
    block.matrix[block.count : stop] = unit_vectors(vectors)
    joint = block.rows[max(0, block.count - 1) : stop]
    gapless = block.gapless and bool((np.diff(joint) == 1).all())
    alive = block.alive
    if alive is not None:
        alive = alive.copy()
        alive[block.count : stop] = True
    return _Block(block.rows, block.matrix, stop, alive, gapless)


def _merge_small(blocks: list[_Block]) -> None:
    """Join the small blocks at the end of the list into one, once there are several."""
    first = len(blocks)
    while first and blocks[first - 1].count < _LARGEST:
        first -= 1
    small = blocks[first:]
    if len(small) < _SMALL_BLOCKS:
        return
    keep = [
        slice(b.count) if b.alive is None else np.flatnonzero(b.alive[: b.count]) for b in small
    ]
    rows = np.concatenate([b.rows[kept] for b, kept in zip(small, keep, strict=True)])
    matrix = np.concatenate([b.matrix[kept] for b, kept in zip(small, keep, strict=True)])
    blocks[first:] = [_Block(rows, matrix, len(rows), None, bool((np.diff(rows) == 1).all()))]


def _without(block: _Block, gone: Rows) -> _Block:
    """Return the block with rows marked as removed, or copied without them when many are."""
    places = block.places(gone)
    if not len(places):
        return block
    alive = np.ones(len(block.rows), np.bool_) if block.alive is None else block.alive.copy()
    alive[places] = False
    kept = alive[: block.count]
    if kept.sum() > 0.85 * block.count:
        return _Block(block.rows, block.matrix, block.count, alive, block.gapless)
    rows = block.rows[: block.count][kept]
    gapless = bool((np.diff(rows) == 1).all())
    return _Block(rows, block.matrix[: block.count][kept], len(rows), None, gapless)
