"""The LLM reranker: orders by the model's word, whatever form that has, and loses nothing."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import nbrag
from nbrag.errors import (
    BudgetExceeded,
    ChatUnavailable,
    ConfigurationError,
    ModelError,
    RateLimited,
    ReplyInvalid,
    SpecificationError,
    StageError,
)
from nbrag.models.chat.passages import PASSAGES_ARE_DATA
from nbrag.protocols import ChatClient, Reranker
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.llm_reranker import LlmReranker
from nbrag.retrieval.processors.rerank import RerankOptions
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import ChatMessage, ChatReply, RetrievalChunk, RetrievalQuery, RetrievalResults
from nbrag.workspace import Workspace

QUESTION = "which number is best?"


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        records = [{"id": str(i), "text": f"number text worth {i * 7 % 60}"} for i in range(60)]
        opened.ingest("docs", records)
        yield opened


def sent(messages: Sequence[ChatMessage]) -> dict[int, str]:
    """Return the passages of a prompt, by the number that they were sent under."""
    lines = [json.loads(x) for x in messages[1].content.splitlines() if x.startswith('{"id"')]
    return {line["id"]: line["text"] for line in lines}


def by_worth(messages: Sequence[ChatMessage]) -> str:
    """A perfect model: what is worth more comes first."""
    passages = sent(messages)
    ranking = sorted(passages, key=lambda number: -int(passages[number].split()[-1]))
    return json.dumps({"ranking": ranking})


def chunk(number: int, score: float = 0.0) -> RetrievalChunk:
    return RetrievalChunk(str(number), "d", f"worth {number}", score or 1 / (1 + number))


def rerank(
    chat: ChatClient, count: int, *, strict: bool = False, **options: Any
) -> RetrievalResults:
    """Rerank results whose worth rises from 0, so that all are in the wrong order."""
    stage = LlmReranker(chat, RerankOptions(model="llm", **options), strict=strict)
    results = RetrievalResults(
        RetrievalQuery(QUESTION), tuple(chunk(i) for i in range(count)), {"kept": 1}
    )
    changed: RetrievalResults = nbrag.run(stage.process(results, None))  # type: ignore[arg-type]
    return changed


def names(results: Sequence[RetrievalChunk]) -> list[int]:
    return [int(chunk.id) for chunk in results]


def through(
    workspace: Workspace, chat: ChatClient, *, strict: bool = False, top_k: int = 5, **options: Any
) -> RetrievalResults:
    context = BuildContext(lambda: workspace.embedder, lambda: chat, strict)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    pipeline = builder.use_reranker(model="llm", **options).build()
    results: RetrievalResults = nbrag.run(
        pipeline.process(workspace["docs"], "number text", top_k=top_k)
    )
    return results


# The order ------------------------------------------------------------------------------------


def test_results_come_in_the_models_order_through_the_pipeline(workspace: Workspace) -> None:
    chat = ScriptedChatClient(by_worth)
    results = through(workspace, chat, candidates=60)
    assert [c.content.split()[-1] for c in results] == ["59", "58", "57", "56", "55"]
    assert results.metadata["reranked"] is True
    assert results.warnings == ()
    assert len(chat.calls) == 5
    for rank, found in enumerate(results, start=1):
        scores = {entry.stage: (entry.rank, entry.score) for entry in found.history}
        assert scores["rerank"] == (rank, (61 - rank) / 60)
        assert found.score == (61 - rank) / 60
        assert scores["search"][1] is not None


@pytest.mark.parametrize("count", [2, 3, 19, 20, 21, 25, 60])
def test_every_length_is_ordered_up_to_the_top(count: int) -> None:
    chat = ScriptedChatClient(by_worth)
    results = rerank(chat, count, candidates=60)
    best = list(range(count - 1, -1, -1))
    assert names(results)[:10] == best[:10]
    assert sorted(names(results)) == sorted(best)
    assert len(chat.calls) == (1 if count <= 20 else 1 + -(-(count - 20) // 10))


@pytest.mark.parametrize("count", [0, 1])
def test_one_result_is_left_alone_without_a_call(count: int) -> None:
    chat = ScriptedChatClient([])
    results = rerank(chat, count)
    assert [c.history for c in results] == [()] * count
    assert chat.calls == []


def test_scores_fall_strictly_and_depend_on_the_rank_alone() -> None:
    scores = [c.score for c in rerank(ScriptedChatClient(by_worth), 8)]
    assert scores == [(9 - rank) / 8 for rank in range(1, 9)]


def test_only_the_candidates_are_sent_and_the_others_follow() -> None:
    chat = ScriptedChatClient(by_worth)
    results = rerank(chat, 12, candidates=6)
    assert names(results) == [5, 4, 3, 2, 1, 0, 6, 7, 8, 9, 10, 11]
    assert [c.score for c in results] == sorted((c.score for c in results), reverse=True)
    assert len(sent(chat.calls[0].messages)) == 6


def test_as_many_results_are_kept_as_asked_for(workspace: Workspace) -> None:
    assert names(rerank(ScriptedChatClient(by_worth), 12, keep=3)) == [11, 10, 9]
    assert len(through(workspace, ScriptedChatClient(by_worth), keep=3, top_k=10)) == 3


def test_the_prompt_is_the_same_for_the_same_texts_and_says_what_passages_are() -> None:
    chat = ScriptedChatClient(by_worth)
    rerank(chat, 3)
    rerank(chat, 3)
    one, other = chat.calls
    assert one == other
    assert PASSAGES_ARE_DATA in one.messages[0].content
    assert json.dumps({"question": QUESTION}) in one.messages[1].content
    assert one.options["temperature"] == 0.0
    assert one.options["response_format"]["type"] == "json_schema"


def test_passages_are_cut_to_so_many_words() -> None:
    chat = ScriptedChatClient(['{"ranking": [2, 1]}'])
    stage = LlmReranker(chat, RerankOptions(model="llm", words=10))
    long = [RetrievalChunk(str(i), "d", "word " * 50, 1.0) for i in range(2)]
    assert names(nbrag.run(stage.rerank("q", long))) == [1, 0]
    assert sent(chat.calls[0].messages)[1] == ("word " * 10).strip()


def test_it_is_a_reranker_too() -> None:
    reranker = LlmReranker(ScriptedChatClient(by_worth))
    assert isinstance(reranker, Reranker)
    ordered = nbrag.run(reranker.rerank(QUESTION, [chunk(i, 0.5) for i in range(30)]))
    assert names(ordered)[:3] == [29, 28, 27]
    assert ordered[0].history[-1].stage == "rerank"
    assert nbrag.run(LlmReranker(ScriptedChatClient([])).rerank("q", [chunk(1)])) == [chunk(1)]


# What models answer instead ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "order"),
    [
        ('{"ranking": [3, 1, 2]}', [2, 0, 1]),
        ('```json\n{"ranking": [3, 1, 2]}\n```', [2, 0, 1]),
        ('Here you are: {"ranking": [3, 1, 2]} Anything else?', [2, 0, 1]),
        ('<think>{"ranking": [1, 2, 3]}</think>{"ranking": [3, 1, 2]}', [2, 0, 1]),
        ("[3] > [1] > [2]", [2, 0, 1]),
        ("The ranking is [3] > [1].", [2, 0, 1]),
        ("[3, 1, 2]", [2, 0, 1]),
        ('{"ranking": ["[3]", "[1]", "[2]"]}', [2, 0, 1]),
        ('{"order": [3, 1, 2]}', [2, 0, 1]),
        ('{"ranking": [3]}', [2, 0, 1]),
        ('{"ranking": [3, 3, 1, 1, 3]}', [2, 0, 1]),
        ('{"ranking": [3, 0, 17, -2, 1]}', [2, 0, 1]),
    ],
)
def test_one_reply_in_any_form_is_enough(reply: str, order: list[int]) -> None:
    results = rerank(ScriptedChatClient([reply]), 3)
    assert names(results) == order
    assert results.warnings == ()


JUNK = [
    "I think the first passage is rather good.",
    "",
    "I'm sorry, but I can't help with that.",
    '{"ranking": [3, 1',
    '{"ranking": [7, 8, 9]}',
    '{"order": "3, 1, 2"}',
    "<think>hm, [3] > [1] > [2]",
    '{"ranking": []}',
]


@pytest.mark.parametrize("reply", JUNK)
def test_junk_is_shown_to_the_model_once_and_a_better_answer_counts(reply: str) -> None:
    chat = ScriptedChatClient([reply, "[3] > [2] > [1]"])
    assert names(rerank(chat, 3)) == [2, 1, 0]
    second = chat.calls[1].messages
    assert [m.role for m in second] == ["system", "user", "assistant", "user"]
    assert second[2].content.strip()


@pytest.mark.parametrize("reply", JUNK)
def test_after_junk_twice_the_old_order_stays_with_a_warning(reply: str) -> None:
    results = rerank(ScriptedChatClient([reply, reply]), 3, keep=2)
    assert names(results) == [0, 1]
    assert [c.history for c in results] == [(), ()]
    assert results.metadata == {"kept": 1, "reranked": False}
    (warning,) = results.warnings
    assert warning.startswith(
        "stage 'rerank': window 1 of 1 (results 1 to 3) kept their order: scripted did not answer"
    )


FAILURES = [
    ChatUnavailable("the server answered 503."),
    RateLimited("too many requests.", retry_after=2.0),
    BudgetExceeded("10 calls are used up."),
    ReplyInvalid("content filter."),
]


@pytest.mark.parametrize("error", FAILURES)
def test_a_failing_model_leaves_the_search_its_results(
    workspace: Workspace, error: Exception
) -> None:
    plain = through(workspace, ScriptedChatClient(by_worth), candidates=20)
    failed = through(workspace, ScriptedChatClient(lambda _: error), candidates=20)
    assert len(failed) == len(plain) == 5
    assert [c.history[-1].rank for c in failed] == [1, 2, 3, 4, 5]
    assert failed.metadata["reranked"] is False
    (warning,) = failed.warnings
    assert error.args[0] in warning
    with pytest.raises(StageError, match=re.escape(error.args[0])):
        through(workspace, ScriptedChatClient(lambda _: error), strict=True)


def test_a_window_that_fails_keeps_its_order_and_the_others_go_on() -> None:
    def second_fails(messages: Sequence[ChatMessage]) -> str | Exception:
        return ChatUnavailable("down.") if len(chat.calls) == 2 else by_worth(messages)

    chat = ScriptedChatClient(second_fails)
    results = rerank(chat, 40, candidates=40)
    # Of the windows 20-40, 10-30 and 0-20 only the first and the last are ordered.
    assert names(results) == [*range(19, -1, -1), *range(39, 19, -1)]
    assert len(chat.calls) == 3
    assert results.warnings == (
        "stage 'rerank': window 2 of 3 (results 11 to 30) kept their order: down.",
    )
    assert results.metadata["reranked"] is True


def test_a_budget_reached_in_the_middle_stops_with_what_there_is() -> None:
    def used_up(messages: Sequence[ChatMessage]) -> str | Exception:
        over = len(chat.calls) > 1
        return BudgetExceeded("1 call is used up.") if over else by_worth(messages)

    chat = ScriptedChatClient(used_up)
    results = rerank(chat, 60, candidates=60)
    assert names(results) == [*range(40), *range(59, 39, -1)]
    assert len(chat.calls) == 2
    (warning,) = results.warnings
    assert "windows 2 to 5 of 5 (results 1 to 50) kept their order: 1 call" in warning


class Hanging:
    """A model that answers so many times, and then never."""

    model = "hanging"

    def __init__(self, answers: int, answer: Callable[[Sequence[ChatMessage]], str]) -> None:
        self.left, self.answer = answers, answer

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        if self.left == 0:
            await asyncio.sleep(60)
        self.left -= 1
        return ChatReply(self.answer(messages))


def test_what_was_ordered_before_a_hang_is_kept(workspace: Workspace) -> None:
    start = time.monotonic()
    results = through(workspace, Hanging(2, by_worth), candidates=60, time_limit=0.5, top_k=60)
    assert time.monotonic() - start < 5
    (warning,) = results.warnings
    assert "windows 3 to 5 of 5 (results 1 to 40) kept their order" in warning
    assert "no answer within the stage's time" in warning
    # The second window's best have risen to its top.
    worths = [int(c.content.split()[-1]) for c in results]
    assert worths[30:40] == sorted(worths[30:], reverse=True)[:10]
    with pytest.raises(StageError, match="within the stage's time"):
        through(workspace, Hanging(0, by_worth), strict=True, time_limit=0.2)


def test_what_the_person_must_mend_is_raised() -> None:
    with pytest.raises(ModelError, match="key"):
        rerank(ScriptedChatClient([ModelError("the key is wrong.")]), 3)


def test_as_a_reranker_it_warns_or_raises() -> None:
    def second_fails(messages: Sequence[ChatMessage]) -> str | Exception:
        return ChatUnavailable("down.") if len(chat.calls) == 2 else by_worth(messages)

    chat = ScriptedChatClient(second_fails)
    with pytest.warns(RuntimeWarning, match="window 2 of 2"):
        ordered = nbrag.run(LlmReranker(chat).rerank("q", [chunk(i) for i in range(30)]))
    assert sorted(names(ordered)) == list(range(30))
    with pytest.raises(ChatUnavailable, match="down"):
        nbrag.run(
            LlmReranker(ScriptedChatClient([ChatUnavailable("down.")])).rerank(
                "q", [chunk(1), chunk(2)]
            )
        )


# Building it ------------------------------------------------------------------------------------


def test_without_a_model_it_is_refused() -> None:
    for nothing in (None, "gpt", object()):
        with pytest.raises(ConfigurationError, match="chat client"):
            LlmReranker(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "method", "options"),
    [
        ("rerank model=llm keep=5", "use_reranker", {"model": "llm", "keep": 5}),
        ("rerank model=llm", "use_reranker", {"model": "llm"}),
        (
            "rerank time_limit=5 candidates=50 window=10 step=5 words=100 model=llm keep=3",
            "use_reranker",
            {"time_limit": 5, "candidates": 50, "window": 10, "step": 5, "words": 100,
             "model": "llm", "keep": 3},
        ),
        ("rerank model=llm keep=5", "use_llm_reranking", {"max_results": 5}),
        ("rerank model=llm", "use_llm_reranking", {}),
        ("rerank model=llm words=50", "use_llm_reranking", {"words": 50}),
    ],
)  # fmt: skip
def test_cell_builder_and_dict_are_the_same(
    workspace: Workspace, line: str, method: str, options: dict[str, Any]
) -> None:
    chat = ScriptedChatClient(by_worth)
    context = BuildContext(lambda: workspace.embedder, lambda: chat)
    start = RetrievalPipelineBuilder(PipelineSpec("retrieval", "best"), context)
    built = getattr(start, method)(**options).spec
    cell = PipelineSpec.from_cell(f"%%rag_pipeline best\n{line}\n")
    data = PipelineSpec.from_dict(json.loads(json.dumps(built.to_dict())))
    assert built == cell == data
    assert built.to_cell() == cell.to_cell() == data.to_cell()
    assert PipelineSpec.from_cell(built.to_cell()) == built
    assert ".use_reranker(model='llm'" in built.to_python() or "time_limit" in line
    assert built.to_python() == cell.to_python() == data.to_python()
    found = []
    for spec in (built, cell, data):
        pipeline = RetrievalPipelineBuilder(spec, context).build()
        results = nbrag.run(pipeline.process(workspace["docs"], "number text"))
        found.append([(c.id, c.score) for c in results])
    assert found[0] == found[1] == found[2]


def test_both_methods_build_the_same_stage(workspace: Workspace) -> None:
    context = BuildContext(lambda: workspace.embedder, lambda: ScriptedChatClient([]))
    start = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    (one,) = start.use_reranker(model="llm", keep=5).build().result_processors
    (other,) = start.use_llm_reranking(max_results=5).build().result_processors
    assert isinstance(one, LlmReranker)
    assert isinstance(other, LlmReranker)
    assert one.options == other.options


@pytest.mark.parametrize("line", ["rerank", "rerank model=other", "rerank model=llm window=10"])
def test_what_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(SpecificationError, match="stage 'rerank'"):
        PipelineSpec.from_body("retrieval", line)
