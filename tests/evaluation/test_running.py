"""Questions run through pipelines: depth, failures, filters, progress."""

from __future__ import annotations

import asyncio

import pytest

from nbrag import run
from nbrag.errors import (
    ConfigurationError,
    FilterError,
    JudgementsError,
    ReplayMissing,
    StageError,
)
from nbrag.evaluation import Judgements, evaluate

DOCUMENTS = {f"d{number}": [f"d{number}.{part}" for part in range(5)] for number in range(12)}


def judgements(**qrels: dict[str, int]) -> Judgements:
    return Judgements({query: f"question {query}" for query in qrels}, qrels)


@pytest.fixture
def collection(listed):
    return listed(DOCUMENTS)


def mean(report, pipeline: str, metric: str) -> float:
    return next(
        row["mean"]
        for row in report.summary_rows()
        if (row["pipeline"], row["metric"]) == (pipeline, metric)
    )


def test_means_over_questions(collection, scripted):
    good = scripted({"question 1": ["d1", "d0"], "question 2": ["d0", "d2"]})
    poor = scripted({"question 1": ["d5"], "question 2": ["d0", "d2"]})
    report = run(
        evaluate(
            {"poor": poor, "good": good},
            collection,
            judgements(**{"1": {"d1": 1}, "2": {"d2": 2}}),
            metrics=("MRR", "recall@1"),
        )
    )
    assert mean(report, "good", "MRR") == pytest.approx(0.75)
    assert mean(report, "poor", "MRR") == pytest.approx(0.25)
    assert mean(report, "good", "recall@1") == 0.5
    assert report.pipelines == ("poor", "good")


def test_more_chunks_are_asked_for_until_enough_documents_are_ranked(collection, scripted):
    # 40 chunks of d0 come before all others.
    many = [("d0", f"d0.{part}") for part in range(40)]
    pipeline = scripted({"question 1": [*many, "d1", "d2", "d3"]})
    report = run(
        evaluate({"p": pipeline}, collection, judgements(**{"1": {"d2": 1}}), metrics=["MRR@3"])
    )
    assert mean(report, "p", "MRR@3") == pytest.approx(1 / 3)
    # Four times the depth first (five chunks per document, at most four count), then twice that.
    assert [top_k for _, top_k, _ in pipeline.asked] == [12, 24, 48]


def test_a_pipeline_that_gives_few_is_not_asked_again(collection, scripted):
    pipeline = scripted({"question 1": ["d1"]})
    run(evaluate({"p": pipeline}, collection, judgements(**{"1": {"d2": 1}})))
    assert len(pipeline.asked) == 1


def test_asking_ends_with_the_collections_last_chunk(listed, scripted):
    everything = [("a", f"c{part}") for part in range(20)]
    pipeline = scripted({"question 1": [*everything, *everything]})
    collection = listed({"a": [f"c{part}" for part in range(20)]})
    report = run(
        evaluate({"p": pipeline}, collection, judgements(**{"1": {"a": 1}}), metrics=["recall@5"])
    )
    assert [top_k for _, top_k, _ in pipeline.asked] == [20]
    assert mean(report, "p", "recall@5") == 1.0


def test_a_failing_question_is_counted_with_its_error_and_not_scored(collection, scripted):
    pipeline = scripted({"question 1": ["d1"], "question 2": ValueError("no <answer>")})
    report = run(
        evaluate(
            {"p": pipeline},
            collection,
            judgements(**{"1": {"d1": 1}, "2": {"d2": 1}}),
            metrics=["MRR"],
        )
    )
    assert mean(report, "p", "MRR") == 1.0
    assert report.failures == {"p": {"2": "ValueError: no <answer>"}}
    assert "p: 1 questions failed, e.g. 2: ValueError: no <answer>" in report.notes
    assert report.to_dicts()[0]["failed"] == 1


def test_an_answer_without_chunks_scores_zero(collection, scripted):
    pipeline = scripted({"question 1": []})
    report = run(
        evaluate({"p": pipeline}, collection, judgements(**{"1": {"d1": 1}}), metrics=["MRR"])
    )
    assert mean(report, "p", "MRR") == 0.0


@pytest.mark.parametrize(
    ("error", "raised"),
    [(FilterError("bad filter"), FilterError), (ValueError("broken"), StageError)],
)
def test_when_everything_fails_the_first_error_is_raised(collection, scripted, error, raised):
    pipeline = scripted({"question 1": error})
    with pytest.raises(raised, match=str(error)):
        run(evaluate({"p": pipeline}, collection, judgements(**{"1": {"d1": 1}})))


def test_a_pipeline_that_always_fails_leaves_the_others_measured(collection, scripted):
    broken = scripted({"question 1": ValueError("broken")})
    sound = scripted({"question 1": ["d1"]})
    report = run(
        evaluate(
            {"broken": broken, "sound": sound},
            collection,
            judgements(**{"1": {"d1": 1}}),
            metrics=["MRR"],
        )
    )
    assert mean(report, "broken", "MRR") is None
    assert mean(report, "sound", "MRR") == 1.0


def test_filters_are_used_only_when_asked_for(collection, scripted):
    cases = Judgements({"1": "q"}, {"1": {"d1": 1}}, {"1": {"where": "page > 1"}})
    pipeline = scripted({"q": ["d1"]})
    run(evaluate({"p": pipeline}, collection, cases))
    run(evaluate({"p": pipeline}, collection, cases, use_filters=True))
    assert [where for _, _, where in pipeline.asked] == [None, "page > 1"]


def test_warnings_and_missing_documents_become_notes(collection, scripted):
    pipeline = scripted({"question 1": ["d1"]}, warnings=("stage 'x' failed",))
    cases = Judgements({"1": "question 1", "2": "?"}, {"1": {"d1": 1, "gone": 1}})
    report = run(evaluate({"p": pipeline}, collection, cases, metrics=["recall@5"]))
    assert mean(report, "p", "recall@5") == 0.5
    assert report.notes == (
        "1 queries without a relevant document are left out",
        "1 judged documents are not in the collection and count as not found: gone",
        "p: 1 questions with warnings, e.g. 1: stage 'x' failed",
    )


def test_progress_and_concurrency(collection, scripted):
    ids = [str(number) for number in range(10)]
    pipeline = scripted({f"question {i}": ["d1"] for i in ids})
    seen = []
    run(
        evaluate(
            {"a": pipeline, "b": pipeline},
            collection,
            judgements(**{i: {"d1": 1} for i in ids}),
            progress=lambda done, total: seen.append((done, total)),
            concurrency=3,
        )
    )
    assert seen == [(done, 20) for done in range(1, 21)]
    assert pipeline.most_under_way == 3


def test_an_error_of_the_progress_callback_stops_the_run(collection, scripted):
    ids = [str(number) for number in range(10)]
    pipeline = scripted({f"question {i}": ["d1"] for i in ids})

    def stop(done: int, total: int) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        run(
            evaluate(
                {"a": pipeline},
                collection,
                judgements(**{i: {"d1": 1} for i in ids}),
                progress=stop,
                concurrency=1,
            )
        )
    assert len(pipeline.asked) == 1


async def test_it_can_be_awaited_on_any_loop(collection, scripted):
    pipeline = scripted({"question 1": ["d1"]})
    report = await asyncio.wait_for(
        evaluate({"p": pipeline}, collection, judgements(**{"1": {"d1": 1}})), 10
    )
    assert mean(report, "p", "recall@5") == 1.0


def test_a_metadata_field_that_never_matches_is_an_error(listed, scripted):
    collection = listed({"a.md": ["c1"]}, _id="VARCHAR")
    pipeline = scripted({"question 1": [("a.md", "c1", {"_id": "7"})]})
    report = run(
        evaluate({"p": pipeline}, collection, judgements(**{"1": {"7": 1}}), metrics=["MRR"])
    )
    assert mean(report, "p", "MRR") == 1.0
    with pytest.raises(JudgementsError, match="judged are '8'; the collection has '7'"):
        run(evaluate({"p": pipeline}, collection, judgements(**{"1": {"8": 1}})))


def test_settings_that_cannot_be_used(collection, scripted):
    cases = judgements(**{"1": {"d1": 1}})
    with pytest.raises(ConfigurationError, match="no pipeline"):
        run(evaluate({}, collection, cases))
    with pytest.raises(ConfigurationError, match="concurrency of 0"):
        run(evaluate({"p": scripted({})}, collection, cases, concurrency=0))
    with pytest.raises(ConfigurationError, match="no metric 'ndgc@10'"):
        run(evaluate({"p": scripted({})}, collection, cases, metrics=["ndgc@10"]))


def test_a_request_that_was_not_recorded_stops_the_evaluation(collection, scripted):
    missing = ReplayMissing("no reply for it.")
    pipeline = scripted({"question 1": ["d1"], "question 2": missing})
    with pytest.raises(ReplayMissing, match="no reply for it"):
        run(evaluate({"p": pipeline}, collection, judgements(**{"1": {"d1": 1}, "2": {"d2": 1}})))
