"""The events of an answer, from the background loop to whichever loop asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Self

from nbrag.background import on_loop
from nbrag.types import Answer, AnswerDone, AnswerEvent

__all__ = ["AnswerStream", "answer_events"]


class AnswerStream(AsyncIterator[AnswerEvent]):
    """The events of an answer, from whichever loop it is awaited.

    Parameters
    ----------
    events
        Runs on nbrag's background loop.
    """

    def __init__(self, events: AsyncGenerator[AnswerEvent]) -> None:
        self._done: list[Answer] = []
        # It must not hold this stream: a stream that is left ends when nobody has it any more.
        self._events = _forwarded(events, self._done)

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> AnswerEvent:
        """Return the next event."""
        return await anext(self._events)

    @property
    def answer(self) -> Answer | None:
        """The whole answer; None until the last event has come."""
        return self._done[0] if self._done else None

    async def aclose(self) -> None:
        """End the answer, where it is still being made."""
        await self._events.aclose()


async def answer_events(
    start: Callable[[Callable[[AnswerEvent], None]], Awaitable[Answer]],
) -> AsyncGenerator[AnswerEvent]:
    """Yield the events of an answer; ``start`` makes it, and gets whom to tell."""
    queue: asyncio.Queue[AnswerEvent | None] = asyncio.Queue()
    task = asyncio.ensure_future(start(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _forwarded(
    events: AsyncGenerator[AnswerEvent], done: list[Answer]
) -> AsyncGenerator[AnswerEvent]:
    steps = asyncio.Lock()
    try:
        while (event := await on_loop(_next(events, steps))) is not None:
            if isinstance(event, AnswerDone):
                done.append(event.answer)
            yield event
    finally:
        await on_loop(_end(events, steps))


async def _next(events: AsyncGenerator[AnswerEvent], steps: asyncio.Lock) -> AnswerEvent | None:
    # A cancelled step may still be ending when the stream is closed.
    async with steps:
        return await anext(events, None)


async def _end(events: AsyncGenerator[AnswerEvent], steps: asyncio.Lock) -> None:
    async with steps:
        await events.aclose()
