"""RAPTOR's tree: clusters of passages across documents, of their summaries, and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbrag.ingestion.trees.dividing import Divider
from nbrag.ingestion.trees.nodes import Passage, Shape, TreeNode, node_id
from nbrag.ingestion.trees.summaries import SummaryMaker

__all__ = ["RaptorTree"]


class RaptorTree:
    """Builds a tree level by level, on the shape of the stored one where that still holds.

    The nodes of a level are clustered, each cluster is summarised, and the summaries are the
    next level's nodes, until one is left: the root. As few nodes as ``few`` that fit into one
    prompt have a single summary. The last of ``levels`` levels may have several tops. Where no
    summary of a level can be made, the tree ends there, and the next run goes on.

    With a stored shape, passages that are new go to the cluster that they are nearest to, what
    has grown over the limit is divided again, and emptied clusters vanish. Everything else stays
    where it is, and summaries whose children did not change are not made again.

    Parameters
    ----------
    divider
        Puts nodes into clusters.
    maker
        Makes the summaries.
    limit
        Most tokens of a cluster.
    few
        Nodes that need not be clustered.
    levels
        Most levels of summaries.
    settings
        See :func:`nbrag.ingestion.trees.nodes.node_id`.
    """

    def __init__(
        self,
        divider: Divider,
        maker: SummaryMaker,
        *,
        limit: int,
        few: int,
        levels: int,
        settings: str,
    ) -> None:
        self._divider = divider
        self._maker = maker
        self._limit = limit
        self._few = few
        self._levels = levels
        self._settings = settings

    async def build(self, passages: Sequence[Passage], shape: Shape | None) -> list[TreeNode]:
        """Return all nodes, lower ones first; their summaries are the maker's.

        Parameters
        ----------
        passages
            At least one.
        shape
            The stored tree's; None forms all clusters anew.
        """
        tokens = {passage.id: passage.tokens for passage in passages}
        names = [passage.id for passage in passages]
        # What has become of the stored tree's nodes: a passage is itself, a cluster that was
        # divided several.
        became = {name: [name] for name in names}
        nodes: list[TreeNode] = []
        for level in range(1, self._levels + 1):
            stored = shape.levels.get(level, {}) if shape is not None else {}
            groups, became = await self._groups(level, names, tokens, stored, became)
            fresh = [
                TreeNode(node_id(self._settings, level, group), level, tuple(group))
                for group in groups
            ]
            nodes += fresh
            await self._maker.make(fresh)
            names = [node.id for node in fresh]
            written = self._maker.written
            if len(names) == 1 or not any(name in written for name in names):
                break
            longest = self._maker.lengths.longest
            tokens = {name: written[name].tokens if name in written else longest for name in names}
        return nodes

    async def _groups(
        self,
        level: int,
        names: Sequence[str],
        tokens: Mapping[str, int],
        stored: Mapping[str, Sequence[str]],
        became: Mapping[str, Sequence[str]],
    ) -> tuple[list[list[str]], dict[str, list[str]]]:
        """Return the clusters of a level, and which of them each stored cluster became."""
        place = {name: number for number, name in enumerate(names)}
        kept: dict[str, list[str]] = {}
        for parent, children in stored.items():
            members = {name for child in children for name in became.get(child, ())}
            if members:
                kept[parent] = sorted(members, key=place.__getitem__)
        if kept:
            await self._place(names, kept)
            parts = {parent: await self._parts(group, tokens) for parent, group in kept.items()}
        else:
            parts = {"": await self._formed(names, tokens)}
        found: dict[str, list[str]] = {}
        now: dict[str, list[str]] = {}
        for parent, groups in parts.items():
            for group in groups:
                ordered = sorted(group, key=place.__getitem__)
                # The same members make the same node, whichever clusters they come from.
                own = node_id(self._settings, level, ordered)
                found[own] = ordered
                now.setdefault(parent, []).append(own)
        ordered_groups = sorted(found.values(), key=lambda group: [place[name] for name in group])
        return ordered_groups, now

    async def _place(self, names: Sequence[str], kept: dict[str, list[str]]) -> None:
        """Put nodes that are in no cluster into the nearest."""
        settled = {name for group in kept.values() for name in group}
        new = [name for name in names if name not in settled]
        if not new:
            return
        parents = list(kept)
        nearest = await self._divider.nearest(new, [kept[parent] for parent in parents])
        place = {name: number for number, name in enumerate(names)}
        for name, chosen in zip(new, nearest, strict=True):
            kept[parents[chosen]].append(name)
        for group in kept.values():
            group.sort(key=place.__getitem__)

    async def _formed(self, names: Sequence[str], tokens: Mapping[str, int]) -> list[list[str]]:
        """Return new clusters of a level."""
        total = sum(tokens[name] for name in names)
        if len(names) == 1 or (len(names) <= self._few and total <= self._limit):
            return [list(names)]
        return await self._divider.formed(names, tokens)

    async def _parts(self, group: list[str], tokens: Mapping[str, int]) -> list[list[str]]:
        """Return a stored cluster, divided again when it has grown over the limit."""
        if len(group) == 1 or sum(tokens[name] for name in group) <= self._limit:
            return [group]
        return await self._divider.formed(group, tokens)
