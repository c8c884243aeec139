"""Questions in, ranked chunks out: fusion, processors, the pipeline and its builder."""

from nbrag.retrieval.builder import RetrievalPipelineBuilder
from nbrag.retrieval.forest import source_passages
from nbrag.retrieval.pipeline import RetrievalPipeline
from nbrag.retrieval.retrievers import (
    PipelineRetriever,
    TreeSearchRetriever,
    VectorStoreRetriever,
)
from nbrag.retrieval.searching import SearchOptions

__all__ = [
    "PipelineRetriever",
    "RetrievalPipeline",
    "RetrievalPipelineBuilder",
    "SearchOptions",
    "TreeSearchRetriever",
    "VectorStoreRetriever",
    "source_passages",
]
