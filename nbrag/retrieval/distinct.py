"""Drops repeats of a text from a ranking, and remembers where else it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nbrag.types import RetrievalChunk

__all__ = ["distinct_chunks"]


def distinct_chunks(chunks: Iterable[RetrievalChunk]) -> list[RetrievalChunk]:
    """Return the chunks, each id and each text once, at its best rank.

    Texts are the same when they differ in white space alone; an empty text repeats nothing. The
    sources of what was dropped stand in the kept chunk's record as ``also_in``.

    Parameters
    ----------
    chunks
        Best first.
    """
    places: dict[str, dict[str, None]] = {}
    kept: dict[str, RetrievalChunk] = {}
    seen: set[str] = set()
    for chunk in chunks:
        if chunk.id in seen:
            continue
        seen.add(chunk.id)
        text = " ".join(chunk.content.split())
        key = f"text {text}" if text else f"id {chunk.id}"
        if key in kept:
            others = dict.fromkeys((chunk.source, *(chunk.record.get("also_in") or ())))
            places.setdefault(key, {}).update(others)
        else:
            kept[key] = chunk
    return [_placed(chunk, places[key]) if key in places else chunk for key, chunk in kept.items()]


def _placed(chunk: RetrievalChunk, others: dict[str, None]) -> RetrievalChunk:
    """Return the chunk with the further places of its text in the record."""
    known = dict.fromkeys(chunk.record.get("also_in") or ())
    return replace(chunk, record={**chunk.record, "also_in": list(known | others)})
