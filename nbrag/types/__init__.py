"""The plain data that travels through nbrag: documents, chunks, queries, results."""

from __future__ import annotations

from nbrag.types.chat import (
    ChatMessage,
    ChatReply,
    LedgerEntry,
)
from nbrag.types.documents import (
    Block,
    Chunk,
    ChunkKind,
    Document,
    EmbedderIdentity,
    MetadataKeys,
    MetadataValue,
    Span,
    stable_hash,
)
from nbrag.types.queries import (
    Fallback,
    QueryVariant,
    RankedItem,
    RankedList,
    RetrievalQuery,
    SearchLeg,
    SearchPlan,
    Strategy,
    VariantKind,
)
from nbrag.types.results import (
    HistoryEntry,
    RetrievalChunk,
    RetrievalResults,
)

__all__ = [
    "Block",
    "ChatMessage",
    "ChatReply",
    "Chunk",
    "ChunkKind",
    "Document",
    "EmbedderIdentity",
    "Fallback",
    "HistoryEntry",
    "LedgerEntry",
    "MetadataKeys",
    "MetadataValue",
    "QueryVariant",
    "RankedItem",
    "RankedList",
    "RetrievalChunk",
    "RetrievalQuery",
    "RetrievalResults",
    "SearchLeg",
    "SearchPlan",
    "Span",
    "Strategy",
    "VariantKind",
    "stable_hash",
]
