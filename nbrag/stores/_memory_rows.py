"""The rows of a collection in memory, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.metadata import clean_text, converted
from nbrag.stores.trees import SUMMARY_KINDS
from nbrag.types import Chunk, Document

__all__ = ["Row", "fitting", "lost_passages"]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One stored chunk.

    Attributes
    ----------
    record
        Its values by column name.
    vector
        float32 of shape (dimension,).
    text_hash, text
        What was embedded and is keyword-indexed, and its hash.
    """

    record: dict[str, Any]
    vector: NDArray[np.float32]
    text_hash: str
    text: str


def fitting(record: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with its values of their fields' types."""
    return {
        name: converted(value, types[name]) if name in types else value
        for name, value in record.items()
    }


def lost_passages(
    rows: Iterable[Row],
    document_ids: set[str],
    incoming: Sequence[tuple[Document, Sequence[Chunk], NDArray[np.float32]]],
) -> set[str]:
    """Return the ids of passages that go with documents and don't come back as they were."""
    back = {chunk.id: clean_text(chunk.content) for _, chunks, _ in incoming for chunk in chunks}
    return {
        row.record["id"]
        for row in rows
        if row.record["document_id"] in document_ids
        and row.record["kind"] not in SUMMARY_KINDS
        and back.get(row.record["id"]) != row.record["content"]
    }
