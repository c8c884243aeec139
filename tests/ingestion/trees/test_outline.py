"""Outlines of any documents: all covered, within the limit, one top."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbrag.ingestion.trees.nodes import Passage, links_of
from nbrag.ingestion.trees.outline import outline_nodes
from nbrag.types import SummaryTree, stable_hash


def passages(*sizes: list[int]) -> list[Passage]:
    return [
        Passage(
            stable_hash(str(number), str(place)),
            f"d{number:03}",
            f"folder{number % 3}/d{number:03}.md",
            "Title",
            ("Title", f"Part {place // 4}"),
            place,
            tokens,
            {},
        )
        for number, own in enumerate(sizes)
        for place, tokens in enumerate(own)
    ]


@given(st.lists(st.lists(st.integers(1, 150), min_size=1, max_size=30), min_size=1, max_size=12))
def test_all_passages_stand_beneath_one_top_within_the_limit(sizes: list[list[int]]) -> None:
    given_passages = passages(*sizes)
    nodes = outline_nodes(given_passages, limit=100, longest=30, settings="s")
    tree = SummaryTree(links_of(nodes))
    [top] = tree.tops
    assert set(tree.passages_beneath(top)) == {one.id for one in given_passages}
    tokens = {one.id: one.tokens for one in given_passages}
    document = {one.id: one.document_id for one in given_passages}
    made: set[str] = set()
    for node in nodes:
        # What stands beneath comes first; a summary of one summary is not made.
        assert all(child in made or child in tokens for child in node.children)
        made.add(node.id)
        assert len(node.children) > 1 or node.children[0] in tokens
        total = sum(tokens.get(child, 30) for child in node.children)
        assert len(node.children) == 1 or total <= 100
        documents = {document[one] for one in tree.passages_beneath(node.id)}
        assert node.document_id == ("" if len(documents) > 1 else min(documents))
    own = [node for node in nodes if node.document_id]
    tops = [node for node in own if not set(tree.parents(node.id)) & {other.id for other in own}]
    assert len(tops) == len(sizes)


def test_an_edit_of_a_large_document_changes_few_of_its_groups() -> None:
    def ids(sizes: list[int]) -> set[str]:
        nodes = outline_nodes(passages([20] * 5, sizes), limit=200, longest=50, settings="s")
        return {node.id for node in nodes}

    before, after = ids([20] * 400), ids([20] * 401)
    assert len(before) > 40
    assert len(after - before) <= 10
