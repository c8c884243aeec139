"""The search within a pipeline: the plan, its vectors, the legs, the fusion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic import Field

from nbrag.protocols import Collection, Embedder
from nbrag.retrieval.descent import Descent, Level
from nbrag.retrieval.forest import Forest
from nbrag.retrieval.fusion import (
    DEFAULT_CANDIDATES,
    DEFAULT_FUSION,
    DEFAULT_NORMALIZATION,
    DEFAULT_VECTOR_WEIGHT,
    RRF_K,
    Fusion,
    Normalization,
    fuse,
)
from nbrag.spec.stages import StageOptions
from nbrag.stores.trees import SUMMARY_KINDS
from nbrag.tracing import leg_name
from nbrag.types import (
    ChunkKind,
    HistoryEntry,
    QueryVariant,
    RankedItem,
    RankedList,
    RetrievalQuery,
    SearchLeg,
    SearchPlan,
    Strategy,
    VariantKind,
)

__all__ = [
    "DEFAULT_BRANCH",
    "DEFAULT_TOKEN_BUDGET",
    "Found",
    "SearchOptions",
    "Searcher",
    "encodable",
]

#: Halves of a surrogate pair, which a model's JSON may hold: no tokenizer and no store takes them.
_SURROGATES = re.compile("[\ud800-\udfff]")

#: Tokens of the collapsed tree in RAPTOR's paper.
DEFAULT_TOKEN_BUDGET: Final = 2000
#: Nodes of each layer in RAPTOR's tree traversal.
DEFAULT_BRANCH: Final = 5

_LEGS: dict[Strategy, frozenset[SearchLeg]] = {
    Strategy.HYBRID: frozenset(("vector", "keyword")),
    Strategy.VECTOR: frozenset(("vector",)),
    Strategy.KEYWORD: frozenset(("keyword",)),
    Strategy.NONE: frozenset(),
}
_PASSAGES = frozenset((ChunkKind.ORIGINAL,))
_QUESTIONS = frozenset((ChunkKind.HYPOTHETICAL_QUERY,))


class SearchOptions(StageOptions):
    """How a collection is searched.

    The tree's options count for ``mode=tree``, and where a stage such as ``route`` has a question
    searched in the tree.
    """

    mode: Literal["hybrid", "vector", "keyword", "tree"] = Field(
        default="hybrid", description="which searches are run"
    )
    candidates: int = Field(
        default=DEFAULT_CANDIDATES, ge=1, le=10_000, description="rows that each search brings"
    )
    fusion: Fusion = Field(
        default=DEFAULT_FUSION,
        description="convex: by normalised scores; rrf: reciprocal rank fusion",
    )
    vector_weight: float = Field(
        default=DEFAULT_VECTOR_WEIGHT,
        ge=0,
        le=1,
        description="the vector search's share in a convex fusion",
    )
    normalization: Normalization = Field(
        default=DEFAULT_NORMALIZATION, description="how a convex fusion scales scores"
    )
    k: int = Field(default=RRF_K, ge=0, description="the constant of reciprocal rank fusion")
    questions: bool = Field(
        default=True, description="hits on hypothetical questions lead to their passages"
    )
    traversal: Literal["collapsed", "top_down"] = Field(
        default="collapsed",
        description="tree: all levels ranked as one, or the way down from the top",
    )
    token_budget: int = Field(
        default=DEFAULT_TOKEN_BUDGET, ge=1, description="tree: tokens that results have together"
    )
    ranking: Literal["hybrid", "vector", "keyword"] = Field(
        default="hybrid", description="tree, collapsed: which searches rank the levels"
    )
    branch: int = Field(
        default=DEFAULT_BRANCH, ge=1, description="tree, top_down: nodes followed at each level"
    )
    leaves_only: bool = Field(
        default=False, description="tree: summaries lead the way down but are not found themselves"
    )


def encodable(text: str) -> str:
    """Return the text with U+FFFD in the place of lone surrogates."""
    return _SURROGATES.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes
    ----------
    lists
        One per leg and variant.
    fused
        All of them as one, best first.
    levels
        The same by levels of a summary tree, top first; empty for any other search.
    whole
        Whether the way down a tree found all that there is, or all that the token budget has room
        for; None for any other search.
    """

    lists: tuple[RankedList, ...]
    fused: tuple[RankedItem, ...]
    levels: tuple[Level, ...] = ()
    whole: bool | None = None

    def complete(self, depth: int) -> bool:
        """Return whether no list would be longer if it could have more than ``depth`` rows."""
        if self.whole is not None:
            return self.whole
        return all(len(ranked.items) < depth for ranked in self.lists)

    def histories(self, chunk_ids: Iterable[str]) -> dict[str, tuple[HistoryEntry, ...]]:
        """Return the chunks' ranks and scores in each list that has them, by chunk id."""
        found: dict[str, list[HistoryEntry]] = {chunk_id: [] for chunk_id in chunk_ids}
        for ranked in self.lists:
            name = leg_name(ranked, self.lists)
            for rank, item in enumerate(ranked.items, start=1):
                if item.chunk_id in found:
                    found[item.chunk_id].append(HistoryEntry(name, rank, item.score, item.via))
        for level in self.levels:
            for rank, item in enumerate(level.items, start=1):
                if item.chunk_id in found:
                    entry = HistoryEntry(f"level {level.number}", rank, item.score)
                    found[item.chunk_id].append(entry)
        return {chunk_id: tuple(entries) for chunk_id, entries in found.items()}


class Searcher:
    """Plans and runs the one search of a pipeline.

    Parameters
    ----------
    options
        How to search.
    embedder
        Gives the embedder; called only when a variant needs its vector.
    """

    def __init__(self, options: SearchOptions, embedder: Callable[[], Embedder]) -> None:
        self._options = options
        self._embedder = embedder
        self._vectors: tuple[QueryVariant, ...] | None = None

    def strategy(self, query: RetrievalQuery) -> Strategy:
        """Return how the query is searched: as a stage decided, else as the options say."""
        return query.strategy or Strategy(self._options.mode)

    def explanation(self, query: RetrievalQuery) -> str:
        """Return how the lists were fused."""
        strategy = self.strategy(query)
        if strategy is not Strategy.TREE:
            return self._fusion(query, strategy)
        if self._options.traversal == "top_down":
            return "tree, down from the top"
        ranking = self._fusion(query, Strategy(self._options.ranking))
        return f"tree, all levels as one: {ranking}"

    def _fusion(self, query: RetrievalQuery, strategy: Strategy) -> str:
        if strategy is not Strategy.HYBRID and len(query.effective_variants) == 1:
            return f"{strategy} search alone"
        if self._options.fusion == "rrf":
            return f"{strategy}, reciprocal rank fusion, k={self._options.k}"
        weight = self._options.vector_weight
        return f"{strategy}, convex combination, vector weight {weight:g}"

    async def search(
        self,
        query: RetrievalQuery,
        collection: Collection,
        depth: int,
        *,
        wanted: int = 0,
        forest: Forest | None = None,
    ) -> Found:
        """Run the legs at the same time and fuse what they bring.

        Parameters
        ----------
        query
            The query after its processors.
        collection
            Where to search.
        depth
            Rows that each list may have.
        wanted
            How many chunks the way down a tree should find.
        forest
            The summary tree that is searched, where it is one.
        """
        options, strategy = self._options, self.strategy(query)
        kinds = _PASSAGES | _QUESTIONS if options.questions else _PASSAGES
        if strategy is Strategy.TREE and forest is not None:
            if options.traversal == "top_down":
                return await self._descend(query, collection, wanted, forest)
            found = await self._ranked(
                query,
                collection,
                depth,
                _LEGS[Strategy(options.ranking)],
                kinds if options.leaves_only else kinds | SUMMARY_KINDS,
            )
            return _by_levels(found, forest)
        return await self._ranked(query, collection, depth, _LEGS[strategy], kinds)

    async def _descend(
        self, query: RetrievalQuery, collection: Collection, wanted: int, forest: Forest
    ) -> Found:
        """Go down the tree; what was taken of its levels is ranked by similarity."""
        variants = await self._variants(query, _LEGS[Strategy.VECTOR])
        descent = Descent(collection, forest, variants, query.filter)
        leaves_only = self._options.leaves_only
        # A later stage that chooses among more than top_k gets them, whatever they have of tokens.
        levels, more = await descent.levels(
            self._options.branch,
            wanted,
            leaves_only=leaves_only,
            budget=self._options.token_budget if wanted <= query.top_k else None,
        )
        found = [
            item
            for level in levels
            for item in level.items
            if level.number == 0 or (not leaves_only and item.chunk_id in forest.shown)
        ]
        found.sort(key=lambda item: (-item.score, item.chunk_id))
        return Found((), tuple(found), tuple(levels), whole=not more)

    async def _ranked(
        self,
        query: RetrievalQuery,
        collection: Collection,
        depth: int,
        legs: frozenset[SearchLeg],
        kinds: frozenset[ChunkKind],
    ) -> Found:
        if not legs:
            return Found((), ())
        plan = SearchPlan(await self._variants(query, legs), legs, depth, query.filter, kinds)
        lists = tuple(await collection.search(plan))
        fused = fuse(
            lists,
            fusion=self._options.fusion,
            vector_weight=self._options.vector_weight,
            normalization=self._options.normalization,
            k=self._options.k,
        )
        return Found(lists, tuple(fused))

    async def _variants(
        self, query: RetrievalQuery, legs: frozenset[SearchLeg]
    ) -> tuple[QueryVariant, ...]:
        """Return the variants, those that feed the vector leg with their vectors."""
        if self._vectors is None:
            variants = [
                replace(variant, text=encodable(variant.text))
                for variant in query.effective_variants
            ]
            if "vector" in legs:
                questions = [
                    i
                    for i, variant in enumerate(variants)
                    if variant.vector is None and "vector" in variant.legs
                ]
                await self._embed(variants, questions)
            self._vectors = tuple(variants)
        return self._vectors

    async def _embed(self, variants: list[QueryVariant], needing: Sequence[int]) -> None:
        # A hypothetical document is embedded as a document, a question as a question.
        for hypothetical in (False, True):
            places = [
                i for i in needing if (variants[i].kind is VariantKind.HYPOTHETICAL) is hypothetical
            ]
            if not places:
                continue
            embedder = self._embedder()
            embed = embedder.embed_documents if hypothetical else embedder.embed_queries
            vectors = await embed([variants[i].text for i in places])
            for place, vector in zip(places, vectors, strict=True):
                variants[place] = replace(variants[place], vector=vector)


def _by_levels(found: Found, forest: Forest) -> Found:
    """Return what was found, by levels too, without summaries that may not be shown."""
    kept = tuple(
        item
        for item in found.fused
        if item.chunk_id not in forest.summaries or item.chunk_id in forest.shown
    )
    levels: dict[int, list[RankedItem]] = {}
    for item in kept:
        levels.setdefault(forest.tree.level(item.chunk_id), []).append(item)
    by_level = (
        Level(number, tuple(levels[number]), len(levels[number]))
        for number in sorted(levels, reverse=True)
    )
    return Found(found.lists, kept, tuple(by_level))
