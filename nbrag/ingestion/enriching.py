"""What the stages of ingestion that ask a chat model have in common."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence

from nbrag.errors import ChatError, ConfigurationError
from nbrag.protocols import ChatClient, IngestionChunkProcessor, StageProblem
from nbrag.tracing import stage_span
from nbrag.types import Chunk, ChunkKind

__all__ = ["ChunkEnricher"]

#: Chunks that are worked on at the same time; the chat client bounds its calls by itself.
_AHEAD = 64


class ChunkEnricher(IngestionChunkProcessor):
    """Asks a chat model about each chunk, several chunks at a time, and keeps their order.

    A chunk about which the model gives no usable answer goes on as it is. It is told as a
    problem: its document counts as incomplete, and the next run of the same stages takes it up
    again. Answers that were given before come from the workspace's reply cache, so that only
    what is missing is asked for, after a stop, a spent budget or an edit.

    Only original chunks are enriched; what earlier stages derived from them passes through.

    Parameters
    ----------
    chat
        The model.

    Raises
    ------
    ConfigurationError
        When there is no chat client.
    """

    def __init__(self, chat: ChatClient) -> None:
        if not isinstance(chat, ChatClient):
            raise ConfigurationError(
                f"stage '{self.name}' needs a chat client, not {chat!r}.",
                hint="give an object with `model` and `complete`",
            )
        self.chat = chat
        self._problems: list[StageProblem] = []

    @abstractmethod
    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return the chunk, enriched, and what is derived from it.

        Raises
        ------
        ChatError
            When the model gives no usable answer.
        """

    def problem(self, chunk: Chunk, reason: str) -> None:
        """Note that a chunk is stored without what this stage adds, or without part of it."""
        self._problems.append(StageProblem(self.name, chunk.document_id, reason))

    def take_problems(self) -> list[StageProblem]:
        """Return the problems since the last look."""
        problems, self._problems = self._problems, []
        return problems

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks in their order, each followed by what is derived from it."""
        waiting: deque[asyncio.Task[Sequence[Chunk]]] = deque()
        try:
            async for chunk in chunks:
                waiting.append(asyncio.create_task(self._enriched(chunk)))
                while waiting and (waiting[0].done() or len(waiting) >= _AHEAD):
                    for one in await waiting.popleft():
                        yield one
            while waiting:
                for one in await waiting.popleft():
                    yield one
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _enriched(self, chunk: Chunk) -> Sequence[Chunk]:
        if chunk.kind is not ChunkKind.ORIGINAL:
            return [chunk]
        with stage_span(f"nbrag.stage {self.name}", {"nbrag.stage": self.name}) as outcome:
            try:
                return await self.enrich(chunk)
            except ChatError as error:
                outcome["error.type"] = type(error).__name__
                self.problem(chunk, error.message)
                return [chunk]
