"""Corrective retrieval: which path is taken, what is kept, and how the stage is built."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

import nbrag
from nbrag.errors import (
    ChatUnavailable,
    ConfigurationError,
    DatabaseLocked,
    ModelError,
    SpecificationError,
    StageError,
)
from nbrag.models.chat.passages import PASSAGES_ARE_DATA
from nbrag.retrieval import RetrievalPipelineBuilder, VectorStoreRetriever
from nbrag.retrieval.processors.crag import CragValidator
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import ScriptedChatClient
from nbrag.workspace import Workspace

from .crag_bench import (
    QUESTION,
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
)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    yield from crag_workspace()


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
