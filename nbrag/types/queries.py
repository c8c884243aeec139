"""What is asked: a question and its forms, the search plan, and what each leg found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from nbrag.types.documents import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Fallback",
    "QueryVariant",
    "RankedItem",
    "RankedList",
    "RetrievalQuery",
    "SearchLeg",
    "SearchPlan",
    "Strategy",
    "VariantKind",
]

SearchLeg = Literal["vector", "keyword"]


class Strategy(StrEnum):
    """How a collection is searched."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"
    TREE = "tree"
    NONE = "none"


class VariantKind(StrEnum):
    """Where a form of the question comes from."""

    ORIGINAL = "original"
    REWRITE = "rewrite"
    HYPOTHETICAL = "hypothetical"


@dataclass(frozen=True, slots=True, eq=False)
class QueryVariant:
    """One form of the question that is searched: text, or a ready vector.

    Attributes
    ----------
    text
        The words, empty for a pure vector.
    kind
        The question itself, a rewrite of it, or a hypothetical document.
    weight
        Its vote in the fusion; 0 takes it out.
    legs
        The searches that it may feed.
    vector
        float32 of shape (dimension,), length 1; None means that the text is embedded.
    """

    text: str
    kind: VariantKind = VariantKind.ORIGINAL
    weight: float = 1.0
    legs: frozenset[SearchLeg] = frozenset(("vector", "keyword"))
    vector: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Fallback:
    """What is searched instead when a narrowed search finds too little.

    Attributes
    ----------
    minimum
        Fewer distinct chunks than this are too little.
    reason
        What narrowed the search, for the warning, e.g. ``route entity (product == "Ostara")``.
    strategy, filter
        How to search then; the filter is the one that the query had before it was narrowed.
    """

    minimum: int
    reason: str
    strategy: Strategy | None = None
    filter: Any = None


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A question on its way through a pipeline.

    Attributes
    ----------
    text
        The question as it was asked; never changed by a stage.
    top_k
        How many results are wanted.
    variants
        The forms that are searched; empty means the text itself.
    filter
        A :class:`nbrag.stores.filters.Filter`, or None.
    strategy
        How to search; None leaves it to the pipeline's search stage.
    fallback
        What is searched instead when this finds too little, or None.
    metadata
        What query processors have to say (route, reasoning).
    warnings
        What went wrong and what was done instead.
    """

    text: str
    top_k: int = 5
    variants: tuple[QueryVariant, ...] = ()
    filter: Any = None
    strategy: Strategy | None = None
    fallback: Fallback | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def effective_variants(self) -> tuple[QueryVariant, ...]:
        """The variants, or the question itself when no stage made any."""
        return self.variants or (QueryVariant(self.text),)

    def with_warning(self, warning: str) -> RetrievalQuery:
        """Return a copy that carries one more warning."""
        return replace(self, warnings=(*self.warnings, warning))


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a collection is asked for, in one call.

    Attributes
    ----------
    variants
        Forms of the question; those that feed the vector leg have their vector set.
    legs
        The searches to run.
    candidates
        How many rows each list may have.
    filter
        A :class:`nbrag.stores.filters.Filter` that every row must pass, or None.
    kinds
        Kinds of rows that may be found; empty means original chunks only. With hypothetical
        questions original chunks are found too, and a question is never found itself: a hit on
        it is one on the chunk that it leads to, which must pass the filter as well.
    """

    variants: tuple[QueryVariant, ...]
    legs: frozenset[SearchLeg]
    candidates: int
    filter: Any = None
    kinds: frozenset[ChunkKind] = frozenset((ChunkKind.ORIGINAL,))


@dataclass(frozen=True, slots=True)
class RankedItem:
    """One row of a ranked list: higher score is better, always.

    Attributes
    ----------
    chunk_id
        The chunk.
    score
        Its score; the best of its own and its questions' where those take part.
    via
        Id of the question whose score that is; None when it is the chunk's own.
    """

    chunk_id: str
    score: float
    via: str | None = None


@dataclass(frozen=True, slots=True)
class RankedList:
    """What one leg found for one variant, best first.

    Attributes
    ----------
    leg
        Which search.
    variant
        Index into ``plan.variants``.
    weight
        The variant's vote.
    items
        Rows in order, best first, no id twice. Keyword lists hold only rows that share a term
        with the query, or one of whose questions does.
    explanation
        How it was searched, e.g. ``exact over 812 rows``.
    others
        Rows that the plan's other lists found, with the score that they have in this one,
        in any order: being far down in one list is not the same as not being there.
    """

    leg: SearchLeg
    variant: int
    weight: float
    items: tuple[RankedItem, ...]
    explanation: str = ""
    others: tuple[RankedItem, ...] = ()
