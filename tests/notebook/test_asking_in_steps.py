"""``%rag_ask`` with pipelines that answer in rounds or by drafts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbrag.notebook.session import current_workspace
from nbrag.testing import ScriptedChatClient

QUOTE = "Backups are kept for 35 days in the EU region."


def reply(messages: Any) -> str:
    """Answer from the passage that holds the quote; every claim is supported, every draft good."""
    system, user = messages[0].content, messages[-1].content
    found = [
        json.loads(line)["id"] for line in user.splitlines() if '"id"' in line and QUOTE in line
    ]
    if "You check an answer" in system:
        claim = {"claim": "It is 35 days.", "verdict": "supported", "passages": found}
        return json.dumps({"claims": [{**claim, "quote": "kept for 35 days"}]})
    if "You weigh drafts" in system:
        count = user.count('{"draft"')
        return json.dumps({"scores": [{"draft": n, "score": 5} for n in range(1, count + 1)]})
    if not found:
        return "ANSWER\nNOT ANSWERED: the passages do not tell."
    return f'EVIDENCE\n[{found[0]}] "kept for 35 days"\nANSWER\nFor 35 days [{found[0]}].'


@pytest.mark.parametrize("stage", ["self_rag  rounds=2", "speculative_rag  drafts=3  subset=1"])
def test_a_kept_pipeline_answers_in_steps(filled: Any, stage: str) -> None:
    current_workspace().use_chat(ScriptedChatClient(reply))
    filled.run(f"%%rag_pipeline steps -c docs\n{stage}")
    answer = filled.run("%rag_ask -p steps How long are backups kept?")
    assert answer.outcome == "answered"
    assert answer.text.startswith("For 35 days")
    assert answer.rounds or answer.drafts
    shown = answer._repr_mimebundle_()["text/plain"]
    assert "Claims of each round" in shown or "Scores of the drafts" in shown
