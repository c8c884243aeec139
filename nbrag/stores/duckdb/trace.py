"""The table of what every stage of past searches had before it: ``nbrag.trace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbrag.stores.duckdb.database import DuckDBDatabase

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["KEPT_RUNS", "record_trace"]

#: Runs that the table holds; older ones make room.
KEPT_RUNS = 1_000


def record_trace(
    database: DuckDBDatabase,
    rows: Sequence[Mapping[str, Any]],
    *,
    question: str,
    collection: str,
    pipeline: str,
) -> int:
    """Add one run's candidates to the table and return the run's number.

    Parameters
    ----------
    database
        Where the table is.
    rows
        One per stage and candidate: position, stage, chunk_id, rank, score, milliseconds,
        explanation.
    question, collection, pipeline
        What was asked of what.
    """

    def insert(cursor: DuckDBPyConnection) -> int:
        import pyarrow as pa

        last = cursor.execute("SELECT coalesce(max(run), 0) FROM nbrag.trace").fetchone()
        run = 1 + (last[0] if last else 0)
        cursor.execute("DELETE FROM nbrag.trace WHERE run <= ?", [run - KEPT_RUNS])
        schema = pa.schema(
            {
                "position": pa.int64(),
                "stage": pa.string(),
                "chunk_id": pa.string(),
                "rank": pa.int64(),
                "score": pa.float64(),
                "milliseconds": pa.float64(),
                "explanation": pa.string(),
            }
        )
        cursor.register("incoming_trace", pa.Table.from_pylist(list(rows), schema=schema))
        cursor.execute(
            "INSERT INTO nbrag.trace SELECT ?, now(), ?, ?, ?, * FROM incoming_trace",
            [run, question, collection, pipeline],
        )
        cursor.unregister("incoming_trace")
        return int(run)

    return database.run_sync(insert, write=True)
