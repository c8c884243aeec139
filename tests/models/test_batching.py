from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.models.batching import batches_by_tokens


@given(st.lists(st.integers(0, 600), max_size=80), st.integers(1, 2000))
def test_each_text_is_in_one_batch_and_no_batch_is_too_large(counts, budget):
    batches = batches_by_tokens(counts, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(counts)))
    for batch in batches:
        padded = len(batch) * max(counts[index] for index in batch)
        assert padded <= budget or len(batch) == 1
    in_order = [counts[index] for batch in batches for index in batch]
    assert in_order == sorted(counts, reverse=True)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=40), st.integers(50, 400))
def test_no_batch_could_have_taken_the_next_text(counts, budget):
    batches = batches_by_tokens(counts, budget)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * counts[batch[0]] > budget


def test_similar_lengths_share_a_batch():
    assert batches_by_tokens([3, 10, 2, 9], 20) == [[1, 3], [0, 2]]


def test_a_budget_below_one_is_refused():
    with pytest.raises(ValueError, match="budget"):
        batches_by_tokens([1], 0)
