"""Fusion by ranks and by scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.retrieval.fusion import (
    Normalization,
    convex_combination,
    fuse,
    reciprocal_rank_fusion,
)
from nbrag.types import RankedItem, RankedList, SearchLeg

NORMALIZATIONS = get_args(Normalization)


def ranked(
    leg: SearchLeg, scores: dict[str, float], *, weight: float = 1.0, variant: int = 0
) -> RankedList:
    items = sorted(scores.items(), key=lambda pair: -pair[1])
    return RankedList(leg, variant, weight, tuple(RankedItem(i, s) for i, s in items))


def rescored(ranked: RankedList, change: Callable[[float], float]) -> RankedList:
    items = tuple(RankedItem(item.chunk_id, change(item.score)) for item in ranked.items)
    return RankedList(ranked.leg, ranked.variant, ranked.weight, items)


LISTS = st.lists(
    st.builds(
        ranked,
        st.sampled_from(["vector", "keyword"]),
        st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-1, 20), max_size=8),
        weight=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    ),
    max_size=5,
)


def test_reciprocal_ranks_by_hand() -> None:
    lists = [ranked("vector", {"a": 0.9, "b": 0.5}), ranked("keyword", {"b": 7.0, "c": 1.0})]
    found = {item.chunk_id: item.score for item in reciprocal_rank_fusion(lists)}
    assert found == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62})


def test_an_id_has_one_vote_per_list() -> None:
    doubled = RankedList("vector", 0, 1.0, (RankedItem("a", 2.0), RankedItem("a", 1.0)))
    assert reciprocal_rank_fusion([doubled]) == [RankedItem("a", 1 / 61)]


def test_ids_after_a_repeat_do_not_lose_a_rank() -> None:
    items = (RankedItem("a", 3.0), RankedItem("a", 2.0), RankedItem("b", 1.0))
    found = reciprocal_rank_fusion([RankedList("vector", 0, 1.0, items)])
    assert found[1] == RankedItem("b", 1 / 62)


def test_weights_scale_and_zero_adds_nothing() -> None:
    lists = [
        ranked("vector", {"a": 1.0}, weight=0),
        ranked("keyword", {"b": 1.0}, weight=2),
    ]
    assert reciprocal_rank_fusion(lists) == [RankedItem("b", 2 / 61)]
    assert [item.chunk_id for item in convex_combination(lists)] == ["b"]


def test_min_max_by_hand() -> None:
    lists = [
        ranked("vector", {"a": 0.8, "b": 0.6, "c": 0.4}),
        ranked("keyword", {"b": 10.0, "d": 5.0}),
    ]
    found = convex_combination(lists, vector_weight=0.6, normalization="min-max")
    scores = {item.chunk_id: item.score for item in found}
    assert scores == pytest.approx({"a": 0.6, "b": 0.3 + 0.4, "c": 0.0, "d": 0.0})


def test_theoretical_minima_by_hand() -> None:
    lists = [ranked("vector", {"a": 1.0, "b": 0.0}), ranked("keyword", {"b": 8.0, "a": 4.0})]
    found = convex_combination(lists, vector_weight=0.5, normalization="theoretical")
    scores = {item.chunk_id: item.score for item in found}
    assert scores == pytest.approx({"a": 0.5 + 0.25, "b": 0.25 + 0.5})


def test_variants_of_a_leg_are_averaged() -> None:
    lists = [
        ranked("vector", {"a": 1.0, "b": 0.0}, weight=3),
        ranked("vector", {"b": 1.0, "a": 0.0}, variant=1),
    ]
    scores = {item.chunk_id: item.score for item in convex_combination(lists)}
    assert scores == pytest.approx({"a": 0.75, "b": 0.25})


def test_one_leg_alone_has_the_whole_share() -> None:
    found = convex_combination([ranked("keyword", {"a": 5.0, "b": 2.0})], vector_weight=0.9)
    assert found == [RankedItem("a", 1.0), RankedItem("b", 0.4)]


def test_best_scores_by_hand() -> None:
    lists = [
        ranked("vector", {"a": 0.8, "b": 0.6}),
        ranked("keyword", {"b": 10.0, "c": 5.0}),
    ]
    found = convex_combination(lists, vector_weight=0.6)
    assert scores_of(found) == pytest.approx({"a": 0.6, "b": 0.45 + 0.4, "c": 0.2})


def test_a_chunk_far_down_in_a_list_counts_with_its_true_score_there() -> None:
    vector = replace(ranked("vector", {"a": 0.8}), others=(RankedItem("b", 0.4),))
    keyword = replace(ranked("keyword", {"b": 10.0}), others=(RankedItem("a", 0.0),))
    found = convex_combination([vector, keyword], vector_weight=0.5)
    assert scores_of(found) == pytest.approx({"b": 0.25 + 0.5, "a": 0.5})


def test_what_only_lists_without_a_vote_found_is_not_in_the_result() -> None:
    vector = replace(ranked("vector", {"a": 0.8}), others=(RankedItem("b", 0.4),))
    keyword = ranked("keyword", {"b": 10.0}, weight=0)
    assert [item.chunk_id for item in convex_combination([vector, keyword])] == ["a"]


def test_scores_that_are_all_negative_keep_their_order() -> None:
    found = convex_combination([ranked("vector", {"a": -0.1, "b": -0.2, "c": -0.4})])
    assert scores_of(found) == pytest.approx({"a": 1.0, "b": 2 / 3, "c": 0.0})


@given(LISTS, st.sampled_from(["rrf", "convex"]), st.sampled_from(NORMALIZATIONS))
def test_every_voted_chunk_once_best_first(
    lists: list[RankedList], fusion: str, normalization: str
) -> None:
    found = fuse(lists, fusion=fusion, normalization=normalization)  # type: ignore[arg-type]
    ids = [item.chunk_id for item in found]
    assert len(ids) == len(set(ids))
    voted = {item.chunk_id for ranked in lists if ranked.weight > 0 for item in ranked.items}
    assert set(ids) == voted
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True)
    assert all(score <= 1 + 1e-9 for score in scores)
    again = fuse(list(lists), fusion=fusion, normalization=normalization)  # type: ignore[arg-type]
    assert again == found


def scores_of(found: list[RankedItem]) -> dict[str, float]:
    return {item.chunk_id: item.score for item in found}


WAYS = [("rrf", "best"), *(("convex", normalization) for normalization in NORMALIZATIONS)]


@given(LISTS, st.sampled_from([0.25, 2.0, 1024.0]), st.sampled_from([0.0, 3.0]))
def test_scale_and_shift_of_scores_do_not_matter_to_min_max(
    lists: list[RankedList], factor: float, shift: float
) -> None:
    whole = [rescored(r, lambda score: float(round(score))) for r in lists]
    moved = [rescored(r, lambda score: score * factor + shift) for r in whole]
    first = convex_combination(whole, normalization="min-max")
    second = convex_combination(moved, normalization="min-max")
    assert scores_of(second) == pytest.approx(scores_of(first))


@given(LISTS)
def test_ranks_alone_matter_to_reciprocal_ranks(lists: list[RankedList]) -> None:
    flat = [rescored(r, lambda _: 1.0) for r in lists]
    assert reciprocal_rank_fusion(flat) == reciprocal_rank_fusion(lists)


@given(LISTS, st.randoms(use_true_random=False), st.sampled_from(WAYS))
def test_the_order_of_the_lists_does_not_matter(
    lists: list[RankedList], random: Random, way: tuple[Any, Any]
) -> None:
    shuffled = random.sample(lists, len(lists))
    fusion, normalization = way
    first = fuse(lists, fusion=fusion, normalization=normalization)
    second = fuse(shuffled, fusion=fusion, normalization=normalization)
    assert scores_of(second) == pytest.approx(scores_of(first))


@given(LISTS, LISTS, st.sampled_from(WAYS))
def test_lists_of_weight_zero_change_nothing(
    lists: list[RankedList], others: list[RankedList], way: tuple[Any, Any]
) -> None:
    silent = [RankedList(r.leg, r.variant, 0.0, r.items) for r in others]
    fusion, normalization = way
    assert fuse([*lists, *silent], fusion=fusion, normalization=normalization) == fuse(
        lists, fusion=fusion, normalization=normalization
    )


@given(LISTS, st.sampled_from(WAYS))
def test_a_repeat_of_an_id_changes_nothing(lists: list[RankedList], way: tuple[Any, Any]) -> None:
    doubled = [RankedList(r.leg, r.variant, r.weight, r.items + r.items) for r in lists]
    fusion, normalization = way
    assert fuse(doubled, fusion=fusion, normalization=normalization) == fuse(
        lists, fusion=fusion, normalization=normalization
    )


@given(LISTS, st.sampled_from(WAYS))
def test_a_chunk_that_is_ahead_in_every_list_stays_ahead(
    lists: list[RankedList], way: tuple[Any, Any]
) -> None:
    ahead = [
        RankedList(r.leg, r.variant, r.weight, (RankedItem("zz", 21.0), *r.items)) for r in lists
    ]
    fusion, normalization = way
    found = fuse(ahead, fusion=fusion, normalization=normalization)
    assert [item.chunk_id for item in found[:1]] == ["zz"] * bool(found)


def test_ties_go_to_the_better_rank_and_then_to_the_smaller_id() -> None:
    lists = [
        ranked("vector", {"c": 2.0, "a": 1.0}, weight=61 * 62),
        ranked("keyword", {"d": 2.0, "b": 1.0}, weight=61 * 62),
    ]
    assert [i.chunk_id for i in reciprocal_rank_fusion(lists)] == ["c", "d", "a", "b"]
    # Four chunks have 0.5 in all: two first places, and two whose best place is the second.
    even = [
        ranked("vector", {"x": 4.0, "b": 3.0, "a": 0.0}),
        ranked("keyword", {"y": 4.0, "b": 1.0, "a": 4.0, "w": 0.0}),
    ]
    found = scores_of(convex_combination(even, vector_weight=0.5))
    assert found["a"] == found["b"]
    order = [item.chunk_id for item in convex_combination(even, vector_weight=0.5)]
    assert order == ["x", "y", "a", "b", "w"]


@pytest.mark.parametrize("weight", [-0.1, 1.5, float("nan")])
def test_a_share_beyond_all_or_nothing_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="vector_weight"):
        convex_combination([ranked("vector", {"a": 1.0})], vector_weight=weight)


def test_shares_out_of_use_leave_their_leg_out() -> None:
    lists = [ranked("vector", {"a": 1.0}), ranked("keyword", {"b": 1.0})]
    assert [i.chunk_id for i in convex_combination(lists, vector_weight=0)] == ["b"]
