"""The stage ``mmr``: results that say different things come before repeats of the same."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from nbrag.protocols import Collection, RetrievalResultProcessor
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.types import RetrievalResults

__all__ = ["MmrOptions", "MmrProcessor"]


class MmrOptions(StageOptions):
    """How relevance and difference are weighed."""

    diversity: float = Field(
        default=0.3, ge=0, le=1, description="0: relevance alone, 1: difference alone"
    )
    candidates: int = Field(
        default=20, ge=2, le=1_000, description="results that it chooses from, at least"
    )


class MmrProcessor(RetrievalResultProcessor):
    """Maximal marginal relevance over the stored vectors.

    Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents
    and Producing Summaries" (SIGIR 1998): the next result is the one with the highest
    ``lambda * relevance - (1 - lambda) * similarity`` to the nearest result chosen already;
    ``diversity`` is 1 - lambda. Relevance is the score so far, scaled to 0..1 over the
    candidates; similarities below 0 count as 0. Chunks without a stored vector, such as those of
    another source, come last in their order.

    Parameters
    ----------
    options
        How relevance and difference are weighed.
    """

    name = "mmr"

    def __init__(self, options: MmrOptions) -> None:
        self.options = options

    def candidates_needed(self, top_k: int) -> int:
        """Return how many candidates there should be to choose from."""
        return max(self.options.candidates, 2 * top_k)

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        """Return the results in the order of their marginal relevance."""
        import numpy as np

        vectors = await collection.vectors([chunk.id for chunk in results.chunks])
        chunks = [chunk for chunk in results.chunks if chunk.id in vectors]
        if len(chunks) < 2:
            return results
        matrix = np.stack([vectors[chunk.id] for chunk in chunks])
        scores = np.array([chunk.score for chunk in chunks])
        width = float(np.ptp(scores))
        relevance = (scores - scores.min()) / width if width > 0 else np.ones(len(chunks))
        diversity = self.options.diversity
        nearest = np.zeros(len(chunks))
        left = np.ones(len(chunks), np.bool_)
        chosen = []
        for rank in range(1, len(chunks) + 1):
            marginal = (1 - diversity) * relevance - diversity * nearest
            best = int(np.argmax(np.where(left, marginal, -np.inf)))
            left[best] = False
            chosen.append(chunks[best].ranked(self.name, rank, float(marginal[best])))
            nearest = np.maximum(nearest, matrix @ matrix[best])
        others = [chunk for chunk in results.chunks if chunk.id not in vectors]
        return replace(results, chunks=(*chosen, *others))


register_stage(
    StageDefinition(
        name="mmr",
        kind="retrieval",
        role="result",
        options=MmrOptions,
        build=lambda options, _context: MmrProcessor(options),
        method="use_mmr",
        summary="Different results before repeats (maximal marginal relevance).",
    )
)
