"""Two ways to put the nodes of a level into clusters: by vectors, and by order as an estimate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nbrag.ingestion.trees.clustering import packed_clusters, soft_clusters
from nbrag.ingestion.trees.grouping import GroupItem, consecutive_groups

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Divider", "OrderDivider", "VectorDivider"]

#: Passages of a cluster in an estimate: what clusters of the tutorial corpus have.
_USUAL_CLUSTER = 8

Groups = list[list[str]]


class Divider(Protocol):
    """Puts nodes into clusters."""

    async def formed(self, nodes: Sequence[str], tokens: Mapping[str, int]) -> Groups:
        """Return clusters of nodes, each within the token limit."""
        ...

    async def nearest(self, nodes: Sequence[str], clusters: Sequence[Sequence[str]]) -> list[int]:
        """Return the place of the cluster that each node is nearest to."""
        ...


class VectorDivider:
    """Clusters nodes by their vectors.

    Parameters
    ----------
    vectors
        Gives float32 vectors by id.
    limit, threshold, dimensions, most
        See :func:`nbrag.ingestion.trees.clustering.soft_clusters`.
    """

    def __init__(
        self,
        vectors: Callable[[Sequence[str]], Awaitable[Mapping[str, NDArray[np.float32]]]],
        *,
        limit: int,
        threshold: float,
        dimensions: int,
        most: int,
    ) -> None:
        self._vectors = vectors
        self._limit = limit
        self._how: dict[str, Any] = {
            "threshold": threshold,
            "dimensions": dimensions,
            "most": most,
        }

    async def _matrix(self, nodes: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        found = await self._vectors(nodes)
        return np.stack([found[node] for node in nodes])

    async def formed(self, nodes: Sequence[str], tokens: Mapping[str, int]) -> Groups:
        """Return soft clusters; pieces where more than half as many clusters as nodes come out."""
        # Nodes of the same vector are told apart by their order: it must not be the caller's.
        ordered = sorted(nodes)
        matrix = await self._matrix(ordered)
        counts = [tokens[node] for node in ordered]
        found = await asyncio.to_thread(
            soft_clusters, matrix, counts, limit=self._limit, **self._how
        )
        if len(found) * 2 > len(ordered):
            # A level must be smaller than the one below it, and clusters of one say nothing new.
            found = packed_clusters(matrix, counts, range(len(ordered)), self._limit)
        return [[ordered[place] for place in cluster] for cluster in found]

    async def nearest(self, nodes: Sequence[str], clusters: Sequence[Sequence[str]]) -> list[int]:
        """Return the clusters whose members' mean has the highest cosine with each node."""
        import numpy as np

        means = []
        for cluster in clusters:
            mean = (await self._matrix(cluster)).mean(axis=0)
            means.append(mean / max(float(np.linalg.norm(mean)), 1e-12))
        near = await self._matrix(nodes) @ np.stack(means).T
        return [int(place) for place in near.argmax(axis=1)]


class OrderDivider:
    """Stands in for clusters where there are no vectors yet: neighbours are taken together.

    Parameters
    ----------
    limit
        Most tokens of a cluster.
    order
        Place of each passage in its collection.
    """

    def __init__(self, limit: int, order: Mapping[str, int]) -> None:
        self._limit = limit
        self._order = order

    async def formed(self, nodes: Sequence[str], tokens: Mapping[str, int]) -> Groups:
        """Return groups of about as many nodes as clusters usually have."""
        mean = sum(tokens[node] for node in nodes) / len(nodes)
        limit = min(self._limit, int(_USUAL_CLUSTER * mean * 1.4))
        items = [GroupItem(node, tokens[node]) for node in nodes]
        return [[nodes[place] for place in group] for group in consecutive_groups(items, limit)]

    async def nearest(self, nodes: Sequence[str], clusters: Sequence[Sequence[str]]) -> list[int]:
        """Return the clusters of the passages that stand next to each node."""
        members = [
            (self._order.get(member, 0), place)
            for place, cluster in enumerate(clusters)
            for member in cluster
        ]
        return [
            min(members, key=lambda pair: (abs(pair[0] - self._order.get(node, 0)), pair))[1]
            for node in nodes
        ]
