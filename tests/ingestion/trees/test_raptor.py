"""The shape of cluster trees under any sequence of edits: whole, within limits, and at rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import nbrag
from nbrag.ingestion.trees.dividing import OrderDivider
from nbrag.ingestion.trees.nodes import (
    Passage,
    TreeNode,
    links_of,
    node_id,
    read_shape,
    with_counts,
)
from nbrag.ingestion.trees.raptor import RaptorTree
from nbrag.ingestion.trees.summaries import Lengths, WrittenSummary
from nbrag.types import SummaryTree, TreeLink, stable_hash

LIMIT = 100


class Maker:
    """Writes a summary of 20 tokens for each node, unless it is told to fail."""

    lengths = Lengths(20, 30, 12)

    def __init__(self, fails: set[str] | None = None) -> None:
        self.written: dict[str, WrittenSummary] = {}
        self.fails = fails or set()

    async def make(self, nodes: Iterable[TreeNode]) -> None:
        for node in nodes:
            if not self.fails & set(node.children):
                self.written[node.id] = WrittenSummary(node.id, 20, {})


def passage(number: int) -> Passage:
    name = stable_hash(str(number))
    return Passage(name, "d", "d", "", (), number, 10 + number % 40, {})


def built(
    numbers: Iterable[int], links: list[TreeLink], levels: int = 20, fails: set[str] | None = None
) -> tuple[list[TreeLink], list[Passage]]:
    """Build a tree on the shape of another one, and return its links."""
    passages = [passage(number) for number in sorted(numbers)]
    present = {one.id for one in passages}
    summaries = {link.parent for link in links}
    links = [link for link in links if link.child in present | summaries]
    shape = read_shape(links, "settings")
    divider = OrderDivider(LIMIT, {one.id: place for place, one in enumerate(passages)})
    maker: Any = Maker(fails)
    tree = RaptorTree(divider, maker, limit=LIMIT, few=3, levels=levels, settings="settings")
    nodes = nbrag.run(tree.build(passages, shape))
    return links_of(with_counts(nodes, len(passages), 0)), passages


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=40), min_size=1, max_size=5))
def test_any_edits_leave_a_whole_tree_within_limits(edits: list[set[int]]) -> None:
    links: list[TreeLink] = []
    for numbers in edits:
        links, passages = built(numbers, links)
        tree = SummaryTree(links)
        [top] = tree.tops
        assert set(tree.passages_beneath(top)) == {one.id for one in passages}
        tokens = {one.id: one.tokens for one in passages}
        for node in tree.summaries:
            children = tree.children(node)
            assert len(children) == 1 or sum(tokens.get(c, 20) for c in children) <= LIMIT
            assert {tree.level(child) for child in children} == {tree.level(node) - 1}
        again, _ = built(numbers, links)
        assert set(again) == set(links)


@given(st.sets(st.integers(0, 60), min_size=1, max_size=40), st.integers(1, 3))
def test_levels_are_not_exceeded(numbers: set[int], levels: int) -> None:
    links, passages = built(numbers, [], levels)
    tree = SummaryTree(links)
    assert max(link.level for link in links) <= levels
    beneath = {one for top in tree.tops for one in tree.passages_beneath(top)}
    assert beneath == {one.id for one in passages}


def test_the_tree_ends_where_no_summary_of_a_level_is_made() -> None:
    numbers = range(40)
    links, _ = built(numbers, [], fails={passage(number).id for number in numbers})
    assert {link.level for link in links} == {1}
    links, _ = built(numbers, links)
    assert len(SummaryTree(links).tops) == 1


def test_untouched_clusters_stay_as_they_are() -> None:
    before, _ = built(range(40), [])
    after, _ = built([number for number in range(41) if number != 7], before)
    groups = [
        {tuple(SummaryTree(links).children(node)) for node in SummaryTree(links).summaries}
        for links in (before, after)
    ]
    # The cluster that lost one, the one that got one (or its parts), and those above.
    assert len(groups[1] - groups[0]) <= 6
    assert len(groups[1]) > 10


# Ids ------------------------------------------------------------------------------------


def test_counts_outlive_everything_but_the_links() -> None:
    low = [TreeNode(node_id("s", 1, [c]), 1, (c,)) for c in ("a", "b")]
    top = TreeNode(node_id("s", 2, [n.id for n in low]), 2, tuple(n.id for n in low))
    links = links_of(with_counts([*low, top], 812, 17))
    shape = read_shape(links, "s")
    assert shape is not None
    assert (shape.total, shape.changed, shape.passages) == (812, 17, {"a", "b"})
    without = [link for link in links if link.child != "a"]
    left = read_shape(without, "s")
    assert left is not None
    assert (left.total, left.changed, left.passages) == (812, 17, {"b"})
    assert read_shape(links, "other") is None
    assert read_shape([], "s") is None
    assert read_shape([TreeLink("someone's", "a", 1)], "s") is None
    huge = read_shape(links_of(with_counts([*low, top], 10**9, 10**9)), "s")
    assert huge is not None
    assert huge.total == huge.changed == 16**6 - 1


def test_an_id_is_of_the_set_of_children() -> None:
    assert node_id("s", 1, ["a", "b"]) == node_id("s", 1, ["b", "a"])
    ids = {node_id(s, level, c) for s in "st" for level in (1, 2) for c in (["a"], ["a", "b"])}
    assert len(ids) == 8
