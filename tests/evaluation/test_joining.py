"""Several reports as one, and questions ordered by what two pipelines make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrag.errors import ConfigurationError
from nbrag.evaluation.comparison import EvaluationReport
from nbrag.evaluation.joining import join_reports, worst_differences

QUESTIONS = {"1": "one?", "2": "two?", "3": "three?"}


def report(name: str, *values: float | None, notes: tuple[str, ...] = ()) -> EvaluationReport:
    given = dict(zip(QUESTIONS, values, strict=True))
    return EvaluationReport(
        "docs",
        "cases",
        (name,),
        ("MRR",),
        {name: {q: {"MRR": v} for q, v in given.items() if v is not None}},
        {name: {q: "broken" for q, v in given.items() if v is None}},
        QUESTIONS,
        {name: {q: ["a"] for q in QUESTIONS}},
        {q: {"a": 1} for q in QUESTIONS},
        notes,
    )


def test_a_joined_report_is_that_of_a_common_run() -> None:
    first = report("plain", 1.0, 0.5, 0.0, notes=("same", "own"))
    second = report("other", 0.5, None, 1.0, notes=("same",))
    joined = join_reports([first, second])
    assert joined.pipelines == ("plain", "other")
    assert joined.scores["other"] == second.scores["other"]
    assert joined.failures == {"plain": {}, "other": {"2": "broken"}}
    assert joined.notes == ("same", "own")
    assert joined.compare("other").questions == 2


def test_what_does_not_belong_together_is_refused() -> None:
    first = report("plain", 1.0, 0.5, 0.0)
    for others in (
        [],
        [first, first],
        [first, replace(report("b", 1.0, 1.0, 1.0), collection="notes")],
        [first, replace(report("b", 1.0, 1.0, 1.0), metrics=("MAP",))],
    ):
        with pytest.raises(ConfigurationError):
            join_reports(others)


def test_the_worst_difference_stands_first_and_failures_before_it() -> None:
    joined = join_reports([report("plain", 1.0, 0.5, 0.2), report("other", 0.25, None, 1.0)])
    pairs = worst_differences(joined, "other", "plain", "MRR")
    assert [pair.query_id for pair in pairs] == ["2", "1", "3"]
    assert pairs[0].difference is None
    assert pairs[1].difference == pytest.approx(-0.75)
    alone = worst_differences(joined, "plain", "plain", "MRR")
    assert [pair.query_id for pair in alone] == ["3", "2", "1"]


@pytest.mark.parametrize(
    "names", [("x", "plain", "MRR"), ("plain", "x", "MRR"), ("plain", "plain", "MAP")]
)
def test_unknown_names_are_told(names: tuple[str, str, str]) -> None:
    with pytest.raises(ConfigurationError, match="the report has no"):
        worst_differences(report("plain", 1.0, 0.5, 0.2), *names)
