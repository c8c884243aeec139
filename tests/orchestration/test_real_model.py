"""Answers in several steps by a real model over real HTTP: small, but no script."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

import nbrag
from nbrag.models.chat import LocalChatClient
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder
from nbrag.types import Answer, ChatMessage
from nbrag.workspace import Workspace

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

#: Seconds that an answer may take, and what the rest may take besides.
LIMIT, REST = 20, 10
TEXTS = [
    "Backups are kept for 35 days in the EU region.",
    "Backups are kept for 14 days in the US region.",
    "The tide starts at half past one at night.",
    "Passwords have at least twelve characters.",
]
STAGES: list[tuple[str, dict[str, Any]]] = [
    ("self_rag", {"rounds": 2, "calls": 12}),
    ("speculative_rag", {"drafts": 2, "calls": 8}),
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with (
        LocalChatClient(max_tokens=120) as chat,
        Workspace(embedder=HashEmbedder(), chat=chat) as opened,
    ):
        # Neither the import nor the start of the server is what is measured.
        nbrag.run(opened.chat.complete([ChatMessage("user", "Hello.")], max_tokens=1))
        opened.ingest("docs", [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        yield opened


@pytest.mark.parametrize(("stage", "options"), STAGES)
def test_an_answer_ends_in_time_and_says_what_went_wrong(
    workspace: Workspace, stage: str, options: dict[str, Any]
) -> None:
    pipeline = PipelineSpec("retrieval", "p").with_stage(
        stage, time_limit=LIMIT, max_tokens=120, **options
    )
    workspace.save_pipeline(pipeline)
    started = time.monotonic()
    answer = workspace.ask("How long are backups kept in the EU?", pipeline="p", top_k=4)
    assert time.monotonic() - started < LIMIT + REST
    assert 1 <= answer.usage.calls <= options["calls"]
    assert answer.outcome == "answered" or answer.reason
    assert len(answer.rounds) <= 2
    assert len(answer.drafts) <= 2
    _assert_honest(answer)


def test_a_real_server_gives_probabilities(workspace: Workspace) -> None:
    asked = [ChatMessage("user", "Is water wet? Reply with one word, Yes or No.")]
    reply = nbrag.run(
        workspace.chat.complete(asked, max_tokens=2, temperature=0, logprobs=True, top_logprobs=5)
    )
    assert 1 <= len(reply.tokens) <= 2
    assert "".join(token.token for token in reply.tokens).startswith(reply.text)
    for token in reply.tokens:
        assert len(token.others) == 5
        assert token.logprob == pytest.approx(token.others[token.token], abs=1e-3)
        assert 0 < sum(math.exp(one) for one in token.others.values()) <= 1.001


def _assert_honest(answer: Answer) -> None:
    """Every quote stands in its passage, and what is not borne out is said."""
    contents = {passage.number: passage.content for passage in answer.passages}
    for citation in answer.citations:
        assert citation.quote in contents[citation.number]
    for claim in answer.claims:
        assert claim.verdict == "unsupported" or claim.quote or claim.note
    doubtful = answer.answered and (answer.support or 0.0) < 1
    failed = any(one.note.startswith("failed") for one in answer.drafts)
    if doubtful or failed or answer.outcome == "failed":
        assert answer.warnings
