"""The stage ``order``: the best results at both ends, where models read best."""

from __future__ import annotations

from dataclasses import replace

from nbrag.protocols import Collection, RetrievalResultProcessor
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.types import RetrievalResults

__all__ = ["EndsFirstOrder", "OrderOptions"]


class OrderOptions(StageOptions):
    """There is nothing to choose."""


class EndsFirstOrder(RetrievalResultProcessor):
    """Puts the best results first and last, and the worst in the middle.

    Liu et al., "Lost in the Middle: How Language Models Use Long Contexts" (arXiv:2307.03172):
    what stands at the beginning or the end of a prompt is used better than what is between. Ranks
    1 2 3 4 5 come as 1 3 5 4 2. For a prompt, not for a reader or a measurement: ranks and scores
    by relevance stand in each chunk's history.

    Parameters
    ----------
    options
        None to choose from.
    """

    name = "order"
    after_cut = True

    def __init__(self, options: OrderOptions | None = None) -> None:
        self.options = options or OrderOptions()

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:  # noqa: ARG002
        """Return the results in the new order."""
        return replace(results, chunks=results.chunks[::2] + results.chunks[1::2][::-1])


register_stage(
    StageDefinition(
        name="order",
        kind="retrieval",
        role="result",
        options=OrderOptions,
        build=lambda options, _context: EndsFirstOrder(options),
        method="use_order",
        summary="The best results at both ends, for a model that reads them.",
        single=True,
    )
)
