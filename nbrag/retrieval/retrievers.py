"""Retrievers: one method that finds chunks, whatever is behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from nbrag.protocols import Collection, Embedder
from nbrag.retrieval.pipeline import RetrievalPipeline
from nbrag.retrieval.searching import DEFAULT_BRANCH, DEFAULT_TOKEN_BUDGET, SearchOptions
from nbrag.types import RetrievalQuery, RetrievalResults

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["PipelineRetriever", "TreeSearchRetriever", "VectorStoreRetriever"]


class PipelineRetriever:
    """A pipeline bound to one collection.

    Parameters
    ----------
    pipeline
        What is run.
    collection
        Where it searches.
    """

    def __init__(self, pipeline: RetrievalPipeline, collection: Collection) -> None:
        self.pipeline = pipeline
        self.collection = collection

    async def retrieve(
        self, query: str | RetrievalQuery, *, top_k: int | None = None, where: Any = None
    ) -> RetrievalResults:
        """Return at most ``top_k`` chunks, best first, that pass the filter ``where``.

        Without ``top_k``: 5, or what a prepared query asks for.
        """
        return await self.pipeline.process(self.collection, query, top_k=top_k, where=where)

    async def __aenter__(self) -> Self:
        """Return the retriever."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the pipeline."""
        await self.pipeline.__aexit__(kind, error, trace)


class VectorStoreRetriever(PipelineRetriever):
    """Searches a collection without further stages.

    Parameters
    ----------
    collection
        Where to search.
    embedder
        Embeds questions; must be the collection's.
    mode
        ``vector``, ``keyword`` or ``hybrid``.
    """

    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        *,
        mode: Literal["vector", "keyword", "hybrid"] = "vector",
    ) -> None:
        super().__init__(
            RetrievalPipeline(lambda: embedder, search=SearchOptions(mode=mode)), collection
        )


class TreeSearchRetriever(PipelineRetriever):
    """Searches a collection's summary tree: passages, and summaries of them at several levels.

    Sarthi et al., "RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval" (ICLR
    2024). The collapsed tree ranks all levels as one and takes the best until a token budget is
    full; the paper finds it better than the way down from the top (its budget: 2,000 tokens).

    Results are at most ``top_k``, and never more than the token budget holds; the paper lets the
    budget alone decide, which is what a large ``top_k`` does. A result that does not fit is left
    out, shorter ones after it may still come in; only the first may be over the budget by itself.
    A summary's record says its ``level``, ``summary_passages`` (how many passages it was made
    from) and ``summary_children``; :func:`nbrag.retrieval.source_passages` gives the passages.

    With a filter only what passes it as a whole is shown: passages that pass, and a summary where
    its own row passes and every passage beneath it does. That is in practice a document's own
    summary under a filter on documents; a summary of several documents has none of their fields.
    Other summaries still lead the way down, unseen.

    Parameters
    ----------
    collection
        Where to search. Without a summary tree it is a hybrid search, with a warning.
    embedder
        Embeds questions; must be the collection's.
    traversal
        ``collapsed`` or ``top_down``.
    token_budget
        Tokens that the results have together, as the embedder counts them; default 2000.
    ranking
        Which searches rank the collapsed tree: ``hybrid``, or ``vector`` as in the paper, or
        ``keyword``.
    branch
        Nodes that the way down follows at each level, by cosine similarity; default 5. Where
        that finds fewer than ``top_k`` and leaves room in the token budget, twice as many.
    leaves_only
        Whether summaries only lead the way and are not found themselves.
    questions
        Whether hits on hypothetical questions lead to their passages (collapsed only).
    strict
        Whether a collection without a summary tree raises :class:`nbrag.errors.StageError`.
    """

    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        *,
        traversal: Literal["collapsed", "top_down"] = "collapsed",
        token_budget: int = DEFAULT_TOKEN_BUDGET,
        ranking: Literal["hybrid", "vector", "keyword"] = "hybrid",
        branch: int = DEFAULT_BRANCH,
        leaves_only: bool = False,
        questions: bool = True,
        strict: bool = False,
    ) -> None:
        options = SearchOptions(
            mode="tree",
            traversal=traversal,
            token_budget=token_budget,
            ranking=ranking,
            branch=branch,
            leaves_only=leaves_only,
            questions=questions,
        )
        super().__init__(
            RetrievalPipeline(lambda: embedder, search=options, strict=strict), collection
        )
