"""The nodes of a summary tree: what stands above what, and under which id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nbrag.types import MetadataValue, TreeLink, stable_hash

__all__ = ["Passage", "Shape", "TreeNode", "links_of", "node_id", "read_shape", "with_counts"]

#: Digits of an id that tell nodes apart; the others hold two counts on top nodes.
_OWN_DIGITS = 20
_COUNT_DIGITS = 6
_MOST = 16**_COUNT_DIGITS - 1
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Passage:
    """An original chunk as a tree sees it: everything but its text.

    Attributes
    ----------
    id, document_id, source
        The chunk, its document, and that one's URI.
    title
        The document's title.
    headings
        Titles of the headings above it.
    ordinal
        Place in the document.
    tokens
        Tokens of its text, by the embedder's tokenizer.
    metadata
        Its fields for filters.
    """

    id: str
    document_id: str
    source: str
    title: str
    headings: tuple[str, ...]
    ordinal: int
    tokens: int
    metadata: Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A summary that there is to be.

    Attributes
    ----------
    id
        A hash of what it stands above: other children, another node.
    level
        1 for what stands right above original chunks, else one more than its highest child's.
    children
        Ids of original chunks and other nodes, in the order in which they are summarised.
    document_id
        The document that it is a summary of; empty when it is not a single document's.
    """

    id: str
    level: int
    children: tuple[str, ...]
    document_id: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The tree that is stored: its clusters, and how far it is from the passages of today.

    Attributes
    ----------
    levels
        Children by parent, by level from 1.
    changed
        Passages that had come or gone, after the clusters were formed, when it was written.
    total
        Passages that there were then.
    """

    levels: Mapping[int, Mapping[str, tuple[str, ...]]]
    changed: int
    total: int

    @property
    def passages(self) -> set[str]:
        """Ids of what the lowest clusters hold."""
        clusters = self.levels.get(1, {})
        return {child for children in clusters.values() for child in children}


def node_id(settings: str, level: int, children: Iterable[str]) -> str:
    """Return a node's id: a hash of the tree's settings, the level, and the set of children."""
    return stable_hash("tree", settings, str(level), *sorted(children))


def with_counts(nodes: Sequence[TreeNode], total: int, changed: int) -> list[TreeNode]:
    """Return the nodes with two counts at the end of the top ones' ids.

    They must outlive everything else of the tree: a passage that is deleted takes all summaries
    above it along, the top one always, and only links stay.

    Parameters
    ----------
    nodes
        All nodes of the tree.
    total
        How many passages there are.
    changed
        How many came or went since the clusters were formed.
    """
    beneath = {child for node in nodes for child in node.children}
    counts = "".join(f"{min(count, _MOST):0{_COUNT_DIGITS}x}" for count in (total, changed))
    return [
        node if node.id in beneath else replace(node, id=node.id[:_OWN_DIGITS] + counts)
        for node in nodes
    ]


def read_shape(links: Sequence[TreeLink], settings: str) -> Shape | None:
    """Return the stored tree's shape, None when there is none of these settings.

    Parameters
    ----------
    links
        The stored links.
    settings
        As for :func:`node_id`: the ids tell whether the tree was made with the same.
    """
    levels: dict[int, dict[str, tuple[str, ...]]] = {}
    children: dict[str, tuple[str, ...]] = {}
    for link in links:
        children[link.parent] = (*children.get(link.parent, ()), link.child)
        levels.setdefault(link.level, {})[link.parent] = children[link.parent]
    known = any(
        node_id(settings, level, beneath)[:_OWN_DIGITS] == parent[:_OWN_DIGITS]
        for level, clusters in levels.items()
        for parent, beneath in clusters.items()
    )
    tops = sorted(children.keys() - {link.child for link in links})
    if not known or not all(_ID.fullmatch(top) for top in tops):
        return None
    total, changed = (
        int(tops[0][start : start + _COUNT_DIGITS], 16)
        for start in (_OWN_DIGITS, _OWN_DIGITS + _COUNT_DIGITS)
    )
    return Shape(levels, changed, total)


def links_of(nodes: Iterable[TreeNode]) -> list[TreeLink]:
    """Return the links of all nodes to their children."""
    return [TreeLink(node.id, child, node.level) for node in nodes for child in node.children]
