"""From documents, chunks and vectors to Arrow tables that DuckDB takes in at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import StoreError
from nbrag.stores.indices import RowBatch
from nbrag.stores.metadata import FieldTypes, clean_text, converted, plain_value
from nbrag.types import Chunk, Document, stable_hash

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Incoming", "prepare", "prepare_summaries"]

Entry = tuple[Document, Sequence[Chunk], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """Documents that are about to be written, in columns.

    Attributes
    ----------
    documents, chunks
        Arrow tables; that of the chunks lacks row numbers and metadata.
    ids, kinds, parents
        The chunks' ids and kinds, and the ids of what they are derived from.
    records
        Each chunk's metadata under the fields' names.
    types
        The collection's metadata fields after these documents.
    texts
        What the keyword leg indexes.
    vectors
        float32 of shape (n, dimension).
    """

    documents: pa.Table
    chunks: pa.Table
    ids: list[str]
    kinds: list[str]
    parents: list[str | None]
    records: list[dict[str, Any]]
    types: dict[str, str]
    texts: list[str]
    vectors: NDArray[np.float32]

    def table(self, first_row: int) -> pa.Table:
        """Return the chunks' table with rows numbered from ``first_row``."""
        import pyarrow as pa

        kinds = {
            "VARCHAR": pa.string(),
            "BIGINT": pa.int64(),
            "DOUBLE": pa.float64(),
            "BOOLEAN": pa.bool_(),
            "VARCHAR[]": pa.list_(pa.string()),
        }
        table = self.chunks.append_column("row", pa.array(self.rows(first_row)))
        used = {name for record in self.records for name in record}
        for name in sorted(used):
            kind = self.types[name]
            values = [converted(record.get(name), kind) for record in self.records]
            table = table.append_column(name, pa.array(values, kinds[kind]))
        return table

    def rows(self, first_row: int) -> NDArray[np.int64]:
        """Return the chunks' row numbers."""
        return np.arange(first_row, first_row + len(self.records), dtype=np.int64)

    def batch(self, first_row: int) -> RowBatch:
        """Return what the in-memory indices take in."""
        return RowBatch(
            self.rows(first_row),
            self.ids,
            self.kinds,
            self.texts,
            self.vectors,
            self.parents if any(self.parents) else None,
        )


def prepare(
    entries: Sequence[Entry],
    vectors: NDArray[np.float32],
    known: Mapping[str, str],
    settings_hash: str,
) -> Incoming:
    """Return the documents in columns.

    Parameters
    ----------
    entries
        Documents with their chunks, each document once.
    vectors
        float32 of shape (n, dimension) for all chunks in order.
    known
        The collection's metadata fields so far.
    settings_hash
        Hash of what the documents were made with.

    Raises
    ------
    StoreError
        When two chunks have one id.
    """
    pairs = [(document, chunk) for document, chunks, _ in entries for chunk in chunks]
    ids = [chunk.id for _, chunk in pairs]
    if len(set(ids)) < len(ids):
        twice = next(chunk_id for chunk_id in ids if ids.count(chunk_id) > 1)
        raise StoreError(f"Two chunks of one write have the id {twice}.")
    types = FieldTypes(known)
    records = [
        record
        for document, chunks, _ in entries
        for record in types.learn_document(document.metadata, [chunk.metadata for chunk in chunks])
    ]
    owners = [document.id for document, _ in pairs]
    incoming = _incoming(pairs, owners, vectors, _documents(entries, settings_hash))
    return replace(incoming, records=records, types=types.types)


def prepare_summaries(
    summaries: Sequence[tuple[Document, Chunk]],
    vectors: NDArray[np.float32],
    known: Mapping[str, str],
) -> Incoming:
    """Return the rows of a summary tree in columns, without documents.

    Parameters
    ----------
    summaries
        Each with the document that it is shown with; the chunk says which one it is stored for.
    vectors
        float32 of shape (n, dimension).
    known
        The collection's metadata fields so far.
    """
    types = FieldTypes(known)
    records = [
        record
        for document, chunk in summaries
        for record in types.learn_document(document.metadata, [chunk.metadata])
    ]
    owners = [chunk.document_id for _, chunk in summaries]
    incoming = _incoming(summaries, owners, vectors, _documents([], ""))
    return replace(incoming, records=records, types=types.types)


def _incoming(
    pairs: Sequence[tuple[Document, Chunk]],
    owners: list[str],
    vectors: NDArray[np.float32],
    documents: pa.Table,
) -> Incoming:
    """Return rows in columns, their metadata left open."""
    import pyarrow as pa

    ids = [chunk.id for _, chunk in pairs]
    texts = [clean_text(chunk.embedding_text) for _, chunk in pairs]
    kinds = [chunk.kind.value for _, chunk in pairs]
    parents = [chunk.parent_id for _, chunk in pairs]
    hashes = [stable_hash(chunk.embedding_text) for _, chunk in pairs]
    spans = [chunk.span for _, chunk in pairs]
    dimension = vectors.shape[1]
    text, whole = pa.string(), pa.int64()
    columns = pa.table(
        {
            "id": pa.array(ids, text),
            "document_id": pa.array(owners, text),
            "ordinal": pa.array([chunk.ordinal for _, chunk in pairs], whole),
            "kind": pa.array(kinds, text),
            "parent_id": pa.array(parents, text),
            "content": pa.array([clean_text(chunk.content) for _, chunk in pairs], text),
            "context": pa.array([clean_text(chunk.context) for _, chunk in pairs], text),
            "heading_path": pa.array(
                [[clean_text(part) for part in chunk.heading_path] for _, chunk in pairs],
                pa.list_(text),
            ),
            "start_offset": pa.array([span and span.start for span in spans], whole),
            "end_offset": pa.array([span and span.end for span in spans], whole),
            "page": pa.array([span and span.page for span in spans], whole),
            "token_count": pa.array([chunk.token_count for _, chunk in pairs], whole),
            "text_hash": pa.array(hashes, text),
            "source": pa.array([clean_text(document.uri) for document, _ in pairs], text),
            "title": pa.array([clean_text(document.title) or None for document, _ in pairs], text),
            "media_type": pa.array([document.media_type or None for document, _ in pairs], text),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dimension),
        }
    )
    return Incoming(
        documents,
        columns,
        ids,
        kinds,
        parents,
        [],
        {},
        texts,
        vectors,
    )


def _documents(entries: Sequence[Entry], settings_hash: str) -> pa.Table:
    import pyarrow as pa

    documents = [document for document, _, _ in entries]
    columns = {
        "id": [document.id for document in documents],
        "uri": [clean_text(document.uri) for document in documents],
        "title": [clean_text(document.title) for document in documents],
        "media_type": [document.media_type for document in documents],
        "text": [clean_text(document.text) for document in documents],
        "source_hash": [document.source_hash for document in documents],
        "settings_hash": [settings_hash] * len(documents),
        "metadata": [
            clean_text(json.dumps(dict(document.metadata), ensure_ascii=False, default=plain_value))
            for document in documents
        ],
    }
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
