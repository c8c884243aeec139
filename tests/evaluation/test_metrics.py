"""Metrics against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError
from nbrag.evaluation.metrics import Metric, metric_values, parse_metric, parse_metrics

NAMES = ["nDCG@10", "nDCG@2", "recall@2", "recall@5", "MRR", "MRR@1", "P@2", "MAP", "nDCG"]
# Wanted: a (grade 3) and b (grade 1); c is judged not relevant; x is not judged.
QRELS = {"q": {"a": 3, "b": 1, "c": 0}}


def values(ranking: list[str], qrels=QRELS) -> dict[str, float]:
    return metric_values(parse_metrics(NAMES), qrels, {"q": ranking})["q"]


def test_values_worked_out_by_hand():
    found = values(["x", "b", "c", "a"])
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert found == pytest.approx(
        {
            "nDCG@10": (1 / math.log2(3) + 3 / math.log2(5)) / ideal,
            "nDCG@2": (1 / math.log2(3)) / ideal,
            "recall@2": 1 / 2,
            "recall@5": 1.0,
            "MRR": 1 / 2,
            "MRR@1": 0.0,
            "P@2": 1 / 2,
            "MAP": (1 / 2 + 2 / 4) / 2,
            "nDCG": (1 / math.log2(3) + 3 / math.log2(5)) / ideal,
        }
    )


def test_the_best_order_scores_one():
    found = values(["a", "b"])
    assert {name: found[name] for name in NAMES} == dict.fromkeys(NAMES, 1.0)


def test_finding_nothing_scores_zero_and_is_not_left_out():
    assert values([]) == dict.fromkeys(NAMES, 0.0)
    assert values(["x", "c"]) == dict.fromkeys(NAMES, 0.0)


def test_mrr_without_cutoff_looks_at_ten_documents():
    assert values([f"x{i}" for i in range(9)] + ["a"])["MRR"] == pytest.approx(0.1)
    assert values([f"x{i}" for i in range(10)] + ["a"])["MRR"] == 0.0


def test_a_negative_grade_is_not_relevant():
    found = values(["c", "a"], {"q": {"a": 1, "c": -2}})
    assert found["MRR"] == 0.5
    assert found["nDCG@10"] == pytest.approx(1 / math.log2(3))


def test_the_pipelines_order_counts_not_the_documents_names():
    assert values(["z", "a"], {"q": {"z": 1}})["MRR"] == 1.0
    assert values(["a", "z"], {"q": {"a": 1}})["MRR"] == 1.0


@given(st.permutations(["a", "b", "c", "d", "e", "f"]), st.integers(1, 6))
def test_recall_and_reciprocal_rank_follow_their_definitions(ranking, cutoff):
    qrels = {"q": {"a": 1, "b": 2, "c": 0}}
    metrics = parse_metrics([f"recall@{cutoff}", f"MRR@{cutoff}", f"P@{cutoff}"])
    found = metric_values(metrics, qrels, {"q": ranking})["q"]
    hits = [rank for rank, name in enumerate(ranking[:cutoff], start=1) if name in {"a", "b"}]
    assert found[f"recall@{cutoff}"] == pytest.approx(len(hits) / 2)
    assert found[f"P@{cutoff}"] == pytest.approx(len(hits) / cutoff)
    assert found[f"MRR@{cutoff}"] == pytest.approx(1 / hits[0] if hits else 0.0)


@pytest.mark.parametrize(
    ("written", "name", "depth"),
    [
        ("ndcg@10", "nDCG@10", 10),
        ("RECALL@5", "recall@5", 5),
        ("r@20", "recall@20", 20),
        ("mrr", "MRR", 10),
        ("RR@3", "MRR@3", 3),
        ("precision@1", "P@1", 1),
        (" MAP ", "MAP", 100),
        ("ap@7", "MAP@7", 7),
        ("nDCG", "nDCG", 100),
    ],
)
def test_names_are_read_whatever_their_case(written, name, depth):
    metric = parse_metric(written)
    assert (metric.name, metric.depth) == (name, depth)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("ncdg@10", "did you mean 'nDCG'"),
        ("recal@5", "did you mean 'recall'"),
        ("accuracy", "known metrics: nDCG@10"),
        ("", "known metrics"),
        ("recall", "write recall@5"),
        ("P", "write P@5"),
        ("nDCG@0", "write nDCG@10"),
        ("nDCG@ten", "write nDCG@10"),
        ("nDCG@-1", "write nDCG@10"),
        ("nDCG@1001", "write nDCG@10"),
        ("MRR@٣", "write MRR@10"),
    ],
)
def test_unreadable_names_get_a_hint(written, hint):
    with pytest.raises(ConfigurationError) as caught:
        parse_metric(written)
    assert hint in caught.value.hint


def test_several_names_are_kept_once_each():
    assert parse_metrics(["mrr", "MRR", "P@1"]) == (Metric("MRR", None), Metric("P", 1))
    assert parse_metrics("nDCG@10") == (Metric("nDCG", 10),)
    with pytest.raises(ConfigurationError, match="no metric"):
        parse_metrics([])
