"""Writing documents: one transaction each time, the indices follow after the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import StoreError
from nbrag.stores.duckdb.catalog import (
    CollectionEntry,
    entry_of,
    metadata_types,
    new_tag,
    stamp_of,
)
from nbrag.stores.duckdb.identifiers import CollectionName, literal, quote, table
from nbrag.stores.duckdb.incoming import Entry, Incoming, prepare, prepare_summaries
from nbrag.stores.duckdb.rows import vectors_by_hash
from nbrag.stores.duckdb.schema import SUMMARIES
from nbrag.stores.duckdb.tree import (
    has_tree,
    require_tree,
    stored_owners,
    take_out_above,
    write_links,
)
from nbrag.stores.indices import Change
from nbrag.stores.trees import checked_links, owners, standing
from nbrag.stores.vectors import checked_vectors
from nbrag.types import Chunk, Document, TreeLink

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from nbrag.stores.duckdb.collection import DuckDBCollection

__all__ = ["DuckDBWriteSession", "delete_documents"]


class DuckDBWriteSession:
    """Writes to a collection; implements :class:`nbrag.protocols.WriteSession`.

    Parameters
    ----------
    collection
        Where to.
    """

    def __init__(self, collection: DuckDBCollection) -> None:
        self._collection = collection
        self._database = collection.database
        self._name = collection.name
        self._dimension = collection.identity.dimension

    async def known_vectors(self, hashes: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored and staged vectors by the hash of their embedding text.

        Parameters
        ----------
        hashes
            ``stable_hash(chunk.embedding_text)`` of each text.
        """
        wanted = list(dict.fromkeys(hashes))
        if not wanted:
            return {}
        return await self._database.run(
            lambda cursor: vectors_by_hash(cursor, self._name, wanted, self._dimension)
        )

    async def stage_vectors(self, hashes: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Commit computed vectors before their documents are complete.

        They take part in no search, and so leave the collection's generation as it is; the write
        that uses them removes them.

        Parameters
        ----------
        hashes
            Hash of each vector's embedding text.
        vectors
            float32 of shape (len(hashes), dimension).
        """
        array = checked_vectors(vectors, len(hashes), self._dimension, collection=self._name)
        if not len(hashes):
            return
        first = {text_hash: place for place, text_hash in reversed(list(enumerate(hashes)))}
        staged = _staged_table(list(first), array[list(first.values())])

        def stage(cursor: DuckDBPyConnection) -> None:
            """Add the vectors that are not kept yet."""
            target = table(self._name, "staged_vectors")
            cursor.register("nbrag_staged", staged)
            cursor.execute(
                f"INSERT INTO {target} SELECT * FROM nbrag_staged"
                f" WHERE text_hash NOT IN (SELECT text_hash FROM {target})"
            )
            cursor.unregister("nbrag_staged")

        await self._database.run(stage, write=True)

    async def write_document(
        self,
        document: Document,
        chunks: Sequence[Chunk],
        vectors: NDArray[np.float32],
        *,
        settings_hash: str,
    ) -> None:
        """Replace a document with all that hangs on it, in one transaction.

        Parameters
        ----------
        document, chunks
            The new version.
        vectors
            float32 of shape (len(chunks), dimension), finite and not zero.
        settings_hash
            Hash of what the document was made with.

        Raises
        ------
        StoreError
            When a vector can't be stored, or two chunks have one id; nothing is changed then.
        """
        await self._write([(document, chunks, vectors)], settings_hash)

    async def write_documents(self, documents: Sequence[Entry], *, settings_hash: str) -> None:
        """Replace several documents, all in one transaction.

        A document that occurs twice is written once, as it stands last.

        Parameters
        ----------
        documents
            Triples (document, chunks, vectors) as for :meth:`write_document`.
        settings_hash
            Hash of what the documents were made with.

        Raises
        ------
        StoreError
            As :meth:`write_document`.
        """
        if documents:
            await self._write(list(documents), settings_hash)

    async def write_tree(
        self, summaries: Sequence[Chunk], vectors: NDArray[np.float32], links: Sequence[TreeLink]
    ) -> None:
        """Replace the whole summary tree, in one transaction; nothing at all removes it.

        Rows that are the same as before stay as they are. Passages that were deleted meanwhile
        take the summaries above them along, as if they were deleted after the write.

        Parameters
        ----------
        summaries
            Rows of the kinds of summaries. Of a document's own summary ``document_id`` is the
            document's, of any other it is empty.
        vectors
            float32 of shape (len(summaries), dimension), finite and not zero.
        links
            All of the tree's; a parent may be a summary whose row is missing.

        Raises
        ------
        StoreError
            When these are no tree, or a vector can't be stored; nothing is changed then.
        """
        array = checked_vectors(vectors, len(summaries), self._dimension, collection=self._name)
        await self._database.run(
            lambda cursor: _replace_tree(cursor, self._name, list(summaries), array, links),
            write=True,
            after=self._collection.state.follow,
        )

    async def _write(self, documents: Sequence[Entry], settings_hash: str) -> None:
        entries = list({entry[0].id: entry for entry in documents}.values())
        parts = [
            checked_vectors(vectors, len(chunks), self._dimension, collection=self._name)
            for _, chunks, vectors in entries
        ]
        vectors = parts[0] if len(parts) == 1 else np.concatenate(parts)
        await self._database.run(
            lambda cursor: _replace(cursor, self._name, entries, vectors, settings_hash),
            write=True,
            after=self._collection.state.follow,
        )


def _staged_table(hashes: list[str], vectors: NDArray[np.float32]) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "text_hash": pa.array(hashes, pa.string()),
            "embedding": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.ravel()), vectors.shape[1]
            ),
        }
    )


def _replace(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    entries: Sequence[Entry],
    vectors: NDArray[np.float32],
    settings_hash: str,
) -> Change:
    entry = entry_of(cursor, name)
    known = metadata_types(cursor, name)
    incoming = prepare(entries, vectors, known, settings_hash)
    # Columns first: DuckDB changes a table's shape before it takes rows in one transaction.
    _fit_columns(cursor, name, known, incoming.types)
    cursor.register("nbrag_documents", incoming.documents)
    cursor.register("nbrag_chunks", incoming.table(entry.next_row))
    try:
        removed, _ = _remove(
            cursor, name, [document.id for document, _, _ in entries], replaced=True
        )
        _refuse_taken_ids(cursor, name)
        cursor.execute(
            f"INSERT INTO {table(name, 'documents')} BY NAME SELECT * FROM nbrag_documents"
        )
        cursor.execute(f"INSERT INTO {table(name, 'chunks')} BY NAME SELECT * FROM nbrag_chunks")
        cursor.execute(
            f"DELETE FROM {table(name, 'staged_vectors')}"
            " WHERE text_hash IN (SELECT text_hash FROM nbrag_chunks)"
        )
    finally:
        cursor.unregister("nbrag_documents")
        cursor.unregister("nbrag_chunks")
    after = _advance(cursor, entry, incoming)
    return Change(entry.stamp, after, removed, incoming.batch(entry.next_row))


def _advance(cursor: DuckDBPyConnection, entry: CollectionEntry, incoming: Incoming | None) -> str:
    """Bump the generation and return the new stamp."""
    tag = new_tag()
    used = 0 if incoming is None else len(incoming.records)
    cursor.execute(
        "UPDATE nbrag.collections SET generation = generation + 1, stamp = ?, next_row = ?"
        " WHERE name = ?",
        [tag, entry.next_row + used, entry.name],
    )
    return stamp_of(entry.generation + 1, tag)


def _refuse_taken_ids(cursor: DuckDBPyConnection, name: CollectionName) -> None:
    taken = cursor.execute(
        f"SELECT id FROM {table(name, 'chunks')} WHERE id IN (SELECT id FROM nbrag_chunks) LIMIT 1"
    ).fetchone()
    if taken is not None:
        raise StoreError(f"Another document of '{name}' has a chunk with the id {taken[0]}.")


def _fit_columns(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    known: Mapping[str, str],
    wanted: Mapping[str, str],
) -> None:
    """Add columns for new metadata fields, and widen those whose type grew."""
    target = table(name, "chunks")
    for field, kind in wanted.items():
        before = known.get(field)
        column = quote(field)
        if before is None:
            cursor.execute(f"ALTER TABLE {target} ADD COLUMN {column} {kind}")
            cursor.execute("INSERT INTO nbrag.fields VALUES (?, ?, ?)", [name, field, kind])
        elif before != kind:
            value = (
                column
                if kind != "VARCHAR[]"
                else (f"CASE WHEN {column} IS NULL THEN NULL ELSE [{column}::VARCHAR] END")
            )
            cursor.execute(
                f"ALTER TABLE {target} ALTER COLUMN {column} TYPE {kind} USING {value}::{kind}"
            )
            cursor.execute(
                "UPDATE nbrag.fields SET type = ? WHERE collection = ? AND name = ?",
                [kind, name, field],
            )


def _remove(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    document_ids: Sequence[str],
    *,
    replaced: bool = False,
) -> tuple[NDArray[np.int64], int]:
    """Delete documents, their chunks, and rows derived from those; return rows and documents.

    When they are ``replaced``, by what is registered as incoming, the summaries above chunks that
    come back as they were are not touched.
    """
    import pyarrow as pa

    def register(ids: Sequence[str]) -> None:
        cursor.register("nbrag_gone", pa.table({"id": pa.array(ids, pa.string())}))

    chunks, within = table(name, "chunks"), "IN (SELECT id FROM nbrag_gone)"
    register(document_ids)
    alike = _alike(cursor, name) if replaced else []
    deleted = cursor.execute(
        f"DELETE FROM {table(name, 'documents')} WHERE id {within} RETURNING id"
    ).fetchall()
    register([document_id for (document_id,) in deleted])
    found: list[tuple[int, str]] = []
    condition = f"document_id {within}"
    if deleted and has_tree(cursor, name):
        found = _remove_summaries(cursor, name, replaced=replaced)
        if alike:
            kept = _kept_summaries(cursor, name, alike)
            condition += f" AND id NOT IN ({', '.join(map(literal, kept))})" if kept else ""
    rows = [row for row, _ in found]
    while deleted:
        fresh = cursor.execute(
            f"DELETE FROM {chunks} WHERE {condition} RETURNING row, id"
        ).fetchall()
        found += fresh
        if not found:
            break
        rows += [row for row, _ in fresh]
        register([chunk_id for _, chunk_id in found])
        condition, found = f"parent_id {within}", []
    cursor.unregister("nbrag_gone")
    return np.array(sorted(rows), np.int64), len(deleted)


def _alike(cursor: DuckDBPyConnection, name: CollectionName) -> list[str]:
    """Return the ids of documents that come back with the same title and metadata."""
    found = cursor.execute(
        f"SELECT d.id FROM {table(name, 'documents')} d JOIN nbrag_documents n ON n.id = d.id"
        " WHERE d.title = n.title AND d.media_type = n.media_type"
        " AND d.metadata::VARCHAR = n.metadata"
    ).fetchall()
    return [str(document_id) for (document_id,) in found]


def _remove_summaries(
    cursor: DuckDBPyConnection, name: CollectionName, *, replaced: bool
) -> list[tuple[int, str]]:
    """Delete the summaries above the chunks that go with the registered documents."""
    chunks = table(name, "chunks")
    back = "SELECT 1 FROM nbrag_chunks n WHERE n.id = c.id AND n.content = c.content"
    lost = cursor.execute(
        f"SELECT id FROM {chunks} c WHERE document_id IN (SELECT id FROM nbrag_gone)"
        f" AND kind NOT IN {SUMMARIES}" + (f" AND NOT EXISTS ({back})" if replaced else "")
    ).fetchall()
    return take_out_above(cursor, name, [chunk_id for (chunk_id,) in lost]) if lost else []


def _kept_summaries(
    cursor: DuckDBPyConnection, name: CollectionName, document_ids: Sequence[str]
) -> list[str]:
    """Return the documents' own summaries of which every passage comes back as it was."""
    listed = ", ".join(map(literal, document_ids))
    found = cursor.execute(
        f"SELECT id FROM {table(name, 'chunks')} WHERE document_id IN ({listed})"
        f" AND kind IN {SUMMARIES} AND id IN (SELECT parent FROM {table(name, 'tree')})"
        " AND id NOT IN (SELECT id FROM nbrag_chunks)"
    ).fetchall()
    return [str(chunk_id) for (chunk_id,) in found]


def _replace_tree(
    cursor: DuckDBPyConnection,
    name: CollectionName,
    summaries: list[Chunk],
    vectors: NDArray[np.float32],
    links: Sequence[TreeLink],
) -> Change:
    import pyarrow as pa

    require_tree(cursor, name)
    entry = entry_of(cursor, name)
    nothing = np.empty(0, np.int64)
    passages = {
        str(chunk_id)
        for (chunk_id,) in cursor.execute(
            f"SELECT id FROM {table(name, 'chunks')} WHERE kind NOT IN {SUMMARIES}"
        ).fetchall()
    }
    checked = checked_links(summaries, links, passages)
    kept_links, lost = standing(checked, passages)
    places = [place for place, chunk in enumerate(summaries) if chunk.id not in lost]
    summaries, vectors = [summaries[place] for place in places], vectors[places]
    documents = stored_owners(cursor, name, [chunk.document_id for chunk in summaries])
    known = metadata_types(cursor, name)
    owned = list(zip(owners(summaries, kept_links, documents), summaries, strict=True))
    incoming = prepare_summaries(owned, vectors, known)
    _fit_columns(cursor, name, known, incoming.types)
    same = _unchanged(cursor, name, incoming)
    fresh = [place for place, chunk in enumerate(summaries) if chunk.id not in same]
    incoming = prepare_summaries([owned[p] for p in fresh], vectors[fresh], incoming.types)
    cursor.register("nbrag_same", pa.table({"id": pa.array(sorted(same), pa.string())}))
    removed = cursor.execute(
        f"DELETE FROM {table(name, 'chunks')} WHERE kind IN {SUMMARIES}"
        " AND id NOT IN (SELECT id FROM nbrag_same) RETURNING row"
    ).fetchall()
    cursor.unregister("nbrag_same")
    changed = write_links(cursor, name, kept_links)
    if not (removed or fresh or changed):
        return Change(entry.stamp, entry.stamp, nothing)
    cursor.register("nbrag_chunks", incoming.table(entry.next_row))
    try:
        cursor.execute(f"INSERT INTO {table(name, 'chunks')} BY NAME SELECT * FROM nbrag_chunks")
        cursor.execute(
            f"DELETE FROM {table(name, 'staged_vectors')}"
            f" WHERE text_hash IN (SELECT text_hash FROM {table(name, 'chunks')})"
        )
    finally:
        cursor.unregister("nbrag_chunks")
    rows = np.array(sorted(row for (row,) in removed), np.int64)
    after = _advance(cursor, entry, incoming)
    return Change(entry.stamp, after, rows, incoming.batch(entry.next_row) if fresh else None)


def _unchanged(cursor: DuckDBPyConnection, name: CollectionName, incoming: Incoming) -> set[str]:
    """Return the ids of incoming summaries whose stored rows are the same, vectors apart."""
    cursor.execute(
        f"SELECT * EXCLUDE (row, embedding) FROM {table(name, 'chunks')} WHERE kind IN {SUMMARIES}"
    )
    columns = [str(column[0]) for column in cursor.description or ()]
    stored = {
        values[columns.index("id")]: dict(zip(columns, values, strict=True))
        for values in cursor.fetchall()
    }
    arriving = incoming.table(0).drop_columns(["row", "embedding"]).to_pylist()
    return {
        record["id"]
        for record in arriving
        if stored.get(record["id"]) == {**dict.fromkeys(columns), **record}
    }


def delete_documents(
    cursor: DuckDBPyConnection, name: CollectionName, document_ids: Sequence[str]
) -> Change:
    """Delete documents with all that hangs on them, within the caller's transaction."""
    entry = entry_of(cursor, name)
    removed, count = _remove(cursor, name, list(document_ids))
    if not count:
        return Change(entry.stamp, entry.stamp, removed)
    return Change(entry.stamp, _advance(cursor, entry, None), removed, documents=count)
