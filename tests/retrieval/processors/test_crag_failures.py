"""Corrective retrieval when the model fails: nothing is lost, and all of it is said."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nbrag.errors import (
    BudgetExceeded,
    ChatUnavailable,
    RateLimited,
    StageError,
)
from nbrag.protocols import ChatClient
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import (
    RetrievalResults,
)
from nbrag.workspace import Workspace

from .crag_bench import (
    Elsewhere,
    Slow,
    as_written,
    chunk,
    crag,
    crag_workspace,
    graded,
    ids,
    reply,
    sent,
    through,
)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    yield from crag_workspace()


# What goes wrong --------------------------------------------------------------------------------

GOOD = reply({1: 4, 2: 2})


@pytest.mark.parametrize(
    "words",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Certainly! {GOOD} I hope that helps.",
        f"<think>{reply({1: 1, 2: 1})}</think>{GOOD}",
        '[{"id": 1, "grade": 4}, {"id": 2, "grade": 2}]',
        '{"grades": [{"id": "1", "grade": "4"}, {"id": 2, "grade": 2.0}]}',
    ],
)
def test_one_reply_in_any_form_is_enough(words: str) -> None:
    results = crag([words], graded(4, 2))
    assert [found.record["crag_grade"] for found in results] == [4, 2]
    assert results.warnings == ()


JUNK = {
    "prose": "The first one is good.",
    "empty": "",
    "refusal": "I'm sorry, I can't do that.",
    "half": '{"grades": [{"id": 1, "grade": 4}, {"id": 2,',
    "wrong ids": reply({77: 5, 78: 5}),
    "out of range": reply({1: 9, 2: 0}),
    "no list": '{"grades": "4 and 2"}',
    "thoughts": "<think>they are 4 and 2",
}


@pytest.mark.parametrize("words", JUNK.values(), ids=JUNK)
def test_junk_twice_is_ambiguous_and_the_results_stay(words: str) -> None:
    chat = ScriptedChatClient([words, words])
    results = crag(chat, graded(*[4] * 12), fallback=Elsewhere(chunk("w")), candidates=10)
    assert ids(results) == [f"c{i}" for i in range(12)]
    assert results.metadata["crag_path"] == "Ambiguous"
    assert results.metadata["crag_score"] is None
    assert results.metadata["needs_followup"] is True
    (warning,) = results.warnings
    assert warning.startswith("stage 'crag': passages 1 to 10 got no grade: ")
    with pytest.raises(StageError, match="scripted did not answer"):
        strict_run(ScriptedChatClient([words, words]))


def strict_run(chat: ChatClient) -> None:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", [{"id": "a", "text": "backups"}])
        through(opened, chat, strict=True)


@pytest.mark.parametrize("words", JUNK.values(), ids=JUNK)
def test_junk_once_is_asked_again(words: str) -> None:
    assert ids(crag([words, GOOD], graded(4, 2))) == ["c0", "c1"]


def test_of_a_wrong_reply_what_can_be_right_counts() -> None:
    words = json.dumps(
        {"grades": [{"id": 1, "grade": 5}, {"id": 2, "grade": 9}, {"id": 3, "grade": 1},
                    {"id": 4, "grade": 2}, {"id": 4, "grade": 5}, {"id": 99, "grade": 5}]}
    )  # fmt: skip
    results = crag([words, words], graded(1, 1, 1, 1))
    assert ids(results) == ["c0", "c1", "c3"]
    assert results.metadata["crag_path"] == "Correct"
    assert "passages 2, 4 got no grade" in results.warnings[0]


@pytest.mark.parametrize(
    "error",
    [
        ChatUnavailable("the server answered 503."),
        RateLimited("too many requests.", retry_after=2.0),
        BudgetExceeded("10 calls are used up."),
    ],
)
def test_a_failing_model_leaves_the_search_its_results(
    workspace: Workspace, error: Exception
) -> None:
    results = through(workspace, ScriptedChatClient(lambda _: error))
    assert len(results) == 5
    assert results.metadata["crag_path"] == "Ambiguous"
    assert error.args[0] in results.warnings[0]
    with pytest.raises(StageError, match=re.escape(error.args[0])):
        through(workspace, ScriptedChatClient(lambda _: error), strict=True)


def test_a_budget_reached_in_the_middle_keeps_what_is_graded() -> None:
    results = crag(
        [reply({1: 1, 2: 4}), BudgetExceeded("1 call is used up.")], graded(1, 4, 1, 1), batch=2
    )
    assert ids(results) == ["c1", "c2", "c3"]
    assert results.warnings == ("stage 'crag': passages 3 to 4 got no grade: 1 call is used up.",)


def test_what_was_graded_before_a_hang_is_kept(workspace: Workspace) -> None:
    chat = Slow(0, as_written, lambda messages: 3 in sent(messages))
    start = time.monotonic()
    results = crag(chat, graded(1, 4, 1, 1), batch=2, time_limit=0.5)
    assert time.monotonic() - start < 3
    assert ids(results) == ["c1", "c2", "c3"]
    assert "within the stage's time" in results.warnings[0]
    hanging = Slow(60, as_written)
    results = through(workspace, hanging, time_limit=0.3)
    assert len(results) == 5
    assert results.metadata["crag_path"] == "Ambiguous"
    with pytest.raises(StageError, match="within the stage's time"):
        through(workspace, hanging, strict=True, time_limit=0.3)


def test_a_fallback_that_hangs_does_not_lose_the_results() -> None:
    class Never(Elsewhere):
        async def retrieve(self, *args: Any, **options: Any) -> RetrievalResults:
            await asyncio.sleep(60)
            raise AssertionError

    results = crag(as_written, graded(2, 3), fallback=Never(), time_limit=0.3)
    assert ids(results) == ["c0", "c1"]
    assert "the fallback failed: there was no answer" in results.warnings[0]
