"""The outline of a collection: a summary for each document, and one above all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from nbrag.ingestion.trees.grouping import GroupItem, consecutive_groups
from nbrag.ingestion.trees.nodes import Passage, TreeNode, node_id

__all__ = ["outline_nodes"]


def outline_nodes(
    passages: Sequence[Passage], *, limit: int, longest: int, settings: str
) -> list[TreeNode]:
    """Return the nodes of an outline, each after what stands beneath it.

    A document within the limit has one summary of its passages. A larger one is summarised in
    consecutive groups within the limit, these again, until one summary is left; and so are the
    documents. The summary of an only document is the collection's too. What is planned depends
    on ids and lengths alone, so that an edit changes what it touches and nothing else.

    Parameters
    ----------
    passages
        In the order of documents and places.
    limit
        Most tokens of a group; at least three times ``longest``.
    longest
        Most tokens of a summary, for which it counts before it is written.
    settings
        See :func:`nbrag.ingestion.trees.nodes.node_id`.
    """
    how: Any = {"limit": limit, "longest": longest, "settings": settings}
    nodes: list[TreeNode] = []
    tops: list[tuple[GroupItem, int]] = []
    for document_id, group in itertools.groupby(passages, lambda passage: passage.document_id):
        own = list(group)
        items = [GroupItem(p.id, p.tokens, p.headings) for p in own]
        top = _tower([(item, 0) for item in items], document_id, nodes, **how)
        folders = tuple(own[0].source.split("/")[:-1])
        tops.append((GroupItem(top.id, longest, folders), top.level))
    if len(tops) > 1:
        _tower(tops, "", nodes, **how)
    return nodes


def _tower(
    items: list[tuple[GroupItem, int]],
    document_id: str,
    nodes: list[TreeNode],
    *,
    limit: int,
    longest: int,
    settings: str,
) -> TreeNode:
    """Add nodes above items, each given with its level, until one stands above all."""
    while True:
        above: list[tuple[GroupItem, int]] = []
        groups = consecutive_groups([item for item, _ in items], limit)
        for group in groups:
            if len(group) == 1 and len(groups) > 1 and items[group[0]][1]:
                # A summary of one summary says nothing new.
                above.append(items[group[0]])
                continue
            children = tuple(items[place][0].id for place in group)
            level = 1 + max(items[place][1] for place in group)
            node = TreeNode(node_id(settings, level, children), level, children, document_id)
            nodes.append(node)
            path = _common([items[place][0].path for place in group])
            above.append((GroupItem(node.id, longest, path), level))
        if len(groups) == 1:
            return nodes[-1]
        items = above


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the outer parts that all paths share."""
    columns = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return tuple(parts[0] for parts in columns)
