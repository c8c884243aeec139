"""Reading stored rows: chunks, neighbours, vectors, documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import DocumentNotFound
from nbrag.protocols import StoredDocument
from nbrag.stores.duckdb.identifiers import CollectionName, literal, quote, table
from nbrag.stores.duckdb.schema import SUMMARIES
from nbrag.stores.records import chunk_from_record
from nbrag.types import ChunkKind, RetrievalChunk, Span

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "chunks_by_id",
    "document_text",
    "field_values",
    "matrix_of",
    "neighbours",
    "stored_documents",
    "stored_similarities",
    "vectors_by_hash",
    "vectors_by_id",
]


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _listed(rows: Sequence[int]) -> str:
    return ", ".join(literal(row) for row in rows)


def _rows_of(
    cursor: DuckDBPyConnection, name: CollectionName, ids: Sequence[str]
) -> dict[str, int]:
    """Return where chunks are stored, by a scan of the ids; those that are gone are left out."""
    if not ids:
        return {}
    listed = cursor.execute(
        f"SELECT id, row FROM {table(name, 'chunks')} WHERE id IN ({_marks(ids)})", list(ids)
    ).fetchall()
    return {str(chunk_id): int(row) for chunk_id, row in listed}


def chunks_by_id(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    ids: Sequence[str],
    *,
    content: str | None,
    hints: Mapping[str, int],
) -> dict[str, RetrievalChunk]:
    """Return stored chunks by id, as :meth:`nbrag.protocols.Collection.chunks`.

    Parameters
    ----------
    cursor, name, ids, content
        What is read.
    hints
        Rows where chunks were last seen; where one is not there any more, its id is looked for.
    """
    wanted = list(dict.fromkeys(ids))
    hinted = sorted(hints[chunk_id] for chunk_id in wanted if chunk_id in hints)
    found = {record["id"]: record for record in _records(cursor, name, hinted)}
    missing = [chunk_id for chunk_id in wanted if chunk_id not in found]
    rows = sorted(_rows_of(cursor, name, missing).values())
    found.update((record["id"], record) for record in _records(cursor, name, rows))
    return {
        chunk_id: chunk_from_record(found[chunk_id], content)
        for chunk_id in wanted
        if chunk_id in found
    }


def _records(
    cursor: DuckDBPyConnection, name: CollectionName, rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the stored rows that are still there, as mappings by column name.

    DuckDB numbers rows as they come, and so do we: the two numbers are the same until a
    checkpoint closes the gaps that deletes left. Looking there first saves a scan for them.
    """
    wanted = set(rows)
    guesses = ", ".join(f"({literal(row)})" for row in rows)
    found = _selected(cursor, name, f"VALUES {guesses}") if rows else []
    records = [record for record in found if record["row"] in wanted]
    moved = sorted(wanted - {record["row"] for record in records})
    if moved:
        places = f"SELECT rowid FROM {table(name, 'chunks')} WHERE row IN ({_listed(moved)})"
        records += _selected(cursor, name, places)
    return records


def _selected(
    cursor: DuckDBPyConnection, name: CollectionName, places: str
) -> list[dict[str, Any]]:
    """Return the rows at DuckDB's own numbers: the texts of other rows are not even unpacked."""
    cursor.execute(
        f"SELECT * EXCLUDE (embedding, text_hash) FROM {table(name, 'chunks')}"
        f" WHERE rowid IN ({places})"
    )
    columns = [str(column[0]) for column in cursor.description or ()]
    return [dict(zip(columns, values, strict=True)) for values in cursor.fetchall()]


def neighbours(
    cursor: DuckDBPyConnection, name: CollectionName, chunk_id: str, before: int, after: int
) -> list[RetrievalChunk]:
    """Return the original chunks around one, as :meth:`nbrag.protocols.Collection.neighbours`.

    Around a derived row those around the chunk that it leads to.
    """
    chunks = table(name, "chunks")
    current = chunk_id
    seen: set[str] = set()
    while True:
        found = cursor.execute(
            f"SELECT document_id, ordinal, kind, parent_id FROM {chunks} WHERE id = ?", [current]
        ).fetchone()
        if found is None or current in seen:
            return []
        document_id, ordinal, kind, parent = found
        if kind == ChunkKind.ORIGINAL:
            break
        seen.add(current)
        current = str(parent)
    listed = cursor.execute(
        f"SELECT row FROM {chunks} WHERE document_id = ? AND kind = ?"
        " AND ordinal BETWEEN ? AND ? ORDER BY ordinal, row",
        [document_id, str(ChunkKind.ORIGINAL), ordinal - before, ordinal + after],
    ).fetchall()
    records = _records(cursor, name, [row for (row,) in listed])
    records.sort(key=lambda record: (record["ordinal"], record["row"]))
    return [chunk_from_record(record, None) for record in records]


def vectors_by_id(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    ids: Sequence[str],
    dimension: int,
) -> dict[str, NDArray[np.float32]]:
    """Return stored vectors by chunk id."""
    wanted = list(dict.fromkeys(ids))
    rows = _rows_of(cursor, name, wanted)
    by_row = _vectors(cursor, name, list(rows.values()), dimension)
    return {
        chunk_id: by_row[rows[chunk_id]]
        for chunk_id in wanted
        if chunk_id in rows and rows[chunk_id] in by_row
    }


def _vectors(
    cursor: DuckDBPyConnection, name: CollectionName, rows: Sequence[int], dimension: int
) -> dict[int, NDArray[np.float32]]:
    if not rows:
        return {}
    found = cursor.execute(
        f"SELECT row, embedding FROM {table(name, 'chunks')} WHERE rowid IN"
        f" (SELECT rowid FROM {table(name, 'chunks')} WHERE row IN ({_listed(rows)}))"
    ).to_arrow_table()
    matrix = matrix_of(found.column("embedding").combine_chunks(), dimension)
    return dict(zip(found.column("row").to_pylist(), matrix, strict=True))


def stored_similarities(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    query: NDArray[np.float32],
    wanted: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return the cosine similarities, float32 of shape (n,), of stored rows to a vector."""
    by_row = _vectors(cursor, name, wanted.tolist(), len(query))
    matrix = np.stack([by_row[row] for row in wanted.tolist()]).astype(np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query.astype(np.float64))
    similarities: NDArray[np.float32] = (matrix @ query / lengths).astype(np.float32)
    return similarities


def matrix_of(column: Any, dimension: int) -> NDArray[np.float32]:
    """Return an Arrow column of fixed-size lists as float32 of shape (n, dimension)."""
    matrix: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
    return matrix.reshape(-1, dimension)


def vectors_by_hash(
    cursor: DuckDBPyConnection, name: CollectionName, hashes: Sequence[str], dimension: int
) -> dict[str, NDArray[np.float32]]:
    """Return vectors that are stored or staged for these embedding-text hashes."""
    import pyarrow as pa

    cursor.register("nbrag_wanted", pa.table({"text_hash": pa.array(list(hashes), pa.string())}))
    listed = cursor.execute(
        f"SELECT text_hash, min(row) FROM {table(name, 'chunks')}"
        " WHERE text_hash IN (SELECT text_hash FROM nbrag_wanted) GROUP BY text_hash"
    ).fetchall()
    rows = {str(text_hash): int(row) for text_hash, row in listed}
    by_row = _vectors(cursor, name, list(rows.values()), dimension)
    found = {text_hash: by_row[row] for text_hash, row in rows.items() if row in by_row}
    staged = cursor.execute(
        f"SELECT text_hash, embedding FROM {table(name, 'staged_vectors')}"
        " WHERE text_hash IN (SELECT text_hash FROM nbrag_wanted)"
    ).to_arrow_table()
    cursor.unregister("nbrag_wanted")
    matrix = matrix_of(staged.column("embedding").combine_chunks(), dimension)
    for text_hash, vector in zip(staged.column("text_hash").to_pylist(), matrix, strict=True):
        found.setdefault(text_hash, vector)
    return found


def document_text(
    cursor: DuckDBPyConnection, name: CollectionName, document_id: str, span: Span | None
) -> str:
    """Return a document's text, as :meth:`nbrag.protocols.Collection.document_text`."""
    found = cursor.execute(
        f"SELECT text FROM {table(name, 'documents')} WHERE id = ?", [document_id]
    ).fetchone()
    if found is None:
        raise DocumentNotFound(f"Collection '{name}' has no document with the id {document_id}.")
    text = str(found[0])
    return text if span is None else text[span.start : span.end]


def stored_documents(cursor: DuckDBPyConnection, name: CollectionName) -> dict[str, StoredDocument]:
    """Return all stored documents by URI, in the order of the URIs."""
    found = cursor.execute(
        "SELECT d.id, d.uri, d.source_hash, d.settings_hash, coalesce(c.chunks, 0)"
        f" FROM {table(name, 'documents')} d LEFT JOIN (SELECT document_id, count(*) AS chunks"
        f" FROM {table(name, 'chunks')} WHERE kind NOT IN {SUMMARIES} GROUP BY document_id) c"
        " ON c.document_id = d.id"
        " ORDER BY d.uri"
    ).fetchall()
    return {row[1]: StoredDocument(*row) for row in found}


def field_values(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    field: str,
    kind: str,
    limit: int,
    *,
    start: int = 0,
    containing: str = "",
) -> list[Any]:
    """Return a field's distinct values, most frequent first, then in order.

    Parameters
    ----------
    cursor, name
        What is read.
    field
        An existing field; its name is its column's name.
    kind
        Its type.
    limit
        The most values.
    start
        How many of the first ones are passed over.
    containing
        Only values whose text holds these words, whichever the case.
    """
    column = quote(field)
    value = f"unnest({column})" if kind.endswith("[]") else column
    wanted = " AND contains(lower(CAST(value AS VARCHAR)), lower(?))" if containing else ""
    # Summaries of several documents have no place of their own that a filter could look for.
    found = cursor.execute(
        f"SELECT value FROM (SELECT {value} AS value FROM {table(name, 'chunks')}"
        " WHERE document_id <> '')"
        f" WHERE value IS NOT NULL{wanted} GROUP BY value ORDER BY count(*) DESC, value"
        f" LIMIT {int(limit)} OFFSET {int(start)}",
        [containing] if containing else [],
    ).fetchall()
    return [value for (value,) in found]
