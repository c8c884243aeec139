"""Fusion by ranks and by scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.retrieval.fusion import convex_combination, fuse, reciprocal_rank_fusion
from nbrag.types import RankedItem, RankedList, SearchLeg


def ranked(
    leg: SearchLeg, scores: dict[str, float], *, weight: float = 1.0, variant: int = 0
) -> RankedList:
    items = sorted(scores.items(), key=lambda pair: -pair[1])
    return RankedList(leg, variant, weight, tuple(RankedItem(i, s) for i, s in items))


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
    assert found == [RankedItem("a", 1.0), RankedItem("b", 0.0)]


@given(LISTS, st.sampled_from(["rrf", "convex"]), st.sampled_from(["min-max", "theoretical"]))
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
    assert all(0 <= score <= 1 + 1e-9 for score in scores) or fusion == "rrf"
    again = fuse(list(lists), fusion=fusion, normalization=normalization)  # type: ignore[arg-type]
    assert again == found


@given(LISTS, st.floats(0.1, 10))
def test_scale_of_scores_does_not_matter_to_min_max(lists: list[RankedList], factor: float) -> None:
    scaled = [
        RankedList(
            r.leg, r.variant, r.weight, tuple(RankedItem(i.chunk_id, i.score * 4) for i in r.items)
        )
        for r in lists
    ]
    first = convex_combination(lists, normalization="min-max")
    second = convex_combination(scaled, normalization="min-max")
    assert factor > 0
    assert {i.chunk_id: pytest.approx(i.score, abs=1e-6) for i in first} == {
        i.chunk_id: i.score for i in second
    }


def test_shares_out_of_use_leave_their_leg_out() -> None:
    lists = [ranked("vector", {"a": 1.0}), ranked("keyword", {"b": 1.0})]
    assert [i.chunk_id for i in convex_combination(lists, vector_weight=0)] == ["b"]
