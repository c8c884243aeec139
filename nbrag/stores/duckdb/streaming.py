"""Exact search without a matrix in memory: the vectors stream by in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.duckdb.identifiers import CollectionName, table
from nbrag.stores.duckdb.rows import matrix_of
from nbrag.stores.exact import top_rows, unit_vectors
from nbrag.stores.hnsw import merged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["stream_search"]

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
_BATCH = 8192
#: So few rows are named one by one, and DuckDB then passes over the blocks without them.
_NAMED = 2000


def stream_search(
    cursor: DuckDBPyConnection, name: CollectionName, vectors: Vectors, k: int, allowed: Rows | None
) -> list[tuple[Rows, Vectors]]:
    """Return the nearest rows of each query, as :meth:`nbrag.stores.exact.ExactIndex.search`.

    Parameters
    ----------
    cursor, name
        The collection, within a transaction.
    vectors
        float32 of shape (q, dimension).
    k
        How many rows at most.
    allowed
        int64 rows that may be found; None means all.
    """
    import pyarrow as pa

    queries = unit_vectors(vectors)
    nothing = (np.empty(0, np.int64), np.empty(0, np.float32))
    if k <= 0 or (allowed is not None and not len(allowed)):
        return [nothing for _ in queries]
    statement = f"SELECT row, embedding FROM {table(name, 'chunks')}"
    if allowed is not None and len(allowed) <= _NAMED:
        statement += f" WHERE row IN ({', '.join(map(str, allowed.tolist()))})"
    elif allowed is not None:
        cursor.register("nbrag_allowed", pa.table({"row": pa.array(allowed)}))
        statement += " WHERE row IN (SELECT row FROM nbrag_allowed)"
    best = [[nothing] for _ in queries]
    for batch in cursor.execute(statement).to_arrow_reader(_BATCH):
        rows = batch.column("row").to_numpy()
        matrix = unit_vectors(matrix_of(batch.column("embedding"), queries.shape[1]))
        for query, found in zip(queries, best, strict=True):
            found.append(top_rows(rows, matrix, query, k))
            if len(found) > 16:
                found[:] = [merged(found, k)]
    return [merged(found, k) for found in best]
