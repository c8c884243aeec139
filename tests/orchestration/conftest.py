"""A small collection behind a retriever, and a model whose words are known."""

from __future__ import annotations

from typing import Any

import pytest

from nbrag.models.chat import ManagedChatClient
from nbrag.orchestration import Answerer, AnswerOptions
from nbrag.testing import ScriptedChatClient
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults, Span

EU = "Backups are kept for 35 days in the EU region."
US = "In the US region they’re kept   for **90** days."


def passage(name: str, text: str, start: int = 100, **record: Any) -> RetrievalChunk:
    return RetrievalChunk(
        f"chunk-{name}",
        f"document-{name}",
        text,
        1.0,
        {"source": f"{name}.md", "title": name.title(), "heading_path": ("Backups",), **record},
        span=Span(start, start + len(text), 3),
    )


class FixedRetriever:
    """Finds the same chunks for every query, and keeps what it was asked."""

    def __init__(self, *chunks: RetrievalChunk, warnings: tuple[str, ...] = ()) -> None:
        self.chunks = chunks
        self.warnings = warnings
        self.asked: list[tuple[str, int, Any]] = []

    async def retrieve(self, query, *, top_k=5, where=None):
        self.asked.append((query, top_k, where))
        return RetrievalResults(RetrievalQuery(query), self.chunks[:top_k], {}, self.warnings)


class Kit:
    """What tests make answers with."""

    EU = EU
    US = US
    passage = staticmethod(passage)
    FixedRetriever = FixedRetriever

    @staticmethod
    def answerer(replies: Any, *chunks: RetrievalChunk, strict=False, **options: Any) -> Answerer:
        found = chunks or (passage("eu", EU), passage("us", US, 500))
        script = replies if hasattr(replies, "complete") else ScriptedChatClient(replies)
        # One try: failures are not waited for.
        chat = ManagedChatClient(script, attempts=1)
        return Answerer(FixedRetriever(*found), chat, AnswerOptions(**options), strict=strict)


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
