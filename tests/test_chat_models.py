"""A workspace's chat model: who it is, what is kept, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nbrag
from nbrag.errors import BudgetExceeded, ConfigurationError
from nbrag.models.chat import Budget, ManagedChatClient
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import ChatMessage, ChatReply
from nbrag.workspace import Workspace

ASKED = [ChatMessage("user", "What is the sum?")]


class Counting:
    """A client that counts its calls, and notes whether it was closed."""

    model = "counting/one"

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        self.calls += 1
        return ChatReply(f"answer {self.calls}", 5, 2)

    def close(self) -> None:
        self.closed = True


def test_no_model_is_one_line_with_three_ways_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NBRAG_MODEL", raising=False)
    with Workspace(embedder=HashEmbedder()) as workspace:
        builder = workspace.retrieval_pipeline().use_query_expansion()
        with pytest.raises(ConfigurationError) as caught:
            builder.build()
    assert caught.value.message == "a stage needs a chat model, and none is configured."
    for way in ("model=openai/", "model=local", "model=replay:"):
        assert way in caught.value.hint
    assert "\n" not in str(caught.value)


def test_the_environment_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBRAG_MODEL", "openai/some-model")
    with Workspace() as workspace:
        assert workspace.chat.model == "openai/some-model"
    with Workspace(chat=Counting()) as workspace:
        assert workspace.chat.model == "counting/one"


def test_the_second_run_takes_no_calls(tmp_path: Path) -> None:
    client = Counting()
    for run in range(2):
        with Workspace(tmp_path / "w.duckdb", chat=client) as workspace:
            for _ in range(3):
                reply = nbrag.run(workspace.chat.complete(ASKED, temperature=0))
                assert reply.text == "answer 1"
            workspace.ledger()
            [(kept, paid)] = workspace.database.execute(
                "SELECT count(*) FILTER (cached), count(*) FILTER (NOT cached) FROM nbrag.ledger"
            )
            assert (kept, paid) == (2 + 3 * run, 1)
    assert client.calls == 1
    assert not client.closed  # it belongs to whoever made it


def test_unknown_cost_is_shown_as_unknown() -> None:
    with Workspace(chat=Counting()) as workspace:
        nbrag.run(workspace.chat.complete(ASKED))
        shown = workspace.ledger()._repr_mimebundle_()["text/plain"]
    assert "counting/one" in shown
    assert "unknown" in shown


def test_scripts_are_followed_anew_and_never_kept(tmp_path: Path) -> None:
    for answer in ("one", "two"):
        chat = ScriptedChatClient([answer])
        with Workspace(tmp_path / "w.duckdb", chat=chat) as workspace:
            assert nbrag.run(workspace.chat.complete(ASKED)).text == answer
            assert workspace.database.execute("SELECT * FROM nbrag.replies") == []


def test_a_budget_stops_calls_and_another_model_may_follow() -> None:
    with Workspace(chat=Counting(), budget=Budget(calls=1)) as workspace:
        nbrag.run(workspace.chat.complete(ASKED))
        other = [ChatMessage("user", "And the product?")]
        with pytest.raises(BudgetExceeded):
            nbrag.run(workspace.chat.complete(other))
        workspace.use_chat(Counting())
        assert nbrag.run(workspace.chat.complete(other)).text == "answer 1"
        with pytest.raises(ConfigurationError, match="names no chat model"):
            workspace.use_chat("gpt")
        assert workspace.chat.model == "counting/one"


def test_a_managed_client_is_taken_as_it_is() -> None:
    managed = ManagedChatClient(Counting())
    with Workspace(chat=managed) as workspace:
        assert workspace.chat is managed
        assert "calls" in workspace.ledger()._repr_mimebundle_()["text/plain"]
