"""From a setting's text to a chat client."""

from __future__ import annotations

import re
from pathlib import Path

from nbrag.errors import ConfigurationError, closest
from nbrag.models.chat.litellm import LiteLLMChatClient
from nbrag.models.chat.local import LocalChatClient
from nbrag.models.chat.recording import RecordingChatClient, ReplayChatClient
from nbrag.models.provider import without_secrets
from nbrag.protocols import ChatClient

__all__ = ["resolve_chat"]

_FORMS = (
    "'provider/model' (e.g. openai/gpt-4o-mini, with the key in the environment), 'local' or "
    "'local:/path/to/model.gguf', or 'replay:replies.jsonl'"
)
_RECORD = "record:replies.jsonl=provider/model"
#: The file's name may hold '=' as long as it ends in .jsonl.
_RECORDED = re.compile(r"(?P<file>.+?\.jsonl|[^=]+)=(?P<model>.+)")


def resolve_chat(reference: str | Path | ChatClient) -> ChatClient:
    """Return the chat client that a setting names.

    Parameters
    ----------
    reference
        ``provider/model`` for a provider; ``local`` for the model that an installed package
        carries, ``local:/path/to/model.gguf`` (or a path) for another one on this machine;
        ``replay:replies.jsonl`` for recorded replies; ``record:replies.jsonl=provider/model`` to
        record those of any of the above; or a chat client, which is returned.

    Raises
    ------
    ConfigurationError
        When the text names none of these.
    ModelNotFound, ModelInvalid, MissingDependency
        When a file or package is missing or can't be used.

    Examples
    --------
    >>> resolve_chat("ollama/llama3.2:3b")
    LiteLLMChatClient('ollama/llama3.2:3b')
    """
    if isinstance(reference, Path):
        return LocalChatClient(reference)
    if isinstance(reference, str):
        return _named(reference.strip())
    given: object = reference  # a class has a client's methods too, and is none
    if isinstance(given, ChatClient) and not isinstance(given, type):
        return given
    raise ConfigurationError(
        f"a {type(reference).__name__} is not a chat model.",
        hint=f"use {_FORMS}, or an object with the methods of nbrag.protocols.ChatClient",
    )


def _named(text: str) -> ChatClient:
    shown = without_secrets(text)
    kind, colon, rest = text.partition(":")
    rest = rest.strip()
    if kind == "local" and (rest or not colon):
        return LocalChatClient(rest or None)
    if kind == "replay" and rest:
        return ReplayChatClient(rest)
    if kind == "record" and (named := _RECORDED.fullmatch(rest)) is not None:
        return RecordingChatClient(_named(named["model"].strip()), named["file"].strip())
    if kind in {"local", "replay", "record"}:
        example = _RECORD if kind == "record" else f"{kind}:/path/to/file"
        raise ConfigurationError(
            f"the chat model '{shown}' is not complete.", hint=f"write '{example}'"
        )
    if text.endswith(".gguf"):
        raise ConfigurationError(
            f"the chat model '{shown}' looks like a file.", hint=f"write 'local:{shown}'"
        )
    provider, slash, model = text.partition("/")
    if not provider or not slash or not model:
        near = closest(kind, ("local", "replay", "record"))
        guess = f"did you mean '{near}'? A model is named as " if near else "use "
        what = f"'{shown}' names no chat model" if text else "the chat model's name is empty"
        raise ConfigurationError(f"{what}.", hint=f"{guess}{_FORMS}")
    return LiteLLMChatClient(text)
