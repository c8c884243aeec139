"""The exact index against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbrag.stores.exact import ExactIndex

DIMENSION = 8


def unit(count: int, seed: int, dimension: int = DIMENSION) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


def truth(vectors: dict[int, np.ndarray], query: np.ndarray, k: int) -> list[int]:
    """Return the nearest rows; equal vectors, of equal score, by row."""
    wide = query.astype(np.float64)
    scores = {row: (v.astype(np.float64) * wide).sum() for row, v in vectors.items()}
    return sorted(scores, key=lambda row: (-np.float32(scores[row]), row))[:k]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_adding_and_removing_in_any_order(data: st.DataObject) -> None:
    index = ExactIndex(DIMENSION)
    kept: dict[int, np.ndarray] = {}
    following = 0
    for step in range(data.draw(st.integers(1, 8))):
        if kept and data.draw(st.booleans()):
            some = data.draw(st.lists(st.sampled_from([*sorted(kept), -1, 10**9]), max_size=400))
            share = data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
            gone = {*some, *[row for row in kept if row % 10 < 10 * share]}
            index.remove(np.array(sorted(gone), np.int64))
            kept = {row: vector for row, vector in kept.items() if row not in gone}
        count = data.draw(st.integers(0, 700))
        following += data.draw(st.integers(0, 3))
        rows = np.arange(following, following + count)
        # A few directions only, so that many rows tie.
        vectors = unit(5, 1)[np.random.default_rng(step).integers(0, 5, count)]
        index.add(rows, vectors)
        kept.update(zip(rows.tolist(), vectors, strict=True))
        following += count
    assert len(index) == len(kept)
    query = unit(1, 99)[0]
    k = data.draw(st.integers(0, 30))
    [(rows, scores)] = index.search(query, k)
    assert rows.tolist() == truth(kept, query, k)
    assert scores.dtype == np.float32
    assert len(scores) == len(rows)
    allowed = np.array([row for row in kept if row % 3 == 0] + [10**9], np.int64)
    [(rows, _)] = index.search(query, k, np.random.default_rng(0).permutation(allowed))
    assert rows.tolist() == truth({r: v for r, v in kept.items() if r % 3 == 0}, query, k)


def test_many_queries_at_once() -> None:
    index, vectors = ExactIndex(DIMENSION), unit(3000, 1)
    index.add(np.arange(3000), vectors)
    queries = unit(40, 2)
    found = index.search(queries, 5)
    assert len(found) == 40
    for query, (rows, scores) in zip(queries, found, strict=True):
        assert rows.tolist() == truth(dict(enumerate(vectors)), query, 5)
        np.testing.assert_allclose(scores, vectors[rows] @ query, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.3, 0.9, 1.0])
def test_a_filter_is_exact_at_any_share(share: float) -> None:
    index, vectors = ExactIndex(DIMENSION), unit(20_000, 3)
    index.add(np.arange(0, 40_000, 2), vectors)
    allowed = np.flatnonzero(np.random.default_rng(4).random(40_000) < share)
    query = unit(1, 5)[0]
    [(rows, _)] = index.search(query, 20, allowed)
    permitted = {row: vectors[row // 2] for row in allowed.tolist() if row % 2 == 0}
    assert rows.tolist() == truth(permitted, query, 20)


def test_snapshots_do_not_change() -> None:
    index, vectors = ExactIndex(DIMENSION), unit(2000, 1)
    index.add(np.arange(1000), vectors[:1000])
    before = index.snapshot()
    query = unit(1, 9)[0]
    [(expected, _)] = before.search(query, 15)
    index.remove(expected[:5])
    index.add(np.arange(1000, 2000), np.repeat(query[None, :], 1000, axis=0))
    [(again, _)] = before.search(query, 15)
    assert again.tolist() == expected.tolist()
    [(now, _)] = index.search(query, 15)
    assert now.tolist() == list(range(1000, 1015))


@pytest.mark.parametrize("step", [1, 37, 1000, 50_000])
def test_memory_stays_within_bounds(step: int) -> None:
    count, dimension = (50_000, 64) if step > 1 else (5_000, 64)
    index, vectors = ExactIndex(dimension), unit(count, 1, dimension)
    for start in range(0, count, step):
        index.add(np.arange(start, min(count, start + step)), vectors[start : start + step])
    assert index.nbytes <= 1.3 * count * dimension * 4
    index.remove(np.arange(0, count, 5))
    assert index.nbytes <= 1.3 * len(index) * dimension * 4


def test_wrong_shapes_are_refused() -> None:
    index = ExactIndex(DIMENSION)
    with pytest.raises(ValueError, match="shape"):
        index.add(np.arange(2), unit(3, 1))
    assert index.search(unit(2, 1), 3)[1][0].tolist() == []
