from __future__ import annotations

import asyncio
import threading

import pytest

from nbrag.models.chat import ReplyStream
from nbrag.types import ChatReply


class Parts:
    """Gives two pieces and the whole, on some thread, and takes its time to end."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.threads: set[str] = set()
        self.ended = threading.Event()

    async def __call__(self):
        try:
            self.threads.add(threading.current_thread().name)
            yield "one"
            await asyncio.sleep(self.pause)
            yield " two"
            yield ChatReply("one two")
        finally:
            await asyncio.sleep(0.05)
            self.ended.set()


async def test_pieces_are_made_on_the_background_loop():
    parts = Parts()
    stream = ReplyStream(parts())
    assert stream.reply is None
    assert [piece async for piece in stream] == ["one", " two"]
    assert stream.reply == ChatReply("one two")
    assert parts.threads == {"nbrag-loop"}
    assert parts.ended.is_set()


async def test_a_cancelled_stream_has_ended_when_it_is_left():
    parts = Parts(pause=30)

    async def read() -> None:
        async for _ in ReplyStream(parts()):
            pass

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(parts.ended.wait, 2)


async def test_a_stream_that_nobody_has_any_more_ends():
    parts = Parts()
    async for _ in ReplyStream(parts()):
        break
    assert await asyncio.to_thread(parts.ended.wait, 2)


async def test_closing_ends_it():
    parts = Parts()
    stream = ReplyStream(parts())
    await anext(stream)
    await stream.aclose()
    assert parts.ended.is_set()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_exception_comes_through():
    async def broken():
        yield "one"
        raise LookupError("gone")

    stream = ReplyStream(broken())
    assert await anext(stream) == "one"
    with pytest.raises(LookupError, match="gone"):
        await anext(stream)
