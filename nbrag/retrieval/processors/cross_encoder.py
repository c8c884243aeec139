"""The stage ``rerank model=FOLDER``: a cross-encoder scores each result for the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nbrag.errors import ModelInvalid, StageError
from nbrag.models.reranking import OnnxCrossEncoder, PairScores
from nbrag.models.sessions import DEFAULT_PROVIDERS
from nbrag.protocols import Collection, RetrievalResultProcessor
from nbrag.retrieval.processors.rerank import RerankOptions, reranker_name
from nbrag.types import RetrievalChunk, RetrievalResults

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CrossEncoderReranker", "model_options"]

#: The options that are the model's own.
_OF_THE_MODEL = (
    "tokenizer",
    "file",
    "max_tokens",
    "outputs",
    "batch_tokens",
    "threads",
    "prepared",
)


def model_options(options: RerankOptions) -> dict[str, Any]:
    """Return the options of a stage that are the model's, for :class:`OnnxCrossEncoder`."""
    chosen = {name: getattr(options, name) for name in _OF_THE_MODEL}
    return {**chosen, "providers": options.providers or DEFAULT_PROVIDERS}


class CrossEncoderReranker(RetrievalResultProcessor):
    """Orders results by a cross-encoder: a stage, and a :class:`nbrag.protocols.Reranker`.

    The model reads the question with each passage: its title and headings, which often say what a
    passage speaks of, then its content. Results are ordered by the model's logits, and get their
    sigmoid as score, 0 to 1; passages with the same logit keep their order. Ordering by the
    sigmoid itself would tie all that the model is sure of.

    With ``mix`` the score is ``mix * reranker + (1 - mix) * search``, where both are scaled to
    0..1 over the reranked results (least 0, most 1): the logits on one side, the scores so far on
    the other. The sigmoid then stays in each chunk's history, under ``cross-encoder``. A mix is
    the safe form where it is not known how good a model is on one's own documents: a weak one
    alone makes a good hybrid search worse.

    ``threshold`` is held against the sigmoid, mixed or not. Results that are not reranked follow
    in their old order, with scores below the last reranked one; with a threshold they are dropped.
    The results' metadata says ``reranked``, and under ``rerank_passages_cut`` how many passages
    were not read to their end. A question that is too long gives a warning.

    A model that can't be loaded is an error; one that fails on a question is passed over like any
    stage that fails.

    Parameters
    ----------
    model
        The model, or where it is: a folder, an ``.onnx`` file or a hub name.
    options
        How many results are looked at, and how the score is made; None takes the defaults.

    Raises
    ------
    ModelNotFound, ModelInvalid, MissingDependency, ConfigurationError
        When the model's files are not there or don't describe a classifier.
    """

    name = "rerank"

    def __init__(
        self, model: OnnxCrossEncoder | str | Path, options: RerankOptions | None = None
    ) -> None:
        if isinstance(model, OnnxCrossEncoder):
            self.options = options or RerankOptions(model=reranker_name(model.name))
            self.model = model
        else:
            self.options = options or RerankOptions(model=reranker_name(model))
            self.model = OnnxCrossEncoder(model, **model_options(self.options))

    def candidates_needed(self, top_k: int) -> int:
        """Return how many results there should be to choose from."""
        return max(self.options.candidates, top_k)

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:  # noqa: ARG002
        """Return the results in the model's order, the first ``keep`` of them."""
        options = self.options
        chunks = results.chunks[: options.candidates]
        rest = results.chunks[options.candidates :]
        if not chunks:
            return results
        await self.model.load()
        try:
            found = await self._scored(results.query.text, chunks)
        except ModelInvalid as error:
            raise StageError(self.name, error.message, hint=error.hint) from error
        ordered = self._ordered(chunks, found, threshold=options.threshold)
        if options.threshold is None:
            ordered += self._below(ordered[-1].score, len(ordered), rest)
        metadata = {**results.metadata, "reranked": True}
        if found.passages_cut:
            metadata["rerank_passages_cut"] = found.passages_cut
        results = replace(results, chunks=tuple(ordered[: options.keep]), metadata=metadata)
        if found.question_read < found.question_tokens:
            results = results.with_warning(
                f"stage '{self.name}': of the question's {found.question_tokens} tokens the model "
                f"read the first {found.question_read}"
            )
        return results

    async def rerank(self, query: str, chunks: Sequence[RetrievalChunk]) -> list[RetrievalChunk]:
        """Return all the chunks, best first.

        Raises
        ------
        ModelInvalid
            When the model can't be loaded, or fails.
        """
        if not chunks:
            return []
        return self._ordered(chunks, await self._scored(query, chunks), threshold=None)

    def close(self) -> None:
        """Free the model; the next use loads it again."""
        self.model.close()

    def __enter__(self) -> Self:
        """Return the reranker."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the model."""
        self.close()

    async def _scored(self, question: str, chunks: Sequence[RetrievalChunk]) -> PairScores:
        return await self.model.score(
            question,
            [chunk.content for chunk in chunks],
            headings=[_heading(chunk) for chunk in chunks] if self.options.headings else (),
            windows=self.options.windows,
        )

    def _ordered(
        self, chunks: Sequence[RetrievalChunk], found: PairScores, *, threshold: float | None
    ) -> list[RetrievalChunk]:
        """Return the chunks that pass the threshold, best first, with their scores."""
        shown = found.scores
        own_order = _best_first(found.logits)
        order, scores = own_order, shown
        entries = list(chunks)
        if self.options.mix is not None:
            for rank, place in enumerate(own_order, start=1):
                entries[place] = chunks[place].ranked("cross-encoder", rank, float(shown[place]))
            scores = _mixed(found.logits, [chunk.score for chunk in chunks], self.options.mix)
            order = _best_first(scores)
        if threshold is not None:
            order = [place for place in order if shown[place] >= threshold]
        return [
            entries[place].ranked(self.name, rank, float(scores[place]))
            for rank, place in enumerate(order, start=1)
        ]

    def _below(
        self, score: float, ranks: int, chunks: Sequence[RetrievalChunk]
    ) -> list[RetrievalChunk]:
        """Return what was not reranked, with scores that fall from the last one to 0."""
        share = score / (len(chunks) + 1)
        return [
            chunk.ranked(self.name, ranks + place, score - share * place)
            for place, chunk in enumerate(chunks, start=1)
        ]


def _heading(chunk: RetrievalChunk) -> str:
    """Return the title and the headings that a chunk stands under, as one line."""
    title = str(chunk.record.get("title") or "")
    titles = dict.fromkeys(filter(None, (title, *chunk.heading_path)))
    return " > ".join(titles) + "\n" if titles else ""


def _best_first(values: NDArray[np.float64]) -> list[int]:
    return sorted(range(len(values)), key=lambda place: (-float(values[place]), place))


def _mixed(
    logits: NDArray[np.float64], scores: Sequence[float], share: float
) -> NDArray[np.float64]:
    """Return ``share`` of the logits and the rest of the scores, both scaled to 0..1."""
    import numpy as np

    mixed: NDArray[np.float64] = share * _scaled(logits) + (1 - share) * _scaled(np.array(scores))
    return mixed


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values with the least at 0 and the most at 1; all 1 where they are the same."""
    import numpy as np

    width = float(np.ptp(values))
    scaled: NDArray[np.float64] = (
        (values - values.min()) / width if width > 0 else np.ones(len(values))
    )
    return scaled
