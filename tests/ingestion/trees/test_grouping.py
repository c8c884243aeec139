"""Consecutive groups: within the limit, along headings, and steady under edits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbrag.ingestion.trees.grouping import GroupItem, consecutive_groups
from nbrag.types import stable_hash

ITEMS = st.lists(
    st.builds(
        GroupItem,
        st.text("0123456789abcdef", min_size=4, max_size=4),
        st.integers(0, 50),
        st.lists(st.sampled_from("ab"), max_size=3).map(tuple),
    ),
    max_size=40,
)


@given(ITEMS, st.integers(1, 120))
def test_all_items_in_order_within_the_limit(items: list[GroupItem], limit: int) -> None:
    groups = consecutive_groups(items, limit)
    assert [place for group in groups for place in group] == list(range(len(items)))
    for group in groups:
        assert len(group) == 1 or sum(items[place].tokens for place in group) <= limit


def test_sections_stay_together() -> None:
    paths = ["a"] * 3 + ["b"] * 4 + ["c"] * 3
    items = [GroupItem(f"{n}", 10, ("Title", path)) for n, path in enumerate(paths)]
    groups = consecutive_groups(items, 50)
    assert [[paths[place] for place in group] for group in groups] == [
        ["a"] * 3,
        ["b"] * 4,
        ["c"] * 3,
    ]


def test_an_edit_changes_few_groups() -> None:
    items = [GroupItem(stable_hash(str(n)), 10) for n in range(1_000)]

    def ids(sequence: list[GroupItem]) -> set[tuple[str, ...]]:
        groups = consecutive_groups(sequence, 200)
        return {tuple(sequence[place].id for place in group) for group in groups}

    before = ids(items)
    assert len(before) > 50
    changed = []
    for place in range(50, 1_000, 100):
        without = ids(items[:place] + items[place + 1 :])
        more = ids([*items[:place], GroupItem(stable_hash("new", str(place)), 10), *items[place:]])
        changed += [len(without - before), len(more - before)]
    assert sum(changed) / len(changed) < 4


def test_items_over_the_limit_are_alone() -> None:
    items = [GroupItem("a", 5), GroupItem("b", 500), GroupItem("c", 5)]
    assert consecutive_groups(items, 100) == [[0], [1], [2]]
    assert consecutive_groups([], 100) == []
