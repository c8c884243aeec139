"""Thresholds from judgements: the best cuts are found, and open choices keep the defaults."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbrag
from nbrag.errors import ChatUnavailable, JudgementsError
from nbrag.retrieval.calibration import CragCalibration, calibrate_crag
from nbrag.retrieval.processors.crag import CragOptions, CragValidator
from nbrag.testing import ScriptedChatClient
from nbrag.types import ChatMessage, RetrievalChunk


def as_written(messages: Sequence[ChatMessage]) -> str:
    """A model that gives each passage the grade that stands at its end."""
    lines = [json.loads(x) for x in messages[1].content.splitlines() if x.startswith('{"id"')]
    rows = [{"id": x["id"], "grade": int(x["text"][-1])} for x in lines if x["text"][-1] != "?"]
    return json.dumps({"grades": rows})


def calibrated(*judged: tuple[int | str, bool]) -> CragCalibration:
    """Calibrate on one question whose chunks have these grades and judgements."""
    chunks = [RetrievalChunk(f"c{i}", f"d{i}", f"is {g}", 1.0) for i, (g, _) in enumerate(judged)]
    relevant = [f"{'dc'[i % 2]}{i}" for i, (_, good) in enumerate(judged) if good]
    validator = CragValidator(ScriptedChatClient(as_written))
    return nbrag.run(calibrate_crag(validator, [("q", chunks, relevant)]))


@pytest.mark.parametrize(
    ("judged", "upper", "lower"),
    [
        # The defaults where they are as good as others.
        ([(5, True), (1, False)], 4, 1),
        ([(4, True), (5, True), (1, False)], 4, 1),
        # A generous model, a strict one.
        ([(5, True), (5, True), (4, False), (4, False), (3, False)], 5, 4),
        ([(2, True), (3, True), (5, True), (1, False), (1, False)], 2, 1),
        # What the upper cut leaves open is cut once more.
        ([(5, True)] * 9 + [(3, True)] + [(2, False)] * 9 + [(3, False)] * 9, 4, 2),
    ],
)
def test_the_best_cuts_are_found(judged: list[tuple[int, bool]], upper: int, lower: int) -> None:
    found = calibrated(*judged)
    assert (found.upper, found.lower) == (upper, lower)
    assert found.chunks == len(judged)
    assert found.relevant == sum(good for _, good in judged)


def test_accuracies_are_the_mean_over_both_kinds() -> None:
    found = calibrated((5, True), (5, True), (5, True), (3, True), (5, False), (1, False))
    # From 4 up: three of four relevant ones and one of two others are called right.
    assert found.upper in {2, 3}
    assert found.upper_accuracy == (4 / 4 + 1 / 2) / 2
    assert found.lower_accuracy == 1


GRADES = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=2, max_size=30)


@given(GRADES)
def test_no_other_upper_cut_is_better_and_the_stage_takes_what_is_found(
    judged: list[tuple[int, bool]],
) -> None:
    if len({good for _, good in judged}) < 2:
        with pytest.raises(JudgementsError, match="relevant and irrelevant"):
            calibrated(*judged)
        return
    found = calibrated(*judged)
    for cut in range(2, 6):
        hits = [grade >= cut for grade, good in judged if good]
        others = [grade < cut for grade, good in judged if not good]
        accuracy = (sum(hits) / len(hits) + sum(others) / len(others)) / 2
        assert found.upper_accuracy >= accuracy
    CragOptions(upper=found.upper, lower=found.lower)


def test_chunks_without_a_grade_are_counted_and_left_out() -> None:
    with pytest.warns(RuntimeWarning, match="passage 3 got no grade"):
        found = calibrated((5, True), (1, False), ("?", True))
    assert (found.chunks, found.relevant, found.ungraded, found.questions) == (2, 1, 1, 1)


def test_no_judgements_and_no_model_are_errors() -> None:
    validator = CragValidator(ScriptedChatClient([ChatUnavailable("down.")]))
    with pytest.raises(JudgementsError, match="0 graded chunks of 0 questions"):
        nbrag.run(calibrate_crag(validator, []))
    chunks = [RetrievalChunk("c", "d", "text", 1.0)]
    with pytest.raises(ChatUnavailable):
        nbrag.run(calibrate_crag(validator, [("q", chunks, ["c"])]))
