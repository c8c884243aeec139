"""Bootstrap intervals: the same each time, around the mean, as wide as theory says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nbrag.evaluation.bootstrap import bootstrap_intervals


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).random((40, 2))
    assert bootstrap_intervals(values) == bootstrap_intervals(values)
    assert bootstrap_intervals(values) != bootstrap_intervals(values, seed=1)


def test_an_interval_is_as_wide_as_the_normal_approximation():
    values = np.random.default_rng(2).random((400, 1))
    low, high = bootstrap_intervals(values)[0]
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.floats(-1, 1))
)
def test_intervals_stay_within_the_values(values):
    for column, (low, high) in zip(
        values.T, bootstrap_intervals(values, resamples=200), strict=True
    ):
        assert column.min() - 1e-12 <= low <= high <= column.max() + 1e-12


def test_columns_are_resampled_alike():
    column = np.random.default_rng(3).random(30)
    first, second = bootstrap_intervals(np.stack([column, column], axis=1))
    assert first == second


def test_blocks_do_not_change_the_result(monkeypatch):
    values = np.random.default_rng(4).random((7, 1))
    whole = bootstrap_intervals(values, resamples=1000)
    monkeypatch.setattr("nbrag.evaluation.bootstrap._BLOCK", 50)
    assert bootstrap_intervals(values, resamples=1000) == whole


def test_one_question_has_an_interval_of_no_width():
    assert bootstrap_intervals(np.array([[0.25]])) == [(0.25, 0.25)]
