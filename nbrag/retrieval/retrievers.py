"""Retrievers: one method that finds chunks, whatever is behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from nbrag.protocols import Collection, Embedder
from nbrag.retrieval.pipeline import RetrievalPipeline
from nbrag.retrieval.searching import SearchOptions
from nbrag.types import RetrievalQuery, RetrievalResults

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["PipelineRetriever", "VectorStoreRetriever"]


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
