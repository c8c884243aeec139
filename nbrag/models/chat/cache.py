"""Replies that are kept, so that the same request is never paid for twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from nbrag.errors import ConfigurationError
from nbrag.types import ChatMessage, ChatReply

__all__ = ["ReplyStore", "relevant_options", "request_key"]

#: Options that say how the request is sent, not what is answered.
_TRANSPORT = frozenset(
    (
        "drop_params",
        "extra_headers",
        "max_retries",
        "metadata",
        "num_retries",
        "stream",
        "stream_options",
        "timeout",
        "user",
    )
)


@runtime_checkable
class ReplyStore(Protocol):
    """Keeps replies by :func:`request_key`.

    The methods are called from worker threads, several at a time: an implementation locks what
    it has to.
    """

    def get(self, key: str) -> ChatReply | None:
        """Return the reply that was kept for a request, None when there is none."""
        ...

    def put(
        self,
        key: str,
        messages: Sequence[ChatMessage],
        options: Mapping[str, Any],
        reply: ChatReply,
    ) -> None:
        """Keep a reply; ``messages`` and ``options`` are for whoever reads the store."""
        ...

    def remove(self, key: str) -> None:
        """Let go of the reply to a request; when there is none, nothing happens."""
        ...


def relevant_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that an answer depends on, sorted by name.

    Left out are options that are None, and those of the way a request is sent, such as
    ``timeout`` and ``stream``.
    """
    return {
        name: options[name]
        for name in sorted(options)
        if name not in _TRANSPORT and options[name] is not None
    }


def request_key(model: str, messages: Sequence[ChatMessage], options: Mapping[str, Any]) -> str:
    """Return what identifies a request: a SHA-256, in hexadecimal, of all that matters in it.

    It is the same in every process and on every machine, and for every order of the options.

    Parameters
    ----------
    model
        The model's name.
    messages
        The conversation.
    options
        Options of the call; see :func:`relevant_options`.

    Raises
    ------
    ConfigurationError
        When an option is not made of JSON's values.
    """
    request = {
        "model": model,
        "messages": [[message.role, message.content] for message in messages],
        "options": relevant_options(options),
    }
    try:
        text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the options of a chat model's call are not JSON: {error}.",
            hint="give plain values, lists and dicts; response_format= takes a JSON schema",
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()
