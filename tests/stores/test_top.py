"""The bound that the largest scores reach."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbrag.stores._top import top_bound


@given(st.integers(1, 40), st.integers(0, 20_000), st.integers(0, 2**32 - 1), st.booleans())
def test_at_least_k_scores_reach_the_bound_and_it_is_no_score_too_high(
    k: int, more: int, seed: int, tied: bool
) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=k + more).astype(np.float32)
    if tied:
        scores = np.round(scores)
    bound = top_bound(scores, k)
    assert (scores >= bound).sum() >= k
    assert bound <= np.sort(scores)[-k]


def test_few_scores_more_than_k_reach_the_bound() -> None:
    scores = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    assert (scores >= top_bound(scores, 50)).sum() < 100
