"""A chat client with everything around it: cache, budget, bounded concurrency, tries, accounts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

from nbrag.background import on_loop
from nbrag.errors import ChatError, ChatUnavailable, ConfigurationError, NbragError
from nbrag.models.chat.budget import Budget, PricedChatClient
from nbrag.models.chat.cache import ReplyStore, request_key
from nbrag.models.chat.ledger import Ledger, LedgerEntry, note_call
from nbrag.models.chat.streams import ReplyStream
from nbrag.models.provider import retrying
from nbrag.protocols import ChatClient, StreamingChatClient
from nbrag.tracing import current_stage
from nbrag.types import ChatMessage, ChatReply

__all__ = ["ManagedChatClient"]

_log = logging.getLogger("nbrag.models")
#: Seconds that a call gets to end after nobody waits for it any more.
_GRACE = 5.0


@runtime_checkable
class _PreparedChatClient(Protocol):
    async def prepare(self) -> None:
        """Do what takes long at first use, and no single call's time limit should count."""


@dataclass(eq=False, slots=True)
class _Shared:
    """A request under way, and how many wait for its answer."""

    task: asyncio.Task[ChatReply]
    waiting: int = 0


@dataclass(slots=True)
class _Account:
    """What the ledger will say about a request."""

    stage: str
    started: float
    outcome: str = ""
    reply: ChatReply | None = None


class ManagedChatClient:
    """A chat client that asks another one no more often than it must.

    In this order: an answer that the cache has is returned; a request that is already under way
    is waited for instead of made again; the budget is asked; a free place is waited for;
    the call is made, and tried again when it fails for a passing reason, after the wait that
    the provider asks for, else after growing random waits. Each request is one entry of the
    ledger, with the stage that made it; what was refused by the budget or cancelled before it
    was sent is none.

    Requests that are the same get the same answer, also at a temperature above 0: to have
    several answers to one question, tell the requests apart with ``seed=``.

    It can be used from any event loop and thread: all waiting is done on nbrag's own loop.
    Cancelling a request ends its call, unless others wait for the same answer.

    Parameters
    ----------
    client
        What is asked. Where it has ``options``, these are part of what identifies a request;
        where it has an async ``prepare()``, that is awaited before a call, outside of the time
        limit (a model that has to be loaded, say).
    concurrency
        Most calls at the same time.
    attempts
        How often a request is tried in all.
    timeout
        Seconds to wait for each try, or for each piece of a stream.
    budget
        How much may be used up.
    cache
        Where answers are kept; empty ones are not.
    ledger
        Where the accounts are kept.

    Raises
    ------
    ConfigurationError
        When a number can't be used.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        concurrency: int = 8,
        attempts: int = 3,
        timeout: float = 60.0,
        budget: Budget | None = None,
        cache: ReplyStore | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        for name, value in {"concurrency": concurrency, "attempts": attempts}.items():
            if value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}.")
        if not timeout > 0:
            raise ConfigurationError(f"timeout must be more than 0 seconds, not {timeout}.")
        self._client = client
        self._concurrency = concurrency
        self._attempts = attempts
        self._timeout = timeout
        self.budget = budget
        self.cache = cache
        self.ledger = ledger
        self._places = asyncio.Semaphore(concurrency)
        self._running: dict[str, _Shared] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        """Return the client that is asked."""
        return f"ManagedChatClient({self._client!r})"

    @property
    def model(self) -> str:
        """The name of the model that is asked."""
        return self._client.model

    @property
    def client(self) -> ChatClient:
        """The client that is asked."""
        return self._client

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the model's answer, or the one that was kept.

        Raises
        ------
        BudgetExceeded
            When the budget is used up.
        RateLimited, ChatUnavailable
            After all tries.
        ChatError
            When the request is refused, filtered, or too long.
        ModelError
            When the key or the model's name is wrong.
        ConfigurationError
            When an option can't be used, or money is the only limit and the price is not known.
        """
        account = _Account(current_stage(), time.perf_counter())
        return await on_loop(self._complete(tuple(messages), options, account))

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> ReplyStream:
        """Yield the answer's pieces as they come; errors as in :meth:`complete`.

        There is one try, because pieces can't be taken back. An answer that was kept, or comes
        from a client that can't stream, is one piece.
        """
        account = _Account(current_stage(), time.perf_counter())
        return ReplyStream(self._parts(tuple(messages), options, account))

    def close(self) -> None:
        """Close the client that is asked, where it can be closed."""
        close = getattr(self._client, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def _complete(
        self, messages: tuple[ChatMessage, ...], options: dict[str, Any], account: _Account
    ) -> ChatReply:
        self._enter_loop()
        key = self._key(messages, options)
        shared = self._running.get(key)
        first = shared is None
        if shared is None:
            task = asyncio.ensure_future(self._answered(key, messages, options, account))
            shared = self._running[key] = _Shared(task)
            task.add_done_callback(lambda _: self._forget(key, shared))
        shared.waiting += 1
        try:
            reply = await asyncio.shield(shared.task)
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.task.done():
                self._forget(key, shared)
                shared.task.cancel()
                await asyncio.wait((shared.task,), timeout=_GRACE)
        if first:
            return reply
        reply = replace(reply, cost=0.0, cached=True)
        account.outcome, account.reply = "shared", reply
        self._note(account)
        return reply

    async def _answered(
        self,
        key: str,
        messages: tuple[ChatMessage, ...],
        options: dict[str, Any],
        account: _Account,
    ) -> ChatReply:
        """Return the answer from the cache, else from the client."""
        kept = await self._kept(key, account)
        if kept is not None:
            return kept
        async with self._place(messages, options, account):
            async for attempt in retrying(self._attempts):
                with attempt:
                    account.reply = await self._in_time(self._client.complete(messages, **options))
        reply = account.reply
        if reply is None:
            raise ChatError(f"{self.model} gave no reply.")
        await self._keep(key, messages, options, reply)
        return reply

    async def _parts(
        self, messages: tuple[ChatMessage, ...], options: dict[str, Any], account: _Account
    ) -> AsyncGenerator[str | ChatReply]:
        self._enter_loop()
        if not isinstance(self._client, StreamingChatClient):
            reply = await self._complete(messages, options, account)
            yield reply.text
            yield reply
            return
        key = self._key(messages, options)
        kept = await self._kept(key, account)
        if kept is not None:
            yield kept.text
            yield kept
            return
        async with self._place(messages, options, account):
            pieces = self._client.stream(messages, **options)
            text = ""
            try:
                while (piece := await self._in_time(_next(pieces))) is not None:
                    text += piece
                    yield piece
            finally:
                close = getattr(pieces, "aclose", None)
                if close is not None:
                    await close()
            account.reply = getattr(pieces, "reply", None) or ChatReply(text, model=self.model)
        await self._keep(key, messages, options, account.reply)
        yield account.reply

    @asynccontextmanager
    async def _place(
        self, messages: tuple[ChatMessage, ...], options: dict[str, Any], account: _Account
    ) -> AsyncIterator[None]:
        """Hold a share of the budget and a free place, and settle both whatever happens."""
        share = None
        if isinstance(self._client, _PreparedChatClient):
            await self._client.prepare()
        if self.budget is not None:
            price, unpriced = None, False
            if self.budget.limits_money and isinstance(self._client, PricedChatClient):
                price = await self._client.price()
                unpriced = price is None
            share = await self.budget.reserve(
                self.model, messages, options, price=price, unpriced=unpriced
            )
        sent = used = False
        try:
            async with self._places:
                sent = True
                yield
            account.outcome, used = "answered", True
        except ChatError as error:
            account.outcome, used = type(error).__name__, True
            raise
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
            account.outcome = "cancelled" if cancelled else type(error).__name__
            raise
        finally:
            if self.budget is not None and share is not None:
                if used:
                    self.budget.settle(share, account.reply)
                else:
                    self.budget.release(share)
            if sent:
                self._note(account)

    async def _in_time(self, answer: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout) as clock:
                return await answer
        except TimeoutError:
            if not clock.expired():
                raise
            raise ChatUnavailable(
                f"{self.model} did not answer within {self._timeout:g} seconds.",
                hint="raise timeout=, or see whether the server answers at all",
            ) from None

    async def kept_reply(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply | None:
        """Return the answer that is kept for a request, None when it would have to be asked for.

        Looking is no request: it costs nothing and is no entry of the ledger.
        """
        if self.cache is None:
            return None
        found = await asyncio.to_thread(self.cache.get, self._key(messages, options))
        return None if found is None else replace(found, cost=0.0, cached=True)

    async def forget(self, messages: Sequence[ChatMessage], **options: Any) -> None:
        """Let go of the answer that is kept for a request, so that it is asked anew."""
        if self.cache is not None:
            await asyncio.to_thread(self.cache.remove, self._key(messages, options))

    async def _kept(self, key: str, account: _Account) -> ChatReply | None:
        """Return the answer that was kept, which costs nothing."""
        if self.cache is None:
            return None
        found = await asyncio.to_thread(self.cache.get, key)
        if found is None:
            return None
        account.outcome, account.reply = "kept", replace(found, cost=0.0, cached=True)
        self._note(account)
        return account.reply

    async def _keep(
        self,
        key: str,
        messages: Sequence[ChatMessage],
        options: Mapping[str, Any],
        reply: ChatReply,
    ) -> None:
        if self.cache is None or not reply.text.strip():
            return
        try:
            await asyncio.to_thread(self.cache.put, key, messages, options, reply)
        except NbragError as error:
            # The answer is paid for: it is not thrown away because it can't be kept.
            _log.warning("an answer of %s could not be kept: %s", self.model, error)

    def _note(self, account: _Account) -> None:
        reply = account.reply
        entry = LedgerEntry(
            stage=account.stage,
            model=self.model,
            input_tokens=None if reply is None else reply.input_tokens,
            output_tokens=None if reply is None else reply.output_tokens,
            cost=None if reply is None else reply.cost,
            cached=reply is not None and reply.cached,
            seconds=time.perf_counter() - account.started,
            outcome=account.outcome,
        )
        note_call(entry)
        if self.ledger is None:
            return
        try:
            self.ledger.add(entry)
        except NbragError as error:
            _log.warning("a call of %s is missing in the ledger: %s", self.model, error)

    def _key(self, messages: Sequence[ChatMessage], options: Mapping[str, Any]) -> str:
        fixed = getattr(self._client, "options", None)
        fixed = fixed if isinstance(fixed, Mapping) else {}
        return request_key(self.model, messages, {**fixed, **options})

    def _forget(self, key: str, shared: _Shared) -> None:
        """Let the same request be made anew."""
        if self._running.get(key) is shared:
            del self._running[key]
        if shared.task.done() and not shared.task.cancelled():
            shared.task.exception()  # seen, also where nobody waits any more

    def _enter_loop(self) -> None:
        """Start anew where the background loop is another one: in a forked child."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._places = asyncio.Semaphore(self._concurrency)
            self._running = {}


async def _next(pieces: AsyncIterator[str]) -> str | None:
    return await anext(pieces, None)
