"""Windows and rankings: everything is compared, and nothing is lost or invented."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.retrieval.processors._rankings import permutation, ranking_in, sliding_windows

SHAPES = st.integers(2, 40).flatmap(lambda window: st.tuples(
    st.integers(0, 200), st.just(window), st.integers(1, window - 1)
))  # fmt: skip


@given(SHAPES)
def test_windows_reach_from_the_bottom_to_the_top_and_overlap(shape: tuple[int, int, int]) -> None:
    count, window, step = shape
    windows = list(sliding_windows(*shape))
    if count < 2:
        assert windows == []
        return
    assert windows[0][1] == count
    assert windows[-1][0] == 0
    assert {place for start, end in windows for place in range(start, end)} == set(range(count))
    for (start, _), (above, end) in itertools.pairwise(windows):
        assert above < start < end
        # As many as a whole window's step leaves rise on.
        assert end - start >= window - step
    assert all(end - start == min(window, count) for start, end in windows)
    assert len(windows) == 1 + math.ceil(max(count - window, 0) / step)


@given(SHAPES, st.randoms(use_true_random=False))
def test_with_a_perfect_model_the_best_rise_to_the_top(
    shape: tuple[int, int, int], random: object
) -> None:
    count, window, step = shape
    items = list(range(count))
    random.shuffle(items)  # type: ignore[attr-defined]
    for start, end in sliding_windows(*shape):
        items[start:end] = sorted(items[start:end])
    top = window if count <= window else window - step
    assert items[:top] == sorted(items)[:top]


def test_a_hundred_results_are_nine_calls() -> None:
    windows = list(sliding_windows(100, 20, 10))
    assert len(windows) == 9
    assert windows[:2] == [(80, 100), (70, 90)]
    assert windows[-1] == (0, 20)
    assert list(sliding_windows(25, 20, 10)) == [(5, 25), (0, 20)]
    assert list(sliding_windows(3, 20, 10)) == [(0, 3)]


@given(st.lists(st.integers(-3, 30)), st.integers(0, 20))
def test_any_list_of_numbers_becomes_an_order_of_all(ids: list[int], count: int) -> None:
    order = permutation(ids, count)
    assert sorted(order) == list(range(count))
    named = [i for i in dict.fromkeys(ids) if 1 <= i <= count]
    assert [place + 1 for place in order[: len(named)]] == named
    assert order[len(named) :] == sorted(order[len(named) :])


@given(st.text() | st.from_regex(r"[\[\]{}0-9 >,:\"a-z<>/]{0,80}", fullmatch=True))
def test_any_reply_is_a_ranking_of_what_was_sent_or_none(reply: str) -> None:
    ids = ranking_in(reply, 5)
    assert len(ids) == len(set(ids))
    assert set(ids) <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("reply", "ids"),
    [
        ("[2] > [1] > [3]", [2, 1, 3]),
        ("[2]>[1]>[3].", [2, 1, 3]),
        ("The order is [3] > [1] because [2] is off.", [3, 1]),
        ("2 > 1 > 3", [2, 1, 3]),
        ("Passage 2 > Passage [3] > passage 1", [2, 3, 1]),
        ("[2], [1], [3]", [2, 1, 3]),
        ("[2]\n[1]\n[3]", [2, 1, 3]),
        ("[2, 1, 3]", [2, 1, 3]),
        ("Sure: [2, 1] it is", [2, 1]),
        ('{"ranking": ["[3]", "[1]", "[2]"]}', [3, 1, 2]),
        ('{"ranking": [3, 3, 99, 0, -1, 1]}', [3, 1]),
        ('{"ranking": ["2", "1"]}', [2, 1]),
        ('{"ranking": [2]}', [2]),
        ('{"order": [2, 1, 3]}', [2, 1, 3]),
        ('{"ranking": [2, 1', []),
        ("<think>[1] > [2] > [3]</think>[3] > [1]", [3, 1]),
        ("<think>[1] > [2] > [3]", []),
        ("[1] > [2]\n\nNo, rather: [2] > [1]", [2, 1]),
        ("[7] > [8] > [9]", []),
        ("99999999999999999999 > 1 > 2", [1, 2]),
        ("Of the 3 passages, 2 were written in 2019.", []),
        ("See [3], which says it.", []),
        ("I can't help with that.", []),
        ("", []),
    ],
)
def test_rankings_are_found_in_words(reply: str, ids: list[int]) -> None:
    assert ranking_in(reply, 3) == ids
