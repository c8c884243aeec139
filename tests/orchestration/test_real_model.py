"""Answers of a real model over real HTTP: small, but no script."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nbrag.models.chat import LocalChatClient
from nbrag.testing import HashEmbedder
from nbrag.types import AnswerDone
from nbrag.workspace import Workspace

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

LIMIT, REST = 40, 20
TEXTS = [
    "Backups are kept for 35 days in the EU region.",
    "Backups are kept for 14 days in the US region.",
    "The tide starts at half past one at night.",
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with (
        LocalChatClient(max_tokens=150) as chat,
        Workspace(embedder=HashEmbedder(), chat=chat) as opened,
    ):
        opened.ingest("docs", [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        yield opened


@pytest.mark.parametrize("citations", [True, False])
@pytest.mark.parametrize("question", ["How long are backups kept in the EU?", "What is the fee?"])
def test_an_answer_ends_in_time_and_claims_nothing_that_was_not_checked(
    workspace: Workspace, question: str, citations: bool
) -> None:
    started = time.monotonic()
    events = []
    answer = workspace.ask(
        question,
        citations=citations,
        time_limit=LIMIT,
        max_tokens=120,
        progress=events.extend,
    )
    assert time.monotonic() - started < LIMIT + REST
    assert isinstance(events[-1], AnswerDone)
    texts = {passage.number: passage.content for passage in answer.passages}
    for citation in answer.citations:
        assert citation.quote in texts[citation.number]
    if answer.outcome == "answered" and citations:
        assert answer.support is not None
        assert answer.support == 1.0 or answer.warnings
    if answer.outcome == "failed":
        assert answer.warnings
