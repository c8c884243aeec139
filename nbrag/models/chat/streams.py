"""An answer that comes piece by piece, from the background loop to whichever loop asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Self

from nbrag.background import on_loop
from nbrag.types import ChatReply

__all__ = ["ReplyStream"]


class ReplyStream(AsyncIterator[str]):
    """The pieces of an answer, and the whole of it at the end.

    Leaving the loop over it early, or cancelling it, ends the call.

    Parameters
    ----------
    parts
        Runs on nbrag's background loop: gives the pieces, and after the last one the whole
        reply.
    """

    def __init__(self, parts: AsyncGenerator[str | ChatReply]) -> None:
        self._whole: list[ChatReply] = []
        # It must not hold this stream: a stream that is left ends when nobody has it any more.
        self._pieces = _forwarded(parts, self._whole)

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> str:
        """Return the next piece."""
        return await anext(self._pieces)

    @property
    def reply(self) -> ChatReply | None:
        """The whole answer with its tokens and cost; None until the last piece has come."""
        return self._whole[0] if self._whole else None

    async def aclose(self) -> None:
        """End the call, where it still runs."""
        await self._pieces.aclose()


async def _forwarded(
    parts: AsyncGenerator[str | ChatReply], whole: list[ChatReply]
) -> AsyncGenerator[str]:
    # A cancelled step may still be ending when the stream is closed.
    steps = asyncio.Lock()
    try:
        while (part := await on_loop(_next(parts, steps))) is not None:
            if isinstance(part, ChatReply):
                whole.append(part)
            else:
                yield part
    finally:
        await on_loop(_end(parts, steps))


async def _next(
    parts: AsyncGenerator[str | ChatReply], steps: asyncio.Lock
) -> str | ChatReply | None:
    async with steps:
        return await anext(parts, None)


async def _end(parts: AsyncGenerator[str | ChatReply], steps: asyncio.Lock) -> None:
    async with steps:
        await parts.aclose()
