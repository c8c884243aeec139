"""Documents, chunks and vectors for the tests of the stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nbrag.types import (
    Chunk,
    ChunkKind,
    Document,
    EmbedderIdentity,
    QueryVariant,
    RankedList,
    SearchPlan,
    Span,
    stable_hash,
)

DIMENSION = 16
IDENTITY = EmbedderIdentity("sample", "1", DIMENSION)


def random_vectors(count: int, seed: int, dimension: int = DIMENSION) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


def sample(
    uri: str,
    texts: Sequence[str],
    *,
    seed: int = 0,
    metadata: dict[str, Any] | None = None,
    chunk_metadata: Sequence[dict[str, Any]] | None = None,
    dimension: int = DIMENSION,
) -> tuple[Document, list[Chunk], np.ndarray]:
    """Return a document of one chunk per text, with vectors that depend on the seed."""
    document = Document(
        uri, "\n".join(texts), title=f"About {uri}", metadata=metadata or {}, source_hash=uri
    )
    chunks, start = [], 0
    for ordinal, text in enumerate(texts):
        extra = chunk_metadata[ordinal] if chunk_metadata else {}
        chunks.append(
            Chunk(
                stable_hash(uri, text, str(ordinal)),
                document.id,
                text,
                ordinal=ordinal,
                span=Span(start, start + len(text), page=ordinal + 1),
                heading_path=("Top", f"Part {ordinal}"),
                context=document.title,
                token_count=len(text.split()),
                metadata=extra,
            )
        )
        start += len(text) + 1
    return document, chunks, random_vectors(len(texts), seed, dimension)


def question_row(parent: Chunk, text: str, kind: ChunkKind = ChunkKind.HYPOTHETICAL_QUERY) -> Chunk:
    return Chunk(
        stable_hash("derived", parent.id, text), parent.document_id, text,
        ordinal=parent.ordinal, kind=kind, parent_id=parent.id,
    )  # fmt: skip


def plan(
    text: str = "",
    vector: np.ndarray | None = None,
    *,
    k: int = 10,
    where: Any = None,
    kinds: Sequence[ChunkKind] = (ChunkKind.ORIGINAL,),
) -> SearchPlan:
    legs = frozenset(
        leg for leg, wanted in (("vector", vector is not None), ("keyword", bool(text))) if wanted
    )
    return SearchPlan((QueryVariant(text, vector=vector),), legs, k, where, frozenset(kinds))


def ids(found: Sequence[RankedList], leg: str) -> list[str]:
    [one] = [ranked for ranked in found if ranked.leg == leg]
    return [item.chunk_id for item in one.items]


def brute_force(vectors: dict[str, np.ndarray], query: np.ndarray, k: int) -> list[str]:
    """Return the ids of the nearest vectors by cosine similarity, in float64."""
    scores = {
        chunk_id: float(
            vector.astype(np.float64) @ query.astype(np.float64) / np.linalg.norm(vector)
        )
        for chunk_id, vector in vectors.items()
    }
    return sorted(scores, key=lambda chunk_id: -scores[chunk_id])[:k]
