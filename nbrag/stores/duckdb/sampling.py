"""A fixed random sample of a collection's source passages, and fields that have few values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.duckdb.identifiers import CollectionName, literal, quote, table
from nbrag.stores.duckdb.rows import matrix_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Sample", "few_valued", "sample_rows"]

_ORIGINAL = "kind = 'original'"


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a collection.

    Attributes
    ----------
    total
        How many rows there are to draw from.
    columns
        The values of each column that was asked for, a list of one entry per row.
    vectors
        float32 of shape (rows, dimension).
    """

    total: int
    columns: dict[str, list[Any]]
    vectors: NDArray[np.float32]


def sample_rows(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    most: int,
    dimension: int,
    columns: Sequence[str],
) -> Sample:
    """Return at most ``most`` original chunks; the same ones as long as none is written.

    Parameters
    ----------
    cursor, name
        What is read.
    most
        How many.
    dimension
        Length of a vector.
    columns
        Existing columns.
    """
    chunks = table(name, "chunks")
    counted = cursor.execute(f"SELECT count(*) FROM {chunks} WHERE {_ORIGINAL}").fetchone()
    total = int(counted[0]) if counted else 0
    # Row numbers first: they are small, and vectors are then read of the drawn rows alone.
    drawn = cursor.execute(
        f"SELECT row FROM {chunks} WHERE {_ORIGINAL} ORDER BY hash(row), row LIMIT ?", [most]
    ).fetchall()
    listed = ", ".join(literal(int(row)) for (row,) in drawn)
    names = ", ".join(quote(column) for column in columns)
    found = cursor.execute(
        f"SELECT {names}, embedding FROM {chunks} WHERE row IN ({listed or 'NULL'}) ORDER BY row"
    ).to_arrow_table()
    vectors = found.column("embedding").combine_chunks()
    return Sample(
        total,
        {column: found.column(column).to_pylist() for column in columns},
        matrix_of(vectors, dimension) if len(drawn) else np.zeros((0, dimension), np.float32),
    )


def few_valued(
    cursor: DuckDBPyConnection, name: CollectionName, fields: Sequence[str], most: int
) -> dict[str, float]:
    """Return those of the fields that have from 1 to about ``most`` different values.

    With each goes the share of the original chunks that have a value at all.

    Parameters
    ----------
    cursor, name
        What is read.
    fields
        Existing columns.
    most
        Values; counted by HyperLogLog, so give or take a few per cent.
    """
    if not fields:
        return {}
    counts = ", ".join(
        f"approx_count_distinct({quote(field)}), count({quote(field)}) / greatest(count(*), 1)"
        for field in fields
    )
    found = cursor.execute(
        f"SELECT {counts} FROM {table(name, 'chunks')} WHERE {_ORIGINAL}"
    ).fetchone()
    pairs = zip(fields, found[::2], found[1::2], strict=True) if found else ()
    return {field: float(share) for field, count, share in pairs if 1 <= int(count) <= most}
