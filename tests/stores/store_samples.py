"""Documents, chunks and vectors for the tests of the stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nbrag.protocols import Collection
from nbrag.stores.duckdb import DuckDBDatabase, create_collection, open_collection
from nbrag.stores.memory import MemoryCollection
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
STORES = ["memory", "duckdb", "duckdb-file", "duckdb-hnsw", "duckdb-small-budget"]


@contextmanager
def opened(store: str, folder: Path) -> Iterator[Collection]:
    """Open the collection ``docs`` of one of the stores, a new one where there is none yet."""
    if store == "memory":
        yield MemoryCollection("docs", IDENTITY)
        return
    path = ":memory:" if store == "duckdb" else folder / "store.duckdb"
    new = path == ":memory:" or not Path(path).exists()
    with DuckDBDatabase(path) as database:
        if new:
            create_collection(database, "docs", IDENTITY)
        if store == "duckdb-hnsw":
            yield open_collection(database, "docs", index="hnsw")
        elif store == "duckdb-small-budget":
            yield open_collection(database, "docs", memory_budget=6 * DIMENSION * 4)
        else:
            yield open_collection(database, "docs")


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
