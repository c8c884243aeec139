"""The way down a summary tree: at each level the summaries most like the question, to passages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nbrag.protocols import Collection
from nbrag.retrieval.distinct import distinct_chunks
from nbrag.retrieval.forest import Forest, tokens_of
from nbrag.types import QueryVariant, RankedItem, SearchPlan

__all__ = ["Descent", "Level"]

#: So many passages beneath no summary are scored one by one; more are looked for by a search.
_ONE_BY_ONE = 500
#: Rows that such a search brings at first, for each that is wanted.
_DEEPER = 4


@dataclass(frozen=True, slots=True)
class Level:
    """What the way down took of one level.

    Attributes
    ----------
    number
        The level; 0 are the original chunks.
    items
        The best of it by cosine similarity, best first.
    looked_at
        How many there were to choose from.
    """

    number: int
    items: tuple[RankedItem, ...]
    looked_at: int


class Descent:
    """Goes down a tree for one question.

    Sarthi et al., "RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval" (ICLR
    2024), tree traversal: begin with the top level, take the ``branch`` nodes with the highest
    cosine similarity to the question, go on with their children, and so down to the leaves.

    Beyond the paper: a missing summary is passed through to its children; passages beneath no
    summary stand among the candidates of the last level; and where too little is found, and it
    leaves room in the token budget, the way down is gone again with twice the width.

    Parameters
    ----------
    collection
        Where vectors come from.
    forest
        Its tree.
    variants
        The question's forms, with vectors; a node's score is the mean of its cosine similarities
        by the forms' weights.
    where
        The search's filter.
    """

    def __init__(
        self,
        collection: Collection,
        forest: Forest,
        variants: Sequence[QueryVariant],
        where: object,
    ) -> None:
        self._collection = collection
        self._forest = forest
        self._variants = tuple(
            variant
            for variant in variants
            if "vector" in variant.legs and variant.vector is not None and variant.weight > 0
        )
        self._where = where
        self._scores: dict[str, float] = {}
        passing = forest.passing
        self._alive: Callable[[str], bool] = lambda _: True
        if passing is not None:
            alive = passing | forest.tree.above(passing)
            self._alive = alive.__contains__

    async def levels(
        self, branch: int, wanted: int, *, leaves_only: bool = False, budget: int | None = None
    ) -> tuple[list[Level], bool]:
        """Return what was taken of each level, top first, and whether more is worth looking for.

        Parameters
        ----------
        branch
            How many nodes of a level are followed at least.
        wanted
            How many that may be shown should be found.
        leaves_only
            Whether only passages are wanted.
        budget
            Tokens that, once what was found has them, are enough however many are wanted.
        """
        if not self._variants:
            return [], False
        while True:
            levels = await self._down(branch)
            more = any(len(level.items) < level.looked_at for level in levels)
            found = [
                item.chunk_id
                for level in levels
                for item in level.items
                if level.number == 0 or (not leaves_only and item.chunk_id in self._forest.shown)
            ]
            if len(found) >= wanted or not more:
                return levels, more
            if budget is not None and await self._tokens(found) >= budget:
                return levels, False
            branch *= 2

    async def _tokens(self, chunk_ids: Sequence[str]) -> int:
        """Return the tokens of chunks, repeated texts once."""
        rows = await self._collection.chunks(chunk_ids)
        return sum(tokens_of(chunk) for chunk in distinct_chunks(rows.values()))

    async def _down(self, branch: int) -> list[Level]:
        tree, present = self._forest.tree, self._forest.present
        waiting: dict[int, dict[str, None]] = {0: {}}
        seen: set[str] = set()

        def reach(nodes: Iterable[str]) -> None:
            for node in nodes:
                if node not in seen and self._alive(node):
                    seen.add(node)
                    waiting.setdefault(tree.level(node), {})[node] = None

        reach(tree.tops)
        levels = []
        while waiting:
            # A child is on a lower level than its parents: all of them are done before it is.
            number = max(waiting)
            nodes = waiting.pop(number)
            there = [node for node in nodes if number == 0 or node in present]
            looked_at = len(there)
            if number == 0:
                looked_at += len(self._forest.loose)
                there += await self._loose(branch)
            best = await self._best(there, branch)
            followed = {item.chunk_id for item in best}
            for node in nodes:
                if node in followed or (number and node not in present):
                    reach(tree.children(node))
            if looked_at:
                levels.append(Level(number, tuple(best), looked_at))
        return levels

    async def _best(self, nodes: Sequence[str], branch: int) -> list[RankedItem]:
        unknown = [node for node in nodes if node not in self._scores]
        if unknown:
            vectors = await self._collection.vectors(unknown)
            self._scores.update((node, self._similarity(vectors[node])) for node in vectors)
        scored = [RankedItem(node, self._scores[node]) for node in nodes if node in self._scores]
        return sorted(scored, key=lambda item: (-item.score, item.chunk_id))[:branch]

    def _similarity(self, vector: object) -> float:
        import numpy as np

        row = np.asarray(vector, np.float64)
        length = float(np.linalg.norm(row)) or 1.0
        total = 0.0
        for variant in self._variants:
            query = np.asarray(variant.vector, np.float64)
            similarity = float(row @ query) / (length * (float(np.linalg.norm(query)) or 1.0))
            total += variant.weight * similarity
        return total / sum(variant.weight for variant in self._variants)

    async def _loose(self, branch: int) -> list[str]:
        """Return passages beneath no summary; of very many those that a search finds best."""
        loose = self._forest.loose
        if len(loose) <= max(_ONE_BY_ONE, branch):
            return list(loose)
        wanted, depth = set(loose), branch * _DEEPER
        while True:
            plan = SearchPlan(self._variants, frozenset(("vector",)), depth, self._where)
            lists = await self._collection.search(plan)
            found = [
                [item.chunk_id for item in ranked.items if item.chunk_id in wanted][:branch]
                for ranked in lists
            ]
            short = (len(ranked.items) < depth for ranked in lists)
            if all(len(ids) == branch for ids in found) or all(short):
                return list(dict.fromkeys(chunk_id for ids in found for chunk_id in ids))
            depth *= _DEEPER
