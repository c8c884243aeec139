"""Clusters of vectors: all covered, within the limit, the same in any order."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbrag.errors import MissingDependency
from nbrag.ingestion.trees.clustering import packed_clusters, require_clustering, soft_clusters


def around(centres: int, each: int, *, noise: float = 0.02, seed: int = 1) -> Any:
    """Rows in clouds around random directions, cloud by cloud."""
    chance = np.random.default_rng(seed)
    directions = np.repeat(chance.normal(size=(centres, 24)), each, axis=0)
    rows = directions + chance.normal(0, noise, directions.shape) * 5
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_clouds_are_found() -> None:
    rows = around(5, 20)
    clusters = soft_clusters(rows, [10] * 100, limit=10_000)
    assert {row for cluster in clusters for row in cluster} == set(range(100))
    for cluster in clusters:
        assert len({row // 20 for row in cluster}) == 1
    assert len(clusters) >= 5


def test_a_row_between_two_clouds_is_in_both() -> None:
    chance = np.random.default_rng(3)
    left, right = np.zeros(6), np.zeros(6)
    left[0], right[0] = -1, 1
    rows = np.concatenate([c + chance.normal(0, 0.6, (60, 6)) for c in (left, right)])
    found = soft_clusters(rows, [1] * 120, limit=10_000, dimensions=6, most=2)
    assert sum(map(len, found)) > 120
    hard = soft_clusters(rows, [1] * 120, limit=10_000, dimensions=6, most=2, threshold=0.99)
    assert sum(map(len, hard)) < sum(map(len, found))


@settings(deadline=None, max_examples=25)
@given(
    count=st.integers(1, 60),
    distinct=st.integers(1, 60),
    limit=st.integers(1, 300),
    seed=st.integers(0, 99),
    most=st.integers(1, 12),
    dimensions=st.integers(1, 12),
)
def test_all_are_covered_within_the_limit_in_any_order(
    *, count: int, distinct: int, limit: int, seed: int, most: int, dimensions: int
) -> None:
    chance = np.random.default_rng(seed)
    pool = chance.normal(size=(distinct, 16)).astype(np.float32)
    rows = pool[chance.integers(0, distinct, count)]
    tokens = chance.integers(1, 40, count)
    how: Any = {"limit": limit, "most": most, "dimensions": dimensions}
    clusters = soft_clusters(rows, tokens, **how)
    assert {row for cluster in clusters for row in cluster} == set(range(count))
    assert len({tuple(cluster) for cluster in clusters}) == len(clusters)
    for cluster in clusters:
        assert cluster == sorted(set(cluster))
        assert len(cluster) == 1 or sum(tokens[row] for row in cluster) <= limit
    if len(np.unique(rows, axis=0)) == count:
        order = chance.permutation(count)
        again = soft_clusters(rows[order], tokens[order], **how)
        back = sorted(sorted(int(order[row]) for row in cluster) for cluster in again)
        assert back == clusters


@pytest.mark.parametrize("count", range(1, 12))
def test_few_rows_and_repeated_rows(count: int) -> None:
    rows = around(1, count)
    assert soft_clusters(rows, [5] * count, limit=1_000) == [list(range(count))]
    same = np.repeat(rows[:1], 40, axis=0)
    assert soft_clusters(same, [5] * 40, limit=1_000) == [list(range(40))]
    pieces = soft_clusters(same, [5] * 40, limit=50)
    assert [len(piece) for piece in pieces] == [10] * 4


def test_few_vectors_apart_from_each_other_get_no_component_each() -> None:
    rows = np.random.default_rng(5).normal(size=(38, 64))
    clusters = soft_clusters(rows / np.linalg.norm(rows, axis=1)[:, None], [10] * 38, limit=3_500)
    assert len(clusters) <= 12


def test_nothing_gives_nothing() -> None:
    assert soft_clusters(np.empty((0, 4)), [], limit=10) == []


def test_many_rows_are_sampled_for_their_number_and_all_assigned() -> None:
    rows = around(12, 150)
    clusters = soft_clusters(rows, [100] * 1_800, limit=20_000, most=20)
    assert {row for cluster in clusters for row in cluster} == set(range(1_800))
    assert max(map(len, clusters)) <= 200


def test_pieces_follow_the_main_direction() -> None:
    rows = np.array([[float(n % 7), 0.0] for n in range(14)])
    pieces = packed_clusters(rows, [10] * 14, list(range(14)), 40)
    assert pieces == [[0, 1, 7, 8], [2, 3, 9, 10], [4, 5, 11, 12], [6, 13]]
    assert packed_clusters(rows, [10] * 14, [3], 5) == [[3]]


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingDependency, match="needs the package scikit-learn") as caught:
        require_clustering()
    assert caught.value.hint == "pip install 'nbrag[tree]'"
