"""A setting's text names a chat client, or says how to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbrag.errors import ConfigurationError, ModelNotFound
from nbrag.models.chat import (
    LiteLLMChatClient,
    LocalChatClient,
    RecordingChatClient,
    ReplayChatClient,
    resolve,
    resolve_chat,
)
from nbrag.testing import ScriptedChatClient
from nbrag.types import ChatMessage


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", " ollama/llama3.2:3b ", "a/b/c=d.gguf:x"])
def test_a_provider_and_its_model(name: str) -> None:
    chat = resolve_chat(name)
    assert isinstance(chat, LiteLLMChatClient)
    assert chat.model == name.strip()


def test_a_client_is_itself() -> None:
    chat = ScriptedChatClient()
    assert resolve_chat(chat) is chat


def test_a_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[Any] = []
    monkeypatch.setattr(resolve, "LocalChatClient", named.append)
    for reference in ("local", "local:/a/b:c.gguf", "local: m.gguf", Path("m.gguf")):
        resolve_chat(reference)
    assert named == [None, "/a/b:c.gguf", "m.gguf", Path("m.gguf")]


async def test_recorded_replies(tmp_path: Path) -> None:
    path = tmp_path / "replies=of me.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "q"}], "reply": "a"}\n', "utf-8")
    replay = resolve_chat(f"replay:{path}")
    assert isinstance(replay, ReplayChatClient)
    assert (await replay.complete([ChatMessage("user", "q")])).text == "a"
    record = resolve_chat(f"record:{path}=openai/gpt-4o-mini")
    assert isinstance(record, RecordingChatClient)
    assert record.model == "openai/gpt-4o-mini"
    assert (await record.complete([ChatMessage("user", "q")])).text == "a"
    assert resolve_chat("record:other.file=a/b=c").model == "a/b=c"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for kind in ("replay", "local"):
        with pytest.raises(ModelNotFound, match="no such name"):
            resolve_chat(f"{kind}:{tmp_path}/no such name")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("", "the chat model's name is empty. Hint: use 'provider/model'"),
        ("gpt-4o", "'gpt-4o' names no chat model. Hint: use 'provider/model'"),
        ("loacl", "did you mean 'local'?"),
        ("/model", "'/model' names no chat model"),
        ("openai/", "'openai/' names no chat model"),
        ("local:", "the chat model 'local:' is not complete"),
        ("replay:", "write 'replay:/path/to/file'"),
        ("replay", "not complete"),
        ("record:a.jsonl", "write 'record:replies.jsonl=provider/model'"),
        ("record:=a/b", "not complete"),
        ("record:a.jsonl=gpt-4o", "'gpt-4o' names no chat model"),
        ("models/m.gguf", "write 'local:models/m.gguf'"),
        (None, "a NoneType is not a chat model"),
        (LocalChatClient, "not a chat model"),
    ],
)
def test_what_names_no_model_says_how(reference: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_chat(reference)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["sk-1234567890abcdef", "record:sk-1234567890abcdef"])
def test_a_key_in_the_wrong_place_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_chat(name)
    assert "1234567890" not in str(caught.value)
