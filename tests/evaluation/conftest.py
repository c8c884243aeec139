"""A collection and pipelines that answer from a list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nbrag.protocols import StoredDocument
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults


class ListedCollection:
    """Documents by URI, each with ids of its chunks; what an evaluation asks of a collection."""

    name = "docs"

    def __init__(self, documents: Mapping[str, Sequence[str]], **fields: str) -> None:
        self.held = {uri: tuple(chunks) for uri, chunks in documents.items()}
        self.known_fields = fields

    async def documents(self) -> dict[str, StoredDocument]:
        return {
            uri: StoredDocument(uri, uri, "", "", len(chunks)) for uri, chunks in self.held.items()
        }

    async def chunks(self, ids: Sequence[str], *, content: str | None = None) -> dict[str, Any]:
        held = {chunk for chunks in self.held.values() for chunk in chunks}
        return {name: RetrievalChunk(name, "d", "text", 0.0) for name in ids if name in held}

    async def count(self) -> tuple[int, int]:
        return len(self.held), sum(map(len, self.held.values()))

    async def fields(self) -> dict[str, str]:
        return self.known_fields


class ScriptedPipeline:
    """Answers each question with the scripted chunks, as (source, chunk id) or a source."""

    def __init__(self, answers: Mapping[str, Any], *, warnings: tuple[str, ...] = ()) -> None:
        self.answers = answers
        self.warnings = warnings
        self.asked: list[tuple[str, int, Any]] = []
        self.under_way = 0
        self.most_under_way = 0

    async def process(
        self, collection: Any, query: str, top_k: int = 5, content: Any = None, where: Any = None
    ) -> RetrievalResults:
        self.asked.append((query, top_k, where))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        answer = self.answers[query]
        if isinstance(answer, Exception):
            raise answer
        chunks = []
        for position, item in enumerate(answer[:top_k]):
            source, name, record = (*item, {})[:3] if isinstance(item, tuple) else (item, item, {})
            row = {"source": source, **record}
            chunks.append(RetrievalChunk(name, source, f"text {position}", 1 / (position + 1), row))
        return RetrievalResults(
            RetrievalQuery(query, top_k=top_k), tuple(chunks), warnings=self.warnings
        )


@pytest.fixture
def listed() -> type[ListedCollection]:
    return ListedCollection


@pytest.fixture
def scripted() -> type[ScriptedPipeline]:
    return ScriptedPipeline
