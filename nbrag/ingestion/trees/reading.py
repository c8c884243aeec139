"""What a tree is made from: the passages of a collection, and the summaries that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nbrag.ingestion.processors._derived import own_context
from nbrag.ingestion.trees.nodes import Passage
from nbrag.stores.metadata import RESERVED_NAMES
from nbrag.types import Chunk, ChunkKind, MetadataKeys, MetadataValue, RetrievalChunk

if TYPE_CHECKING:
    from nbrag.protocols import Collection

__all__ = ["PassageTexts", "own_fields", "read_passages", "read_summaries"]

#: Rows that are read at a time.
_ROWS = 1_000
#: Fields that speak of one row only.
_OWN = frozenset({*RESERVED_NAMES, MetadataKeys.CONTEXTUAL_SUMMARY, MetadataKeys.LEVEL})


class PassageTexts:
    """Gives passages' texts as a model is shown them, from the collection or from new chunks.

    Parameters
    ----------
    collection
        Where they are stored.
    new
        Chunks that are not stored yet, by id.
    """

    def __init__(self, collection: Collection, new: Mapping[str, Chunk] | None = None) -> None:
        self._collection = collection
        self._new = new or {}

    async def __call__(self, ids: Sequence[str]) -> dict[str, str]:
        """Return texts by id, each with the title and headings that it stands under."""
        stored = await self._collection.chunks([i for i in ids if i not in self._new])
        found = {chunk_id: _as_chunk(chunk) for chunk_id, chunk in stored.items()}
        found.update({chunk_id: self._new[chunk_id] for chunk_id in ids if chunk_id in self._new})
        return {chunk_id: _shown(chunk) for chunk_id, chunk in found.items()}


def _as_chunk(row: RetrievalChunk) -> Chunk:
    return Chunk(
        row.id,
        row.document_id,
        row.content,
        context=str(row.record.get("context") or ""),
        metadata=row.record,
    )


def _shown(chunk: Chunk) -> str:
    context = own_context(chunk)
    return f"{context}\n{chunk.content}" if context else chunk.content


async def read_passages(
    collection: Collection,
    new: Sequence[Chunk] = (),
    documents: Mapping[str, str] | None = None,
) -> list[Passage]:
    """Return the collection's original chunks in the order of documents and places.

    Parameters
    ----------
    collection
        Where they are stored.
    new, documents
        Chunks that would be written, and the documents (URIs by id) that they would replace.
    """
    documents = documents or {}
    ids = await collection.original_ids()
    found = []
    for first in range(0, len(ids), _ROWS):
        rows = await collection.chunks(ids[first : first + _ROWS])
        found += [_stored(row) for row in rows.values() if row.document_id not in documents]
    found += [
        Passage(
            chunk.id,
            chunk.document_id,
            documents[chunk.document_id],
            "",
            chunk.heading_path,
            chunk.ordinal,
            chunk.token_count,
            {name: value for name, value in chunk.metadata.items() if name not in _OWN},
        )
        for chunk in new
        if chunk.kind is ChunkKind.ORIGINAL
    ]
    return sorted(found, key=lambda passage: (passage.source, passage.ordinal, passage.id))


def _stored(row: RetrievalChunk) -> Passage:
    return Passage(
        row.id,
        row.document_id,
        row.source,
        str(row.record.get("title") or ""),
        row.heading_path,
        int(row.record.get("ordinal") or 0),
        int(row.record.get("token_count") or 0),
        own_fields(row),
    )


def own_fields(row: RetrievalChunk) -> dict[str, MetadataValue]:
    """Return the fields of a stored row that are not built in and do not speak of it alone."""
    return {
        name: value
        for name, value in row.record.items()
        if name not in _OWN and not name.startswith("derived_") and value is not None
    }


async def read_summaries(collection: Collection) -> dict[str, RetrievalChunk]:
    """Return the summaries that the collection's tree has, by id."""
    ids = await collection.summary_ids()
    found: dict[str, RetrievalChunk] = {}
    for first in range(0, len(ids), _ROWS):
        found.update(await collection.chunks(ids[first : first + _ROWS]))
    return found
