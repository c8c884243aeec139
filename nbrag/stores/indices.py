"""The in-memory indices of one collection, kept in step with its rows.

They are derived and disposable: the rows are the truth. Each state of the indices carries the
stamp of the rows' state that it shows; whoever searches compares the two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.exact import ExactIndex, ExactSnapshot
from nbrag.stores.questions import QuestionRows, Scope
from nbrag.types import ChunkKind

if TYPE_CHECKING:
    from nbrag.stores._keyword_query import KeywordQuery
    from nbrag.stores.keyword import KeywordIndex

__all__ = ["Change", "CollectionIndices", "IndexView", "Moved", "RowBatch", "searched_kinds"]

Rows = NDArray[np.int64]
_KIND_CODES: dict[str, int] = {kind.value: code for code, kind in enumerate(ChunkKind)}
_OTHER_KIND = 255
_QUESTION = ChunkKind.HYPOTHETICAL_QUERY
#: So many found rows are remembered by their id.
_FOUND = 10_000


class Moved(Exception):
    """The indices went on to a newer state than the search began with."""


@dataclass(frozen=True, slots=True, eq=False)
class RowBatch:
    """Rows that come in, in increasing order.

    Attributes
    ----------
    rows
        int64 of shape (n,).
    ids, kinds
        Chunk ids and kinds, n of each.
    texts
        What the keyword leg indexes; None when its index has the rows already.
    vectors
        float32 of shape (n, dimension); None when no matrix is kept.
    parents
        For each row the id of the chunk that it was derived from, or None; None when no row
        has one.
    """

    rows: Rows
    ids: Sequence[str]
    kinds: Sequence[str]
    texts: Sequence[str] | None
    vectors: NDArray[np.float32] | None
    parents: Sequence[str | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What a committed write did to the rows.

    Attributes
    ----------
    before, after
        Stamps of the two states.
    removed
        int64 rows that went.
    added
        Rows that came; None when none did.
    documents
        How many documents were deleted.
    """

    before: str
    after: str
    removed: Rows
    added: RowBatch | None = None
    documents: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class IndexView:
    """One state of the indices; stays valid and unchanged while writes go on.

    Attributes
    ----------
    stamp
        The state of the rows that it shows.
    rows, ids, kinds
        int64, object and uint8 arrays of shape (n,), rows increasing.
    exact
        The matrix's state; None when none is kept.
    complete
        Whether the matrix has all rows.
    questions
        The hypothetical questions among the rows, and where they lead.
    """

    stamp: str
    rows: Rows
    ids: NDArray[np.object_]
    kinds: NDArray[np.uint8]
    exact: ExactSnapshot | None
    complete: bool = True
    questions: QuestionRows = field(default_factory=QuestionRows.none)

    def __len__(self) -> int:
        return len(self.rows)

    def rows_of(self, kinds: frozenset[ChunkKind]) -> Rows | None:
        """Return the rows of these kinds; None when that is all of them."""
        codes = sorted(_KIND_CODES[str(kind)] for kind in kinds)
        chosen = self.kinds == codes[0] if len(codes) == 1 else np.isin(self.kinds, codes)
        return None if chosen.all() else self.rows[chosen]

    def scope(self, kinds: frozenset[ChunkKind], passing: Rows | None = None) -> Scope:
        """Return what a search of these kinds may find.

        Parameters
        ----------
        kinds
            As in :class:`nbrag.types.SearchPlan`.
        passing
            int64 rows of :func:`searched_kinds` that pass a filter, increasing; None without one.
        """
        kinds = searched_kinds(kinds)
        if _QUESTION not in kinds or not len(self.questions):
            others = kinds - {_QUESTION}
            return Scope(self.rows_of(others) if passing is None else passing)
        if passing is None:
            passing = self.rows_of(kinds)
        rows, leads = self.questions.leads(self.rows if passing is None else passing)
        return Scope(None if len(rows) == len(self.rows) else rows, leads)

    def ids_of(self, rows: Rows) -> list[str | None]:
        """Return the chunk ids; None for a row that is not there."""
        if not len(self.rows):
            return [None] * len(rows)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        there = self.rows[places] == rows
        return [
            self.ids[place] if found else None
            for place, found in zip(places.tolist(), there.tolist(), strict=True)
        ]


def searched_kinds(kinds: frozenset[ChunkKind]) -> frozenset[ChunkKind]:
    """Return the kinds of rows that a search looks at; with questions it is passages too."""
    if not kinds or _QUESTION in kinds:
        return kinds | {ChunkKind.ORIGINAL}
    return kinds


class CollectionIndices:
    """Row table, vector matrix and keyword index of one collection.

    Parameters
    ----------
    dimension
        Length of a vector.
    language
        Language of the keyword leg's stemmer; None for none.
    matrix_from
        The first row whose vector is held in memory; None when none is.
    """

    def __init__(
        self, dimension: int, language: str | None, *, matrix_from: int | None = 0
    ) -> None:
        self.dimension = dimension
        self.language = language
        #: Held while the indices change, and while the keyword index is read.
        self.lock = threading.RLock()
        self.matrix_from = matrix_from
        self.clear()

    def clear(self) -> None:
        """Forget everything; the indices then belong to no state of the rows."""
        with self.lock:
            self._stamp: str | None = None
            self._rows: Rows = np.empty(0, np.int64)
            self._ids: NDArray[np.object_] = np.empty(0, object)
            self._kinds: NDArray[np.uint8] = np.empty(0, np.uint8)
            self._exact: ExactIndex | None = (
                None if self.matrix_from is None else ExactIndex(self.dimension)
            )
            self.keyword = self.new_keyword()
            self._questions = QuestionRows.none()
            self._scopes: dict[Any, Scope] = {}
            self._found: dict[str, int] = {}

    def new_keyword(self) -> KeywordIndex:
        """Return an empty keyword index for the collection's language."""
        from nbrag.stores.analysis import Analyzer
        from nbrag.stores.keyword import KeywordIndex

        return KeywordIndex(Analyzer(language=self.language))

    @property
    def stamp(self) -> str | None:
        """The rows' state that the indices show; None while they show none."""
        return self._stamp

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix and the keyword index."""
        return (0 if self._exact is None else self._exact.nbytes) + self.keyword.nbytes

    @property
    def rows(self) -> Rows:
        """The indexed rows, increasing."""
        return self._rows

    def hold_nothing(self) -> None:
        """Let go of all vectors, and hold none of those to come."""
        with self.lock:
            self.matrix_from, self._exact = None, None

    def hold_all(self) -> None:
        """Hold all vectors from now on; what is indexed is forgotten, to be read anew with them."""
        with self.lock:
            self.matrix_from = 0
            self.clear()

    def hold_from(self, first_row: int) -> None:
        """Hold the vectors of this row and later ones, and let go of those before it.

        Raises
        ------
        ValueError
            When there are such rows already and their vectors are not held.
        """
        with self.lock:
            missing = self.matrix_from is None or self.matrix_from > first_row
            if missing and len(self._rows) and self._rows[-1] >= first_row:
                raise ValueError(f"the vectors from row {first_row} on are not held")
            if self._exact is None:
                self._exact = ExactIndex(self.dimension)
            self._exact.remove(self._rows[self._rows < first_row])
            self.matrix_from = first_row

    def change(self, stamp: str, *, removed: Rows, added: Iterable[RowBatch]) -> None:
        """Take rows out and in, and belong to the new state.

        When it is broken off half-way the indices belong to no state, and are filled anew
        before the next search.
        """
        with self.lock:
            self._stamp = None
            self._scopes.clear()
            if len(removed):
                self._take_out(removed)
            for batch in added:
                self._take_in(batch)
            self._stamp = stamp

    def _take_out(self, removed: Rows) -> None:
        kept = ~np.isin(self._rows, removed)
        self._rows, self._ids, self._kinds = self._rows[kept], self._ids[kept], self._kinds[kept]
        self._questions = self._questions.without(removed)
        self.keyword.remove(removed)
        if self._exact is not None:
            self._exact.remove(removed)

    def _take_in(self, batch: RowBatch) -> None:
        if not len(batch.rows):
            return
        ids = np.empty(len(batch.rows), object)
        ids[:] = list(batch.ids)
        codes = [_KIND_CODES.get(str(kind), _OTHER_KIND) for kind in batch.kinds]
        self._rows = np.concatenate([self._rows, batch.rows])
        self._ids = np.concatenate([self._ids, ids])
        self._kinds = np.concatenate([self._kinds, np.array(codes, np.uint8)])
        questions = self._kinds[-len(codes) :] == _KIND_CODES[_QUESTION]
        self._questions = self._questions.joined(batch.rows, batch.ids, batch.parents, questions)
        if batch.texts is not None:
            derived = self._kinds[-len(codes) :] != _KIND_CODES[ChunkKind.ORIGINAL]
            self.keyword.add(batch.rows, batch.texts, derived)
        if self._exact is not None and batch.vectors is not None:
            held = batch.rows >= (self.matrix_from or 0)
            self._exact.add(batch.rows[held], batch.vectors[held])

    def view(self, stamp: str) -> IndexView:
        """Return the present state.

        Raises
        ------
        Moved
            When it is not the one that is asked for.
        """
        with self.lock:
            if self._stamp != stamp:
                raise Moved
            exact = None if self._exact is None else self._exact.snapshot()
            complete = exact is not None and self.matrix_from == 0
            self._questions = self._questions.settle(self._rows, self._ids)
            return IndexView(
                stamp,
                self._rows,
                self._ids,
                self._kinds,
                exact,
                complete=complete,
                questions=self._questions,
            )

    def keyword_query(self, stamp: str, text: str) -> KeywordQuery:
        """Return a question made ready for the keyword leg of one state.

        Raises
        ------
        Moved
            When the indices show another state than the one that is asked for.
        """
        with self.lock:
            if self._stamp != stamp:
                raise Moved
            return self.keyword.query(text)

    def note(self, ids: Iterable[str | None], rows: Rows) -> None:
        """Remember where chunks stand that were just found; they are likely to be read next."""
        with self.lock:
            if len(self._found) > _FOUND:
                self._found.clear()
            self._found.update(
                (chunk_id, row)
                for chunk_id, row in zip(ids, rows.tolist(), strict=True)
                if chunk_id is not None
            )

    def places(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the rows of those chunks that were found lately; they may be gone since."""
        with self.lock:
            return {chunk_id: self._found[chunk_id] for chunk_id in ids if chunk_id in self._found}

    def remembered(self, stamp: str, key: Any) -> Scope | None:
        """Return what was kept under the key for this state, or None."""
        with self.lock:
            return self._scopes.get(key) if self._stamp == stamp else None

    def remember(self, stamp: str, key: Any, scope: Scope) -> None:
        """Keep what a search may find, until the next change; the oldest go first."""
        with self.lock:
            if self._stamp != stamp:
                return
            while len(self._scopes) >= 32:
                del self._scopes[next(iter(self._scopes))]
            self._scopes[key] = scope
