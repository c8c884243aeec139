"""Summary trees: which summary stands above which passages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["SummaryTree", "TreeLink", "passages_beneath"]


@dataclass(frozen=True, slots=True)
class TreeLink:
    """One edge of a collection's summary tree.

    Attributes
    ----------
    parent
        Id of a summary's row, also while the row itself is missing.
    child
        Id of an original chunk, or of another summary.
    level
        The parent's level: 1 stands above original chunks.
    """

    parent: str
    child: str
    level: int


class SummaryTree:
    """The links of a tree, ready to be walked; with soft clusters a child has several parents.

    Parameters
    ----------
    links
        What :meth:`nbrag.protocols.Collection.tree` returns.
    """

    def __init__(self, links: Iterable[TreeLink]) -> None:
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, list[str]] = {}
        self._levels: dict[str, int] = {}
        for link in links:
            self._children.setdefault(link.parent, []).append(link.child)
            self._parents.setdefault(link.child, []).append(link.parent)
            self._levels[link.parent] = max(link.level, self._levels.get(link.parent, 0))

    def __len__(self) -> int:
        """Return how many summaries the tree has, missing ones among them."""
        return len(self._children)

    def __contains__(self, node: object) -> bool:
        """Tell whether a summary or a passage is part of the tree."""
        return node in self._children or node in self._parents

    @property
    def summaries(self) -> tuple[str, ...]:
        """Ids of all summaries, whether their rows are there or missing."""
        return tuple(self._children)

    @property
    def passages(self) -> tuple[str, ...]:
        """Ids of all original chunks that stand beneath a summary, each once."""
        return tuple(child for child in self._parents if child not in self._children)

    @property
    def tops(self) -> tuple[str, ...]:
        """Ids of the summaries that nothing stands above."""
        return tuple(node for node in self._children if node not in self._parents)

    def level(self, node: str) -> int:
        """Return a summary's level; 0 for anything else."""
        return self._levels.get(node, 0)

    def children(self, node: str) -> tuple[str, ...]:
        """Return what stands right beneath a summary; nothing for a passage."""
        return tuple(self._children.get(node, ()))

    def parents(self, node: str) -> tuple[str, ...]:
        """Return the summaries right above a summary or a passage."""
        return tuple(self._parents.get(node, ()))

    def passages_beneath(self, node: str) -> tuple[str, ...]:
        """Return the original chunks that a summary was made from, each once, in order."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        waiting = list(reversed(self._children.get(node, ())))
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in self._children:
                waiting += reversed(self._children[current])
            else:
                found[current] = None
        return tuple(found)

    def above(self, nodes: Iterable[str]) -> set[str]:
        """Return all summaries above any of the nodes: their parents, those' parents, and so on."""
        found: set[str] = set()
        waiting = list(nodes)
        while waiting:
            fresh = set(self._parents.get(waiting.pop(), ())) - found
            found |= fresh
            waiting += fresh
        return found


def passages_beneath(links: Iterable[TreeLink], node: str) -> tuple[str, ...]:
    """Return the ids of the original chunks beneath a summary, each once, in the links' order.

    For many summaries of one tree make a :class:`SummaryTree` once and ask that.

    Parameters
    ----------
    links
        What :meth:`nbrag.protocols.Collection.tree` returns.
    node
        Id of the summary.
    """
    return SummaryTree(links).passages_beneath(node)
