"""The stage ``compress``: long results cut down to the sentences nearest to the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import Field

from nbrag.models.chat.passages import word_spans
from nbrag.protocols import Collection, Embedder, RetrievalResultProcessor
from nbrag.retrieval.processors._strips import recomposed, split_strips
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.types import RetrievalChunk, RetrievalResults

__all__ = ["CompressOptions", "ContextualCompressor"]


class CompressOptions(StageOptions):
    """How much of a result is left."""

    words: int = Field(
        default=100, ge=5, le=10_000, description="most words of a result; shorter ones stay"
    )


class ContextualCompressor(RetrievalResultProcessor):
    """Keeps the sentences of long results that are nearest to the question.

    No chat model is asked: sentences are embedded as documents, the question as a query, and the
    sentences with the highest cosine similarity are kept, as many as fit into ``words``, in the
    order of the text. What is left out between two of them is marked with ``[...]``. The ranking
    stays; ``record["strip_spans"]`` says where in the document the sentences stand.

    Parameters
    ----------
    options
        How much is left; the defaults when None.
    embedder
        Gives the embedder; called when there is a long result.
    """

    name = "compress"
    after_cut = True

    def __init__(
        self, options: CompressOptions | None = None, *, embedder: Callable[[], Embedder]
    ) -> None:
        self.options = options or CompressOptions()
        self._embedder = embedder

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:  # noqa: ARG002
        """Return the results, the long ones shortened."""
        cuts = {
            place: split_strips(chunk.content, sentences=1, fewest=1)
            for place, chunk in enumerate(results.chunks)
            if len(word_spans(chunk.content)) > self.options.words
        }
        if not cuts:
            return results
        embedder = self._embedder()
        texts = [
            results.chunks[place].content[start:end]
            for place, sentences in cuts.items()
            for start, end in sentences
        ]
        question = (await embedder.embed_queries([results.query.text]))[0]
        nearness = iter((await embedder.embed_documents(texts) @ question).tolist())
        chunks = list(results.chunks)
        for place, sentences in cuts.items():
            scored = [(next(nearness), sentence) for sentence in sentences]
            chunks[place] = self._shortened(chunks[place], scored)
        return replace(results, chunks=tuple(chunks))

    def _shortened(
        self, chunk: RetrievalChunk, scored: Sequence[tuple[float, tuple[int, int]]]
    ) -> RetrievalChunk:
        """Return the chunk with the best sentences that fit; of equals the earlier one."""
        left = self.options.words
        kept: list[tuple[int, int]] = []
        for _, (start, end) in sorted(scored, key=lambda one: (-one[0], one[1])):
            length = len(word_spans(chunk.content[start:end]))
            if length <= left:
                kept.append((start, end))
                left -= length
        # One sentence may be longer than all that is allowed.
        return recomposed(chunk, kept) if kept else chunk


register_stage(
    StageDefinition(
        name="compress",
        kind="retrieval",
        role="result",
        options=CompressOptions,
        build=lambda options, context: ContextualCompressor(options, embedder=context.embedder),
        method="use_compression",
        summary="Long results cut down to the sentences nearest to the question.",
    )
)
