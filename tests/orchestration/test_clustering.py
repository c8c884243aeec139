"""Clusters of passages, and subsets with one of each."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbrag.orchestration.clustering import clusters, subsets, word_vectors


def test_like_vectors_share_a_cluster_whatever_their_lengths() -> None:
    vectors = np.array([[1, 0], [0, 5], [9, 0.1], [0.1, 1], [-1, 0]], np.float32)
    assert clusters(vectors, 3) == [0, 1, 0, 1, 2]
    assert clusters(vectors[:0], 3) == []
    # Fewer clusters where there are fewer different vectors.
    assert clusters(np.ones((4, 3), np.float32), 3) == [0, 0, 0, 0]
    assert clusters(np.zeros((2, 3), np.float32), 2) == [0, 0]


@given(
    st.integers(1, 30),
    st.integers(1, 8),
    st.integers(0, 1_000),
)
def test_clusters_are_numbered_and_the_same_each_time(rows: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    found = clusters(vectors, count, seed=seed)
    assert found == clusters(vectors.copy(), count, seed=seed)
    assert len(found) == rows
    # Different vectors fill every cluster, and new numbers come in order.
    assert list(dict.fromkeys(found)) == list(range(min(count, rows)))


def test_the_first_subset_holds_the_best_and_all_get_their_turn() -> None:
    labels = [0, 0, 1, 0, 1]
    assert subsets(labels, 3) == [(0, 2), (1, 4), (2, 3)]
    assert subsets([0, 0, 0], 5) == [(0,), (1,), (2,)]
    assert subsets([], 5) == []


@given(st.lists(st.integers(0, 4), min_size=1, max_size=24), st.integers(1, 20))
def test_subsets_are_different_with_one_of_each_cluster(labels: list[int], count: int) -> None:
    found = subsets(labels, count)
    possible = math.prod(labels.count(label) for label in set(labels))
    assert len(found) == len(set(found)) == min(count, possible)
    for subset in found:
        assert sorted(labels[one] for one in subset) == sorted(set(labels))


def test_texts_with_the_same_words_are_near() -> None:
    vectors = word_vectors(["Backups are kept", "backups: KEPT they are", "tide at noon", ""])
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    likeness = unit @ unit.T
    assert likeness[0, 1] > 0.8
    assert likeness[0, 2] == 0
    assert word_vectors(["", ""]).shape == (2, 1)
