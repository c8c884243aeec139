"""The report: figures, differences, poor questions, and what is shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError
from nbrag.evaluation import EvaluationReport
from nbrag.evaluation.paired import PoorQuestion, PoorQuestions

VECTOR = {"1": 0.0, "2": 0.5, "3": 0.5, "4": 1.0}
HYBRID = {"1": 1.0, "2": 0.5, "3": 1.0, "4": 0.5}
HOSTILE = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=40),
    st.sampled_from(["<script>", "</td>", "\ud800", "\u202e", "|", "x" * 1_000_000]),
)


def report(failed: tuple[str, ...] = (), **values: dict[str, float]) -> EvaluationReport:
    values = values or {"vector": VECTOR, "hybrid": HYBRID}
    return EvaluationReport(
        collection="docs",
        judgements="mine",
        pipelines=tuple(values),
        metrics=("MRR", "nDCG@10"),
        scores={
            name: {q: {"MRR": v, "nDCG@10": v * v} for q, v in scores.items() if q not in failed}
            for name, scores in values.items()
        },
        failures={name: dict.fromkeys(failed, "ValueError: broken") for name in values},
        questions={q: f"question {q}" for q in ("1", "2", "3", "4")},
        found={name: {q: ["x.md", "a.md"] for q in scores} for name, scores in values.items()},
        wanted={q: {"b.md": 1, "a.md": 2, "c.md": 0} for q in ("1", "2", "3", "4")},
        notes=("a note",),
    )


def test_means_with_intervals():
    rows = report().summary_rows()
    assert [(row["pipeline"], row["metric"], row["mean"]) for row in rows] == [
        ("vector", "MRR", 0.5),
        ("vector", "nDCG@10", 0.375),
        ("hybrid", "MRR", 0.75),
        ("hybrid", "nDCG@10", 0.625),
    ]
    assert all(row["low"] < row["mean"] < row["high"] for row in rows)
    assert list(rows[0]) == ["pipeline", "metric", "mean", "low", "high"]


def test_differences_are_paired():
    found = report().compare("hybrid", "vector")
    first = found["MRR"]
    assert (found.questions, first.mean) == (4, 0.25)
    assert (first.wins, first.ties, first.losses) == (2, 1, 1)
    assert first.low < 0.25 < first.high
    assert not first.certain
    assert found["nDCG@10"].mean == pytest.approx(0.25)
    with pytest.raises(KeyError):
        found["recall@5"]


def test_the_first_pipeline_is_the_baseline_and_turning_round_changes_the_sign():
    there, back = report().compare("hybrid"), report().compare("vector", "hybrid")
    assert there.baseline == "vector"
    assert there[0].mean == -back[0].mean
    assert (there[0].low, there[0].high) == pytest.approx((-back[0].high, -back[0].low))


def test_a_steady_difference_is_certain():
    better = {q: v + 0.25 for q, v in VECTOR.items()}
    found = report(vector=VECTOR, hybrid=better).compare("hybrid")["MRR"]
    assert (found.low, found.high, found.certain) == (0.25, 0.25, True)


def test_only_questions_that_both_answered_are_compared():
    values = {"vector": VECTOR, "hybrid": {"1": 1.0, "2": 1.0}}
    found = report(**values).compare("hybrid")
    assert (found.questions, found["MRR"].mean) == (2, 0.75)
    nothing = report(vector={"1": 1.0}, hybrid={"2": 1.0}).compare("hybrid")
    assert (nothing.questions, len(nothing)) == (0, 0)
    assert "no question was answered by both" in nothing._repr_mimebundle_()["text/plain"]


def test_the_poorest_questions_with_what_was_found_and_wanted():
    found = report().worst("hybrid", n=3)
    assert [(row.query_id, row.value) for row in found] == [("2", 0.25), ("4", 0.25), ("1", 1.0)]
    assert (found.metric, found[0].found, found[0].wanted) == (
        "nDCG@10",
        ("x.md", "a.md"),
        ("a.md", "b.md"),
    )
    text = found._repr_mimebundle_()["text/plain"]
    assert "a.md (rank 2), b.md (not found)" in text
    assert report().worst()[0].query_id == "1"
    assert len(report().worst("hybrid", n=0)) == 0


def test_folders_that_all_documents_share_are_not_repeated():
    rows = (PoorQuestion("1", "q", "MRR", 0.0, ("h/ops/a.md", "h/b.md"), ("h/ops/a.md",)),)
    text = PoorQuestions("p", "MRR", rows)._repr_mimebundle_()["text/plain"]
    assert text.endswith("  ops/a.md (rank 1)  ops/a.md, b.md")


def test_an_unknown_pipeline_gets_a_hint():
    for call in (report().compare, report().worst):
        with pytest.raises(ConfigurationError, match="did you mean 'hybrid'"):
            call("hybird")


def test_the_table_and_the_differences_are_shown():
    text = report()._repr_mimebundle_()["text/plain"]
    lines = [line.split() for line in text.split("\n")]
    assert lines[0] == ["mine", "on", "docs:", "means", "with", "95", "%", "intervals"]
    assert lines[1] == ["pipeline", "questions", "failed", "MRR", "nDCG@10"]
    assert lines[3][:4] == ["vector", "4", "0", "0.500"]
    assert lines[5] == ["!", "a", "note"]
    assert lines[7] == ["Difference", "to", "vector,", "question", "by", "question"]
    assert lines[10][:3] == ["hybrid", "MRR", "+0.250"]
    assert lines[10][-3:] == ["2", "1", "1"]
    single = report(vector=VECTOR)._repr_mimebundle_()["text/plain"]
    assert "Difference" not in single


def test_failed_questions_are_counted_apart():
    found = report(failed=("1",))
    assert found.to_dicts()[0]["questions"] == 3
    assert found.to_dicts()[0]["failed"] == 1
    assert found.to_dicts()[0]["mean"] == pytest.approx(2 / 3)
    row = found.question_rows()[0]
    assert (row["query_id"], row["MRR"], row["error"]) == ("1", None, "ValueError: broken")


def test_a_pipeline_without_any_answer_is_not_measured():
    found = report(failed=("1", "2", "3", "4"))
    assert found.summary_rows()[0]["mean"] is None
    shown = found._repr_mimebundle_()["text/plain"]
    assert "not measured" in shown
    assert "no question was answered by two pipelines" in shown
    assert found.to_pandas()["mean"].isna().all()


def test_rows_of_questions_and_exports():
    row = report().question_rows()[5]
    assert row == {
        "pipeline": "hybrid", "query_id": "2", "question": "question 2", "MRR": 0.5,
        "nDCG@10": 0.25, "found": ["x.md", "a.md"], "wanted": ["b.md", "a.md"], "error": "",
    }  # fmt: skip
    frame = report().to_pandas()
    assert list(frame.columns) == [
        "pipeline", "metric", "mean", "low", "high", "questions", "failed",
    ]  # fmt: skip
    assert report().to_polars()["mean"].to_list() == frame["mean"].tolist()
    json.dumps(
        report().to_dicts() + report().question_rows() + report().compare("hybrid").to_dicts()
    )


def test_everything_is_the_same_each_time():
    assert report()._repr_mimebundle_() == report()._repr_mimebundle_()
    assert report().compare("hybrid") == report().compare("hybrid")


@given(texts=st.lists(HOSTILE, min_size=6, max_size=6))
def test_hostile_text_is_only_text(texts):
    name, question, found, wanted, note, where = texts
    hostile = EvaluationReport(
        collection=where,
        judgements=where,
        pipelines=(name, f"{name}2"),
        metrics=("MRR",),
        scores={name: {"1": {"MRR": 0.5}}, f"{name}2": {"1": {"MRR": 0.25}}},
        failures={name: {}, f"{name}2": {}},
        questions={"1": question},
        found={name: {"1": [found]}, f"{name}2": {"1": [found]}},
        wanted={"1": {wanted: 1}},
        notes=(note,),
    )
    for shown in (hostile, hostile.compare(f"{name}2"), hostile.worst()):
        for form in shown._repr_mimebundle_().values():
            form.encode()
            assert "\u202e" not in form
        assert "<script>" not in shown._repr_mimebundle_()["text/html"]
        assert len(shown._repr_mimebundle_()["text/html"]) < 100_000
