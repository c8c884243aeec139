"""Refinement: results cut down to what helps, and still pointing to their source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nbrag
from nbrag.errors import (
    ChatUnavailable,
)
from nbrag.testing import ScriptedChatClient
from nbrag.workspace import Workspace

from .crag_bench import (
    as_written,
    chunk,
    crag,
    crag_workspace,
    graded,
    ids,
    reply,
    through,
)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    yield from crag_workspace()


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
