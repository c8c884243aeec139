"""Bringing the in-memory indices up to the table's state.

Rows are never changed once they are written: a new version has new rows. So the difference of
two row sets is all that has to be read, and the first load is the difference to nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.duckdb.catalog import stamp_of
from nbrag.stores.duckdb.identifiers import CollectionName, literal, table
from nbrag.stores.duckdb.rows import matrix_of
from nbrag.stores.indices import CollectionIndices, Moved, RowBatch

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["present_state", "synchronise"]

#: Rows of one Arrow batch.
_BATCH = 8192
_TEXT = "CASE WHEN context = '' THEN content ELSE context || chr(10) || content END"


def present_state(
    cursor: DuckDBPyConnection, name: CollectionName, uid: str
) -> tuple[str, int, int] | None:
    """Return stamp, generation and number of rows; None when the collection was dropped."""
    found = cursor.execute(
        f"SELECT stamp, generation, (SELECT count(*) FROM {table(name, 'chunks')})"
        f" FROM nbrag.collections WHERE name = {literal(name)} AND uid = {literal(uid)}"
    ).fetchone()
    if found is None:
        return None
    tag, generation, count = found
    return stamp_of(generation, tag), int(generation), int(count)


def synchronise(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    indices: CollectionIndices,
    state: tuple[str, int, int],
    *,
    texts_known: bool = False,
) -> None:
    """Make the indices show the table as the cursor's transaction sees it.

    Parameters
    ----------
    cursor, name
        The collection, within a transaction.
    indices
        What is brought up to date.
    state
        What :func:`present_state` says in the same transaction.
    texts_known
        Whether the keyword index, just read from disk, has all rows already.

    Raises
    ------
    Moved
        When the indices are already further than the transaction.
    """
    stamp, generation, count = state
    with indices.lock:
        if indices.stamp == stamp and len(indices.rows) == count:
            return
        if indices.stamp is None:
            if not texts_known:
                indices.clear()
        elif int(indices.stamp.split("-")[0]) > generation:
            raise Moved
        known = indices.rows
        present = _all_rows(cursor, name)
        removed = np.setdiff1d(known, present, assume_unique=True)
        missing = np.setdiff1d(present, known, assume_unique=True)
        last = int(known[-1]) if len(known) else -1
        if len(missing) and int(missing[0]) <= last:
            # Rows only ever come behind the last one; anything else is not our doing.
            indices.clear()
            removed, last = removed[:0], -1
        batches: Iterable[RowBatch]
        texts, first_held = not texts_known, indices.matrix_from
        if first_held is None:
            batches = _new_rows(cursor, name, last, None, texts=texts)
        elif first_held <= last + 1:
            batches = _new_rows(cursor, name, last, indices.dimension, texts=texts)
        else:
            batches = itertools.chain(
                _new_rows(cursor, name, last, None, texts=texts, before=first_held),
                _new_rows(cursor, name, first_held - 1, indices.dimension, texts=texts),
            )
        indices.change(stamp, removed=removed, added=batches)


def _all_rows(cursor: DuckDBPyConnection, name: CollectionName) -> NDArray[np.int64]:
    found = cursor.execute(f"SELECT row FROM {table(name, 'chunks')}").fetchnumpy()["row"]
    return np.sort(np.asarray(found, np.int64))


def _new_rows(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    last: int,
    dimension: int | None,
    *,
    texts: bool,
    before: int = 2**62,
) -> Iterator[RowBatch]:
    """Yield rows behind ``last`` and before ``before``, with vectors if a dimension is given."""
    chunks = table(name, "chunks")
    vectors = dimension is not None
    sorted_already = cursor.execute(
        f"SELECT coalesce(bool_and(row > before), true) FROM (SELECT row,"
        f" lag(row, 1, -1) OVER () AS before FROM {chunks} WHERE row > ? AND row < ?)",
        [last, before],
    ).fetchone()
    order = "" if sorted_already and sorted_already[0] else " ORDER BY row"
    columns = ["row", "id", "kind", "parent_id"]
    columns += [f"{_TEXT} AS text"] if texts else []
    columns += ["embedding"] if vectors else []
    reader = cursor.execute(
        f"SELECT {', '.join(columns)} FROM {chunks} WHERE row > ? AND row < ?{order}",
        [last, before],
    ).to_arrow_reader(_BATCH)
    for batch in reader:
        parents = batch.column("parent_id")
        yield RowBatch(
            batch.column("row").to_numpy(),
            batch.column("id").to_pylist(),
            batch.column("kind").to_pylist(),
            batch.column("text").to_pylist() if texts else None,
            None if dimension is None else matrix_of(batch.column("embedding"), dimension),
            None if parents.null_count == len(parents) else parents.to_pylist(),
        )
