"""Chat with a model on this machine, by llama.cpp."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from nbrag.background import on_loop
from nbrag.errors import ConfigurationError, MissingDependency, NbragError
from nbrag.models.chat._local_model import find_model
from nbrag.models.chat._local_server import LocalServer
from nbrag.models.chat.budget import TokenPrice
from nbrag.models.chat.litellm import LiteLLMChatClient
from nbrag.models.chat.streams import ReplyStream
from nbrag.models.sessions import usable_cpus
from nbrag.types import ChatMessage, ChatReply

__all__ = ["LocalChatClient"]

#: LiteLLM's name for a server that speaks OpenAI's language and wants no key.
_PROVIDER = "hosted_vllm"


class LocalChatClient:
    """A chat model in a GGUF file, run by llama.cpp (``pip install 'nbrag[local]'``).

    At first use a process of its own is started that serves the model on a free port of the
    loopback address, which takes from one second (small models) to minutes; the calls go there
    over HTTP as to any provider. The process prints nothing here, is not interrupted with the
    notebook, and ends with :meth:`close`, with this object, and with the interpreter.

    Parameters
    ----------
    model_path
        The GGUF file; None takes the one that an installed package carries.
    context
        Tokens of one request and its answer together.
    threads
        Threads that compute; None leaves one CPU to the rest: with all of them, a second busy
        program slows the model down by a factor of 50.
    timeout
        Seconds to wait for an answer. Requests are worked on one after the other.
    max_tokens
        Tokens at which an answer is cut, unless a call says otherwise: small models may repeat
        themselves without end.
    **options
        Options of every call, e.g. ``temperature=0``.

    Raises
    ------
    MissingDependency
        When llama.cpp's package is not installed.
    ModelNotFound
        When there is no such file, or none was named and no package carries one.
    ConfigurationError
        When an option can't be used.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        *,
        context: int = 8192,
        threads: int | None = None,
        timeout: float = 300.0,
        max_tokens: int = 512,
        **options: Any,
    ) -> None:
        for name, value in (("context", context), ("threads", threads), ("max_tokens", max_tokens)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}.")
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingDependency("a chat model on this machine", "xllamacpp", "local")
        self._file = find_model(model_path)
        self._context = context
        self._threads = threads or max(usable_cpus() - 1, 1)
        self._timeout = timeout
        # Models without a chat template of their own get one whose end they don't know.
        self._options = {"max_tokens": max_tokens, "stop": ["<|im_end|>"], **options}
        self._lock = threading.Lock()
        self._server: LocalServer | None = None
        # Checks name and options, which should not wait for the first call.
        self._client = self._connected("http://127.0.0.1")

    def __repr__(self) -> str:
        """Return the model's name."""
        return f"LocalChatClient({self._file.name!r})"

    @property
    def model(self) -> str:
        """The model's name: ``local/`` and that of its file."""
        return f"local/{self._file.name}"

    @property
    def timeout(self) -> float:
        """Seconds that one answer may take."""
        return self._timeout

    #: Two answers at the same time take as long as one after the other.
    one_at_a_time = True

    @property
    def options(self) -> Mapping[str, Any]:
        """What an answer depends on besides the call: options, and the file's size in bytes."""
        return {**self._options, "context": self._context, "file_size": self._file.size}

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the model's answer; the first call starts the server.

        Raises
        ------
        ModelInvalid
            When the file is not a model that llama.cpp can load.
        ChatUnavailable
            When the time is up, or the server has ended.
        ChatError
            When the request is refused, for instance because it is longer than the context.
        """
        return await on_loop(self._complete(messages, options))

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> ReplyStream:
        """Yield the answer's pieces as they come; errors as in :meth:`complete`."""
        return ReplyStream(self._parts(messages, options))

    async def price(self) -> TokenPrice:
        """Return the price: nothing."""
        return TokenPrice(0.0, 0.0)

    def close(self) -> None:
        """Stop the server; a later call starts it again."""
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def _complete(
        self, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> ChatReply:
        client = await asyncio.to_thread(self._started)
        try:
            return self._own(await client.complete(messages, **options))
        except NbragError as error:
            raise self._renamed(error) from None

    async def _parts(
        self, messages: Sequence[ChatMessage], options: Mapping[str, Any]
    ) -> AsyncGenerator[str | ChatReply]:
        client = await asyncio.to_thread(self._started)
        try:
            async with aclosing(client.stream(messages, **options)) as pieces:
                async for piece in pieces:
                    yield piece
        except NbragError as error:
            raise self._renamed(error) from None
        if pieces.reply is not None:
            yield self._own(pieces.reply)

    def _started(self) -> LiteLLMChatClient:
        """Return a client of the running server, which is started anew where it has ended."""
        with self._lock:
            if self._server is None or not self._server.running:
                if self._server is not None:
                    self._server.stop()
                self._server = LocalServer(
                    self._file.file(), context=self._context, threads=self._threads
                )
                self._client = self._connected(self._server.address)
            return self._client

    def _connected(self, address: str) -> LiteLLMChatClient:
        return LiteLLMChatClient(
            f"{_PROVIDER}/{self._file.name}",
            timeout=self._timeout,
            api_base=f"{address}/v1",
            **self._options,
        )

    def _own(self, reply: ChatReply) -> ChatReply:
        return replace(reply, model=self.model, cost=0.0)

    def _renamed(self, error: NbragError) -> NbragError:
        """Return an error that names the model as the user does."""
        error.message = error.message.replace(f"{_PROVIDER}/{self._file.name}", self.model)
        return error
