"""Chat with any provider that LiteLLM knows."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from nbrag.background import on_loop
from nbrag.errors import ChatError, ChatUnavailable, ConfigurationError, NbragError
from nbrag.models.chat.budget import TokenPrice
from nbrag.models.chat.streams import ReplyStream
from nbrag.models.provider import NO_RETRIES, chat_error, load_litellm, refuse_keys
from nbrag.types import ChatMessage, ChatReply, TokenProbability

__all__ = ["LiteLLMChatClient"]

_Answer = TypeVar("_Answer")
_log = logging.getLogger("nbrag.models")
#: Options that a call is made without where a provider refuses them, and how it names them.
_DISPENSABLE = {
    "response_format": re.compile(r"(?i)response[_ ]?format|json[_ ]schema|structured output"),
    "top_logprobs": re.compile(r"(?i)top[_ ]logprobs"),
    "logprobs": re.compile(r"(?i)log[_ ]?prob"),
    "stream_options": re.compile(r"(?i)stream[_ ]options|include_usage"),
}
#: (model, address, option) of what was refused in this process.
_refused: set[tuple[str, str | None, str]] = set()
#: LiteLLM spends about 4 ms of the loop's thread on a call. Calls that start together would
#: return together, and wait for each other in every round again; a little apart, they don't.
_APART = 0.004
_loading = threading.Lock()
#: For probabilities of 0, whose logarithm JSON doesn't have.
_LEAST = -9999.0
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


class _Turns:
    """Lets calls start a few milliseconds apart."""

    def __init__(self) -> None:
        self._next = 0.0

    async def take(self) -> None:
        """Wait until the call may start."""
        now = time.monotonic()
        start = max(self._next, now)
        self._next = start + _APART
        if start > now:
            await asyncio.sleep(start - now)


_turns = _Turns()


@dataclass(frozen=True, slots=True)
class _Usage:
    """Tokens that the provider counted, None where it doesn't, and LiteLLM's word on the cost."""

    read: int | None
    written: int | None
    stated: float | None

    @classmethod
    def of(cls, usage: Any, stated: Any) -> _Usage:
        """Take a reply's account; where the provider gave none, LiteLLM says 0 tokens."""
        read = getattr(usage, "prompt_tokens", None) or None
        written = getattr(usage, "completion_tokens", None)
        return cls(read, None if read is None else written, stated)

    def cost(self, price: TokenPrice | None) -> float | None:
        """Return US dollars, None where tokens or price are not known."""
        if self.read is None or self.written is None:
            return None
        # For a model of unknown price, LiteLLM may state 0.
        if self.stated:
            return float(self.stated)
        return None if price is None else price.input * self.read + price.output * self.written


class LiteLLMChatClient:
    """A chat model of a provider: OpenAI, Anthropic, Gemini, Ollama, and others.

    Keys are read from the environment by LiteLLM (``OPENAI_API_KEY`` and so on) and never appear
    in errors. Each call is one attempt: :class:`nbrag.models.chat.ManagedChatClient` adds further
    tries, a cache, a budget and accounts. Options that the provider is known not to take are left
    out; a ``response_format`` that it refuses is left out from then on.

    Parameters
    ----------
    model
        Provider and model, e.g. ``openai/gpt-4o-mini``, ``ollama/llama3.2``.
    timeout
        Seconds to wait for a reply, or for the next piece of a stream.
    api_base
        Address of a server, e.g. ``http://127.0.0.1:8000/v1``.
    **options
        Options of every call, e.g. ``temperature=0``.

    Raises
    ------
    ConfigurationError
        When the name is empty, the timeout is not positive, or an option holds a key.
    """

    def __init__(
        self, model: str, *, timeout: float = 60.0, api_base: str | None = None, **options: Any
    ) -> None:
        if not model.strip():
            raise ConfigurationError("the chat model's name is empty.")
        if not timeout > 0:
            raise ConfigurationError(f"timeout must be more than 0 seconds, not {timeout}.")
        refuse_keys(options)
        self._model = model
        self._timeout = timeout
        self._api_base = api_base
        self._options = options
        self._imported = False

    def __repr__(self) -> str:
        """Return the model's name."""
        return f"LiteLLMChatClient({self._model!r})"

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    @property
    def options(self) -> dict[str, Any]:
        """What an answer depends on besides the call: options, and the server's address."""
        if self._api_base is None:
            return dict(self._options)
        return {**self._options, "api_base": _CREDENTIALS.sub("", self._api_base)}

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the model's answer, from one attempt.

        Raises
        ------
        RateLimited
            When the provider takes no more requests for now.
        ChatUnavailable
            Without a connection, after a server's failure, or when the time is up.
        ChatError
            When the request is refused, filtered, or too long.
        ModelError
            When the key or the model's name is wrong.
        """
        refuse_keys(options)
        return await on_loop(self._complete(messages, {**self._options, **options}))

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> ReplyStream:
        """Yield the answer's pieces as they come; errors as in :meth:`complete`."""
        refuse_keys(options)
        return ReplyStream(self._parts(messages, {**self._options, **options}))

    async def price(self) -> TokenPrice | None:
        """Return the price per token by LiteLLM's own list, None when it is not there."""
        return _price(await on_loop(self._loaded()), self._model)

    async def prepare(self) -> None:
        """Import LiteLLM, which takes seconds the first time; no call's time limit counts it."""
        await on_loop(self._loaded())

    async def _loaded(self) -> Any:
        if not self._imported:
            # The loop must go on meanwhile.
            await asyncio.to_thread(_first_load)
            self._imported = True
        return load_litellm()

    async def _complete(
        self, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> ChatReply:
        litellm = await self._loaded()
        answer = await self._sent(litellm, messages, options)
        try:
            choice = answer.choices[0]
            words = choice.message.content or getattr(choice.message, "refusal", None) or ""
            stated = answer._hidden_params.get("response_cost")  # noqa: SLF001 - its only place
            usage = _Usage.of(getattr(answer, "usage", None), stated)
            reply = self._reply(litellm, str(words), choice.finish_reason, answer, usage)
            return replace(reply, tokens=_tokens(getattr(choice, "logprobs", None)))
        except (AttributeError, IndexError, TypeError) as error:
            raise chat_error(self._model, error) from None

    async def _parts(
        self, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> AsyncGenerator[str | ChatReply]:
        litellm = await self._loaded()
        wanted = {**options, "stream": True, "stream_options": {"include_usage": True}}
        chunks = await self._sent(litellm, messages, wanted)
        text, finish, usage, chunk = "", "", None, None
        try:
            while (following := await self._in_time(_next(chunks))) is not None:
                chunk = following
                usage = getattr(chunk, "usage", None) or usage
                for choice in chunk.choices[:1]:
                    finish = choice.finish_reason or finish
                    if choice.delta.content:
                        text += choice.delta.content
                        yield choice.delta.content
        except Exception as error:  # noqa: BLE001 - providers raise what they like
            raise self._failure(error) from None
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        yield self._reply(litellm, text, finish, chunk, _Usage.of(usage, None))

    async def _sent(
        self, litellm: Any, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> Any:
        """Make the call; once more without an option that the provider turns out to refuse."""
        arguments = self._arguments(messages, options)
        while True:
            await _turns.take()
            try:
                return await self._in_time(litellm.acompletion(**arguments))
            except Exception as error:  # noqa: BLE001 - providers raise what they like
                option = _refused_option(error, arguments)
                if option is None:
                    raise self._failure(error) from None
            del arguments[option]
            if (self._model, self._api_base, option) not in _refused:
                _refused.add((self._model, self._api_base, option))
                _log.warning("%s refuses %s: it is not sent from now on", self._model, option)

    def _arguments(
        self, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        arguments = {
            name: value
            for name, value in options.items()
            if (self._model, self._api_base, name) not in _refused
        }
        arguments.update(
            model=self._model,
            messages=[{"role": one.role, "content": one.content} for one in messages],
            # Later than this client's own time limit, which also ends a server that trickles.
            timeout=self._timeout + 5,
            max_retries=NO_RETRIES,
            drop_params=True,
        )
        if self._api_base is not None:
            arguments["api_base"] = self._api_base
        return arguments

    async def _in_time(self, answer: Awaitable[_Answer]) -> _Answer:
        try:
            async with asyncio.timeout(self._timeout) as clock:
                return await answer
        except TimeoutError:
            if not clock.expired():
                raise
            raise ChatUnavailable(
                f"{self._model} did not answer within {self._timeout:g} seconds.",
                hint="raise timeout=, or see whether the server answers at all",
            ) from None

    def _failure(self, error: Exception) -> NbragError:
        return error if isinstance(error, NbragError) else chat_error(self._model, error)

    def _reply(
        self, litellm: Any, text: str, finish: str | None, answer: Any, usage: _Usage
    ) -> ChatReply:
        """Return the reply; tokens and cost are None unless they were told and are known."""
        if finish == "content_filter" and not text:
            raise ChatError(
                f"the provider's filter withheld the answer of {self._model}.",
                hint="see which passage or question it objects to",
            )
        return ChatReply(
            text=text,
            input_tokens=usage.read,
            output_tokens=usage.written,
            cost=usage.cost(_price(litellm, self._model)),
            model=str(getattr(answer, "model", None) or ""),
            finish_reason=str(finish or ""),
        )


def _first_load() -> None:
    """Import LiteLLM, and look its many objects through for garbage here: it takes 0.2 s.

    It is due after so large an import, and would hold up the first calls in their midst.
    """
    # A call that is given up leaves its thread importing; a second one must not see half of it.
    with _loading:
        known = "litellm" in sys.modules
        load_litellm()
        if not known:
            gc.collect()


def _price(litellm: Any, model: str) -> TokenPrice | None:
    """Look a price up in LiteLLM's own list, which asks nobody."""
    for name in (model, model.partition("/")[2]):
        listed = litellm.model_cost.get(name, {})
        read, written = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
        if read is not None or written is not None:
            return TokenPrice(float(read or 0.0), float(written or 0.0))
    return None


def _refused_option(error: Exception, arguments: Mapping[str, Any]) -> str | None:
    """Return the option that a provider's "bad request" is about, where it can go without."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not kinds & {"BadRequestError", "UnprocessableEntityError", "UnsupportedParamsError"}:
        return None
    if kinds & {"ContextWindowExceededError", "ContentPolicyViolationError"}:
        return None
    for option, named in _DISPENSABLE.items():
        if option in arguments and named.search(str(error)):
            return option
    return None


def _tokens(logprobs: Any) -> tuple[TokenProbability, ...]:
    """Return the tokens of a reply with their probabilities, as far as a provider gives them."""
    found = []
    for one in getattr(logprobs, "content", None) or ():
        others = {
            str(other.token): _readable(other.logprob)
            for other in getattr(one, "top_logprobs", None) or ()
        }
        found.append(TokenProbability(str(one.token), _readable(one.logprob), others))
    return tuple(found)


def _readable(logprob: float) -> float:
    """Return a logarithm that JSON has, with as many places as matter."""
    return round(min(max(float(logprob), _LEAST), 0.0), 6)


async def _next(chunks: AsyncIterator[Any]) -> Any:
    return await anext(chunks, None)
