"""From a stored row to a chunk that was found; the same for every store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.stores.metadata import clean_text
from nbrag.types import Chunk, Document, RetrievalChunk, Span

__all__ = ["chunk_from_record", "record_from_chunk"]

#: Parts of a row that have a place of their own in a chunk, or are nobody's business.
_APART = frozenset(
    {"row", "id", "document_id", "parent_id", "content", "start_offset", "end_offset"}
)
_ALWAYS = frozenset({"source", "title", "media_type", "heading_path", "context", "page", "kind"})


def chunk_from_record(record: Mapping[str, Any], content: str | None) -> RetrievalChunk:
    """Return the chunk for a stored row, with score 0 and no history.

    Parameters
    ----------
    record
        The row by column name, metadata fields included.
    content
        The field that is taken as the text; None for the chunk's own. Where a row lacks the
        field its own text stands in.

    Raises
    ------
    ConfigurationError
        When no row has such a field.
    """
    text = record["content"]
    if content is not None and content != "content":
        if content not in record or content in _APART:
            known = [name for name in record if name not in _APART]
            raise ConfigurationError(
                f"There is no field '{content}' to take the text from.",
                hint=did_you_mean(content, known, what="fields"),
            )
        chosen = record[content]
        if isinstance(chosen, list | tuple):
            chosen = "\n".join(map(str, chosen))
        text = text if chosen is None or chosen == "" else str(chosen)
    start, end = record.get("start_offset"), record.get("end_offset")
    span = None if start is None or end is None else Span(start, end, record.get("page"))
    shown = {
        name: value
        for name, value in record.items()
        if name not in _APART and (value is not None or name in _ALWAYS)
    }
    shown["title"] = shown.get("title") or ""
    shown["heading_path"] = tuple(shown.get("heading_path") or ())
    return RetrievalChunk(
        record["id"], record["document_id"], text, 0.0, shown, record.get("parent_id"), span
    )


def record_from_chunk(document: Document, chunk: Chunk, document_id: str) -> dict[str, Any]:
    """Return a chunk's stored row by column name, without metadata fields.

    Parameters
    ----------
    document
        The document that it is shown with.
    chunk
        The chunk.
    document_id
        The document that it belongs to.
    """
    span = chunk.span
    return {
        "id": chunk.id,
        "document_id": document_id,
        "ordinal": chunk.ordinal,
        "kind": str(chunk.kind),
        "parent_id": chunk.parent_id,
        "content": clean_text(chunk.content),
        "context": clean_text(chunk.context),
        "heading_path": [clean_text(part) for part in chunk.heading_path],
        "start_offset": None if span is None else span.start,
        "end_offset": None if span is None else span.end,
        "page": None if span is None else span.page,
        "token_count": chunk.token_count,
        "source": clean_text(document.uri),
        "title": clean_text(document.title) or None,
        "media_type": document.media_type or None,
    }
