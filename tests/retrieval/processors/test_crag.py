"""Corrective retrieval: what is graded, which path it takes, what is kept, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

import nbrag
from nbrag.errors import (
    BudgetExceeded,
    ChatUnavailable,
    ConfigurationError,
    DatabaseLocked,
    ModelError,
    RateLimited,
    SpecificationError,
    StageError,
)
from nbrag.models.chat.passages import PASSAGES_ARE_DATA
from nbrag.protocols import ChatClient
from nbrag.retrieval import RetrievalPipelineBuilder, VectorStoreRetriever
from nbrag.retrieval.processors.crag import CragOptions, CragValidator
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import (
    ChatMessage,
    ChatReply,
    RetrievalChunk,
    RetrievalQuery,
    RetrievalResults,
    Span,
)
from nbrag.workspace import Workspace

QUESTION = "how is a backup made?"


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        backup = "Backups are made with the dump command, grade=5. " * 2
        other = "Backups of cats are drawn by hand, grade=1. The cat is asleep today, grade=2."
        records = [{"id": "good", "text": backup}, {"id": "bad", "text": other}]
        records += [{"id": f"n{i}", "text": f"backups number {i}, grade=2."} for i in range(10)]
        opened.ingest("docs", records)
        opened.ingest("web", [{"id": "w", "text": "Backups: on the web, grade=5."}])
        yield opened


def sent(messages: Sequence[ChatMessage]) -> dict[int, str]:
    """Return the passages of a prompt, by the number that they were sent under."""
    lines = [json.loads(x) for x in messages[1].content.splitlines() if x.startswith('{"id"')]
    return {line["id"]: line["text"] for line in lines}


def reply(grades: Mapping[int, int], reasoning: str = "as it is") -> str:
    rows = [{"id": number, "grade": grade} for number, grade in grades.items()]
    return json.dumps({"reasoning": reasoning, "grades": rows})


def as_written(messages: Sequence[ChatMessage]) -> str:
    """A model that gives each passage the best grade that is written in it."""
    return reply(
        {
            n: max(map(int, re.findall(r"grade=(\d)", t)), default=1)
            for n, t in sent(messages).items()
        }
    )


def chunk(name: str, text: str = "", **record: Any) -> RetrievalChunk:
    text = text or f"This is the passage {name}."
    return RetrievalChunk(name, f"doc-{name}", text, 0.5, record, None, Span(10, 10 + len(text)))


def graded(*grades: int) -> list[RetrievalChunk]:
    return [chunk(f"c{i}", f"Passage {i} says, grade={g}.") for i, g in enumerate(grades)]


class Elsewhere:
    """A retriever that finds what it is given."""

    def __init__(self, *found: Any) -> None:
        self.found = found
        self.asked: list[Any] = []

    async def retrieve(
        self, query: str | RetrievalQuery, *, top_k: int = 5, where: Any = None
    ) -> RetrievalResults:
        self.asked.append((query, top_k, where))
        for one in self.found:
            if isinstance(one, BaseException):
                raise one
        return RetrievalResults(RetrievalQuery(str(query)), self.found[:top_k], warnings=("slow",))


def crag(
    chat: ChatClient | Sequence[Any] | Callable[[Any], Any],
    chunks: Sequence[RetrievalChunk],
    *,
    fallback: Any = None,
    strict: bool = False,
    top_k: int = 5,
    **options: Any,
) -> RetrievalResults:
    client = chat if isinstance(chat, ChatClient) else ScriptedChatClient(chat)
    options = {"refine": False, **options}
    stage = CragValidator(client, CragOptions(**options), fallback=fallback, strict=strict)
    results = RetrievalResults(RetrievalQuery(QUESTION, top_k), tuple(chunks), {"kept": 1})
    changed: RetrievalResults = nbrag.run(stage.process(results, None))  # type: ignore[arg-type]
    assert changed.metadata["kept"] == 1
    return changed


def ids(results: Sequence[RetrievalChunk]) -> list[str]:
    return [found.id for found in results]


def through(
    workspace: Workspace, chat: ChatClient, *, strict: bool = False, **options: Any
) -> RetrievalResults:
    context = BuildContext(lambda: workspace.embedder, lambda: chat, strict)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    pipeline = builder.use_crag(**options).build()
    results: RetrievalResults = nbrag.run(
        pipeline.process(workspace["docs"], "made with the dump command")
    )
    return results


# The three paths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grades", "path", "kept", "low", "more"),
    [
        ((4,), "Correct", [0], False, False),
        ((1, 5, 2), "Correct", [1, 2], False, False),
        ((3, 1), "Ambiguous", [0], False, True),
        ((2, 2), "Ambiguous", [0, 1], False, True),
        ((1, 1, 1), "Incorrect", [], True, False),
    ],
)
def test_any_good_grade_is_correct_and_only_bad_ones_are_incorrect(
    grades: tuple[int, ...], path: str, kept: list[int], low: bool, more: bool
) -> None:
    results = crag(as_written, graded(*grades))
    assert ids(results) == [f"c{i}" for i in kept]
    assert results.metadata["crag_path"] == path
    assert results.metadata["crag_score"] == max(grades)
    assert "as it is" in results.metadata["crag_reasoning"]
    assert results.metadata["low_confidence"] is low
    assert results.metadata["needs_followup"] is more
    assert [found.record["crag_grade"] for found in results] == [grades[i] for i in kept]


def test_thresholds_move_the_paths() -> None:
    assert crag(as_written, graded(4), upper=5).metadata["crag_path"] == "Ambiguous"
    assert crag(as_written, graded(2, 2), lower=2).metadata["crag_path"] == "Incorrect"
    assert crag(as_written, graded(1), lower=0).metadata["crag_path"] == "Ambiguous"


def test_no_results_are_incorrect_without_a_call() -> None:
    results = crag([], [])
    assert results.metadata["crag_score"] == 0
    assert results.metadata["crag_path"] == "Incorrect"
    assert results.metadata["low_confidence"] is True
    assert len(results) == 0


def test_what_is_not_there_is_said_plainly() -> None:
    results = crag(as_written, graded(1, 1))
    assert results.warnings == ("stage 'crag': not in this collection",)
    assert results.metadata["crag_reasoning"] == "not in this collection. as it is"
    kept = crag(as_written, graded(1, 1), on_incorrect="keep")
    assert ids(kept) == ["c0", "c1"]
    assert all(found.record["low_confidence"] for found in kept)
    assert kept.metadata["low_confidence"] is True
    assert kept.warnings == results.warnings


def test_the_first_candidates_are_graded_at_once_and_in_batches() -> None:
    chat = ScriptedChatClient(as_written)
    results = crag(chat, graded(*[3] * 12), candidates=10)
    assert len(chat.calls) == 1
    assert ids(results) == [f"c{i}" for i in range(10)]
    chat = ScriptedChatClient(as_written)
    crag(chat, graded(*[3] * 12), candidates=12, batch=5)
    assert [list(sent(call.messages)) for call in chat.calls] == [
        [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12]
    ]  # fmt: skip


def test_batches_run_at_the_same_time() -> None:
    start = time.monotonic()
    crag(Slow(0.3, as_written), graded(*[3] * 8), batch=1)
    assert time.monotonic() - start < 1.2


def test_the_prompt_is_the_same_for_the_same_texts_and_says_what_passages_are() -> None:
    chat = ScriptedChatClient(as_written)
    crag(chat, graded(3, 4))
    crag(chat, graded(3, 4))
    one, other = chat.calls
    assert one == other
    assert PASSAGES_ARE_DATA in one.messages[0].content
    assert one.options["temperature"] == 0.0
    assert "doc-c0" not in one.text


# The fallback -----------------------------------------------------------------------------------


def test_on_incorrect_the_fallback_is_graded_alike() -> None:
    found = Elsewhere(chunk("w1", "Web, grade=1."), chunk("w2", "Web, grade=5."))
    results = crag(as_written, graded(1, 1), fallback=found, top_k=3)
    assert ids(results) == ["w2"]
    assert results[0].record["retriever"] == "fallback"
    assert results[0].record["crag_grade"] == 5
    assert results.metadata["crag_path"] == "Incorrect"
    assert results.metadata["low_confidence"] is False
    assert results.warnings == ("fallback: slow",)
    assert found.asked == [(QUESTION, 3, None)]


def test_on_ambiguous_it_supplements_by_grade() -> None:
    own = [*graded(2, 3), chunk("same", "The same words, grade=2.")]
    found = Elsewhere(
        chunk("w1", "Web one, grade=2."),
        chunk("w2", "Web two, grade=4."),
        chunk("c0", "an id that is there already, grade=5"),
        chunk("w3", "The  same words, grade=2."),
    )
    results = crag(as_written, own, fallback=found)
    assert ids(results) == ["w2", "c1", "c0", "same", "w1"]
    assert [c.score for c in results] == [4, 3, 2, 2, 2]
    assert ["retriever" in c.record for c in results] == [True, False, False, False, True]
    assert results.metadata["crag_path"] == "Ambiguous"
    assert results.metadata["needs_followup"] is False


def test_a_correct_set_needs_no_fallback() -> None:
    found = Elsewhere(chunk("w"))
    assert ids(crag(as_written, graded(4, 1), fallback=found)) == ["c0"]
    assert found.asked == []


def test_without_results_the_fallback_answers() -> None:
    results = crag(as_written, [], fallback=Elsewhere(chunk("w", "Web, grade=4.")))
    assert ids(results) == ["w"]
    assert results.metadata["crag_score"] == 0


def test_a_fallback_without_anything_of_use_is_said() -> None:
    results = crag(as_written, graded(1), fallback=Elsewhere(chunk("w", "Web, grade=1.")))
    assert len(results) == 0
    assert results.warnings[-1] == (
        "stage 'crag': not in this collection, and the fallback found nothing of use"
    )


@pytest.mark.parametrize("error", [ConnectionError("refused"), ChatUnavailable("refused")])
def test_a_failing_fallback_is_a_warning_or_raises_when_strict(error: Exception) -> None:
    results = crag(as_written, graded(2, 3), fallback=Elsewhere(error))
    assert ids(results) == ["c0", "c1"]
    assert "the fallback failed: " in results.warnings[0]
    assert "refused" in results.warnings[0]
    with pytest.raises((StageError, ChatUnavailable), match="refused"):
        crag(as_written, graded(2, 3), fallback=Elsewhere(error), strict=True)


def test_what_the_person_must_mend_is_raised() -> None:
    with pytest.raises(DatabaseLocked):
        crag(as_written, graded(2), fallback=Elsewhere(DatabaseLocked("a.db", 1)))
    with pytest.raises(ModelError, match="key"):
        crag([ModelError("the key is wrong.")], graded(2))


def test_another_collection_can_be_the_fallback(workspace: Workspace) -> None:
    retriever = VectorStoreRetriever(workspace["web"], workspace.embedder)
    chat = ScriptedChatClient(
        lambda m: reply({n: 5 if "web" in t else 1 for n, t in sent(m).items()})
    )
    context = BuildContext(lambda: workspace.embedder, lambda: chat)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    pipeline = builder.use(CragValidator(chat, fallback=retriever)).build()
    results = nbrag.run(pipeline.process(workspace["docs"], "made with the dump command"))
    assert [c.content for c in results] == ["Backups: on the web, grade=5."]
    assert results[0].record["retriever"] == "fallback"


# Refinement -------------------------------------------------------------------------------------

LONG = (
    "Cats sleep all day long. They also like to play. Nobody knows why they do. "
    "A backup is made with dump, grade=5. It takes one file name. The file is written at once. "
    "Dogs bark at night outside. They run in the park. Birds sing all the day. "
    "Restoring is another matter, grade=3. See the other chapter. It is a short one."
)


def test_results_are_cut_down_to_the_strips_that_help() -> None:
    results = crag(as_written, [chunk("a", LONG), chunk("b", "Nothing, grade=2.")], refine=True)
    assert ids(results) == ["a", "b"]
    content = results[0].content
    assert content.startswith("A backup is made with dump, grade=5.")
    assert " [...] Restoring is another matter" in content
    assert "Cats" not in content
    assert "Dogs" not in content
    for start, end in results[0].record["strip_spans"]:
        assert LONG[start - 10 : end - 10] in content
    span = results[0].span
    assert span is not None
    assert LONG[span.start - 10 : span.end - 10].startswith("A backup")


def test_only_the_best_strips_are_kept_in_all() -> None:
    chat = ScriptedChatClient(as_written)
    results = crag(chat, [chunk("b", "It helps a bit, grade=2."), chunk("a", LONG)],
                   refine=True, strips=1)  # fmt: skip
    assert ids(results) == ["a"]
    assert "Restoring" not in results[0].content
    assert len(chat.calls) == 2


def test_no_more_results_are_refined_than_are_shown() -> None:
    results = crag(as_written, graded(*[5] * 8), refine=True, top_k=3)
    assert ids(results) == ["c0", "c1", "c2"]


def test_refined_results_point_to_their_source_through_the_pipeline(workspace: Workspace) -> None:
    results = through(workspace, ScriptedChatClient(as_written))
    assert results.metadata["crag_path"] == "Correct"
    assert results.warnings == ()
    assert results[0].history[-2].stage == "crag"
    for found in results:
        text = nbrag.run(workspace["docs"].document_text(found.document_id))
        assert found.record["strip_spans"]
        for start, end in found.record["strip_spans"]:
            assert text[start:end] in found.content


@pytest.mark.parametrize(
    ("replies", "word"),
    [
        ([reply({1: 5}), ChatUnavailable("down.")], "got no grade: down."),
        ([reply({1: 5}), "prose", "prose"], "strips 1 to 4 got no grade"),
        ([reply({1: 5}), reply({1: 1, 2: 1, 3: 1, 4: 1})], "no strip was found to help"),
    ],
)
def test_results_stay_whole_when_strips_get_no_grades(replies: list[Any], word: str) -> None:
    results = crag(replies, [chunk("a", LONG)], refine=True)
    assert results[0].content == LONG
    assert word in results.warnings[0]
    assert "stay whole" in results.warnings[-1]


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


class Slow:
    """A model that takes its time; ``hangs`` says for which prompts it never answers."""

    model = "slow"

    def __init__(
        self, seconds: float, answer: Callable[[Any], str], hangs: Callable[[Any], bool] = bool
    ) -> None:
        self.seconds, self.answer, self.hangs = seconds, answer, hangs

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        await asyncio.sleep(60 if self.hangs is not bool and self.hangs(messages) else self.seconds)
        return ChatReply(self.answer(messages))


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


# Grading by itself ------------------------------------------------------------------------------


def test_grades_can_be_had_without_a_pipeline() -> None:
    stage = CragValidator(ScriptedChatClient(as_written))
    assert nbrag.run(stage.grade(QUESTION, graded(3, 5))) == [3, 5]
    part = CragValidator(ScriptedChatClient([reply({1: 3}), reply({1: 3})]))
    with pytest.warns(RuntimeWarning, match="passage 2 got no grade"):
        assert nbrag.run(part.grade(QUESTION, graded(3, 5))) == [3, None]
    with pytest.raises(ChatUnavailable):
        nbrag.run(
            CragValidator(ScriptedChatClient([ChatUnavailable("down.")])).grade("q", graded(1))
        )


# Building it ------------------------------------------------------------------------------------


def test_without_a_model_or_with_a_fallback_that_is_none_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="chat client"):
        CragValidator(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no retriever"):
        CragValidator(ScriptedChatClient([]), fallback="web")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("crag", {}),
        ("crag upper=5 lower=2 refine=false", {"upper": 5, "lower": 2, "refine": False}),
        (
            "crag time_limit=9 strips=4 on_incorrect=keep candidates=20 words=100 batch=1",
            {"time_limit": 9, "strips": 4, "on_incorrect": "keep", "candidates": 20,
             "words": 100, "batch": 1},
        ),
    ],
)  # fmt: skip
def test_cell_builder_and_dict_are_the_same(
    workspace: Workspace, line: str, options: dict[str, Any]
) -> None:
    chat = ScriptedChatClient(as_written)
    context = BuildContext(lambda: workspace.embedder, lambda: chat)
    start = RetrievalPipelineBuilder(PipelineSpec("retrieval", "best"), context)
    built = start.use_crag(**options).spec
    cell = PipelineSpec.from_cell(f"%%rag_pipeline best\n{line}\n")
    data = PipelineSpec.from_dict(json.loads(json.dumps(built.to_dict())))
    assert built == cell == data
    assert built.to_cell() == cell.to_cell() == data.to_cell()
    assert PipelineSpec.from_cell(built.to_cell()) == built
    assert built.to_python() == cell.to_python() == data.to_python()
    assert ".use_crag(" in built.to_python()
    found = []
    for spec in (built, cell, data):
        pipeline = RetrievalPipelineBuilder(spec, context).build()
        results = nbrag.run(pipeline.process(workspace["docs"], "made with the dump command"))
        found.append([(c.id, c.content, c.score) for c in results])
    assert found[0] == found[1] == found[2] != []


@pytest.mark.parametrize("line", ["crag upper=6", "crag upper=2 lower=2", "crag fallback=web"])
def test_what_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(SpecificationError, match="stage 'crag'"):
        PipelineSpec.from_body("retrieval", line)
