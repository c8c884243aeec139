"""The chat model in a notebook: settings, the error without one, the accounts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbrag.errors import ConfigurationError, ModelError
from nbrag.models.chat import RecordingChatClient
from nbrag.notebook.session import current_workspace
from nbrag.testing import ScriptedChatClient

REWRITES = json.dumps({"queries": ["retention of saved copies", "backup copies kept how long"]})
PIPELINE = "%%rag_pipeline wide -c docs\nexpand variants=2\n"


def test_a_stage_that_needs_a_model_says_how_to_give_one(filled: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a chat model") as caught:
        filled.run(PIPELINE)
    assert "model=local" in caught.value.hint


def test_record_replay_and_accounts(filled: Any, tmp_path: Path) -> None:
    script = ScriptedChatClient([REWRITES])
    current_workspace().use_chat(RecordingChatClient(script, tmp_path / "replies.jsonl"))
    filled.run(PIPELINE)
    first = filled.run("%rag_search -p wide How long are backups kept?")
    assert [variant.text for variant in first.query.variants][1:] == json.loads(REWRITES)["queries"]
    filled.run("%rag_config model=replay:replies.jsonl")
    again = filled.run("%rag_search -p wide How long are backups kept?")
    assert [chunk.id for chunk in again] == [chunk.id for chunk in first]
    assert not again.warnings
    shown = filled.run("%rag_ledger")._repr_mimebundle_()["text/plain"]
    assert "expand" in shown
    with pytest.raises(ModelError, match="recorded"):
        filled.run("%rag_search -p wide Another question?")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=gpt", "names no chat model"),
        ("model=replay:nowhere.jsonl", "nowhere.jsonl"),
        ("budget_calls=0", "not a whole number of 1 or more"),
        ("budget_money=-1", "not an amount of US dollars"),
        ("api_key=sk-123456789", "no setting 'api_key'"),
    ],
)
def test_wrong_settings_are_refused_and_change_nothing(
    shell: Any, setting: str, message: str
) -> None:
    with pytest.raises((ConfigurationError, ModelError), match=message):
        shell.run(f"%rag_config {setting}")
    assert shell.run("%rag_config")["model"] is None
    with pytest.raises(ConfigurationError, match="none is configured"):
        _ = current_workspace().chat


def test_the_model_can_change_while_collections_are_in_memory(filled: Any) -> None:
    filled.run("%rag_config model=openai/one budget_calls=3 concurrency=2")
    assert current_workspace().chat.model == "openai/one"
    budget = current_workspace().chat.budget
    assert budget is not None
    assert budget.used.calls == 0
    filled.run("%rag_config model=openai/two")
    assert current_workspace().chat.model == "openai/two"
    filled.run("%rag_config --reset")
    with pytest.raises(ConfigurationError, match="none is configured"):
        _ = current_workspace().chat
    assert len(filled.run("%rag_search -c docs backups")) == 3


def test_a_dry_run_counts_and_changes_nothing(shell: Any, folder: Path) -> None:
    preview = shell.run("%rag_ingest docs --from handbook --dry-run")
    assert (preview.counts.documents, preview.calls) == (3, 0)
    assert "3 documents to ingest" in preview._repr_mimebundle_()["text/plain"]
    assert current_workspace().collections() == []
