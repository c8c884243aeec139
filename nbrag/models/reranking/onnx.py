"""Scores of question and passage together, by any ONNX sequence classifier."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.models.batching import batches_by_tokens
from nbrag.models.files import ModelFiles
from nbrag.models.prepared_files import prepared_files
from nbrag.models.reranking._classifier import Classifier
from nbrag.models.reranking._files import classifier_files
from nbrag.models.reranking._outputs import Outputs, sigmoid
from nbrag.models.reranking._pairs import EncodedPairs, PairTokenizer
from nbrag.models.reranking._settings import read_classifier_settings
from nbrag.models.sessions import DEFAULT_PROVIDERS, runs_prepared, usable_cpus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OnnxCrossEncoder", "PairScores"]

#: Tokens of one call of the graph, padding included: larger ones fall out of the CPU's cache.
_BATCH_TOKENS = 512
_OUTPUTS = ("auto", "logit", "probability")
#: What a classifier is tried on when it is opened: pairs of different length, one without a
#: passage.
_PROBE = ("what is it?", ("it is one of two", ""))


@dataclass(frozen=True, slots=True, eq=False)
class PairScores:
    """How well passages answer a question.

    Attributes
    ----------
    logits
        float64, one per passage in their order, unbounded: to rank by.
    question_tokens, question_read
        How many tokens the question has, and how many of them were read.
    passages_cut
        How many passages were not read to their end.
    """

    logits: NDArray[np.float64]
    question_tokens: int
    question_read: int
    passages_cut: int

    @property
    def scores(self) -> NDArray[np.float64]:
        """The logits' sigmoids, 0 to 1: to show, and to hold against a threshold."""
        return sigmoid(self.logits)


class OnnxCrossEncoder:
    """A cross-encoder: reads a question together with each passage, in worker threads.

    Nogueira and Cho, "Passage Re-ranking with BERT" (arXiv:1901.04085). Any ONNX sequence
    classifier with one label or two will do, in the shape of BERT, RoBERTa, XLM-RoBERTa or
    ModernBERT, in full or half precision or quantised. The model is loaded, tried and checked at
    the first call, and can be freed with :meth:`close`; it may be used from several tasks,
    threads and event loops at once. No library of custom operators is ever loaded.

    With two labels the logit is the difference of theirs; which one means relevant is told by
    their names in the model's ``config.json``, and is the second where they say nothing. Whether
    a graph gives logits or has squashed them already is told by its last operator (``Sigmoid``,
    ``Softmax``), for two labels also by whether their numbers add up to 1. The activation function
    in a configuration says nothing about it: it is what libraries apply after the graph.

    Parameters
    ----------
    model
        A folder in hub layout, an ``.onnx`` file, a hub name (see
        :func:`nbrag.models.files.find_files`), or a model's files.
    tokenizer
        A ``tokenizer.json`` or its folder, when it is not beside the model.
    file
        The graph to take where a model has several, e.g. ``onnx/model_quantized.onnx``.
    max_tokens
        Where pairs are cut, special tokens included; None reads it from the model's files.
    outputs
        ``logit`` or ``probability``: what the graph gives; ``auto`` finds out.
    relevant_label
        Name or place of the label that means relevant, for models with two whose names don't
        tell.
    threads
        Batches that are scored at the same time; None is one for each CPU of the process.
    batch_tokens
        Tokens of one call of the graph, padding included.
    providers
        ONNX Runtime execution providers, in order of preference; ``openvino`` computes in
        bfloat16 where the processor can.
    prepared
        Whether to take the model's prepared graph (see
        :func:`nbrag.models.preparing.prepare_model`); None takes it where there is one. Other
        providers than the CPU's own never do.

    Raises
    ------
    ModelNotFound, ModelInvalid, MissingDependency
        When the files are not there or don't describe a classifier. Graphs are opened, and
        therefore checked, at the first use.
    ConfigurationError
        When an option can't be used.
    """

    def __init__(
        self,
        model: str | Path | ModelFiles,
        *,
        tokenizer: str | Path | None = None,
        file: str | None = None,
        max_tokens: int | None = None,
        outputs: Outputs = "auto",
        relevant_label: int | str | None = None,
        threads: int | None = None,
        batch_tokens: int = _BATCH_TOKENS,
        providers: Sequence[str] = DEFAULT_PROVIDERS,
        prepared: bool | None = None,
    ) -> None:
        if outputs not in _OUTPUTS:
            hint = did_you_mean(outputs, _OUTPUTS, what="values")
            raise ConfigurationError(f"outputs can't be '{outputs}'.", hint=hint)
        for name, value in (("threads", threads), ("batch_tokens", batch_tokens)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}.")
        self._files = (
            model
            if isinstance(model, ModelFiles)
            else classifier_files(model, tokenizer=tokenizer, file=file)
        )
        self._settings = read_classifier_settings(
            self._files, max_tokens=max_tokens, relevant_label=relevant_label
        )
        if prepared is not False and runs_prepared(providers):
            found = prepared_files(self._files, required=prepared is True)
            self._files = found or self._files
        self._outputs = outputs
        self._threads = threads or usable_cpus()
        self._batch_tokens = batch_tokens
        self._providers = tuple(providers)
        self._lock = threading.RLock()
        self._loaded: tuple[Classifier, PairTokenizer] | None = None
        self._workers: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        """Return the model's name and limit."""
        return f"OnnxCrossEncoder({self.name!r}, max_tokens={self.max_tokens})"

    @property
    def name(self) -> str:
        """The model's name."""
        return self._files.name

    @property
    def max_tokens(self) -> int:
        """The most tokens of a question with its passage, special ones included."""
        return self._settings.max_tokens

    @property
    def outputs(self) -> str:
        """What the graph gives, and how that is known; loads the model."""
        reading = self._load()[0].reading
        return f"{reading.kind} ({reading.reason})"

    async def load(self) -> None:
        """Load and check the model, if it isn't loaded; a first call of :meth:`score` does too.

        Raises
        ------
        ModelInvalid
            When the files are not a classifier's.
        ConfigurationError
            When an execution provider is not available.
        """
        await asyncio.get_running_loop().run_in_executor(self._loaded_workers(), self._load)

    async def score(
        self,
        question: str,
        passages: Sequence[str],
        *,
        headings: Sequence[str] = (),
        windows: int = 1,
    ) -> PairScores:
        """Score each passage for the question.

        A pair that is longer than the limit loses the end of its passage. A question that leaves
        less than a quarter of the room to passages is cut to three quarters.

        Parameters
        ----------
        question
            The question.
        passages
            The passages; they may be empty.
        headings
            One text per passage to stand before it and before each of its windows; where the
            passage doesn't fit, it takes a quarter of the passage's room at most.
        windows
            Most windows in which a passage that doesn't fit is read, each overlapping the one
            before by a quarter; the best window's logit is the passage's.

        Raises
        ------
        ModelInvalid
            When the model can't be loaded, fails, or gives something that is no number.
        """
        import numpy as np

        if headings and len(headings) != len(passages):
            raise ConfigurationError(
                f"there are {len(headings)} headings for {len(passages)} passages."
            )
        if windows < 1:
            raise ConfigurationError(f"windows must be at least 1, not {windows}.")
        if not passages:
            return PairScores(np.zeros(0), 0, 0, 0)
        loop = asyncio.get_running_loop()
        workers = self._loaded_workers()

        prepare = partial(self._prepared, question, passages, headings=headings, windows=windows)
        classifier, encoded = await loop.run_in_executor(workers, prepare)
        pairs = encoded.pairs
        batches = batches_by_tokens([len(pair.ids) for pair in pairs], self._batch_tokens)
        runs = [
            loop.run_in_executor(workers, classifier.logits, [pairs[index] for index in batch])
            for batch in batches
        ]
        try:
            found = await asyncio.gather(*runs)
        finally:
            # After an error or an interrupt, batches that have not begun are left out.
            for pending in runs:
                pending.cancel()
        logits = np.full(len(passages), -np.inf)
        for batch, numbers in zip(batches, found, strict=True):
            np.maximum.at(logits, [pairs[index].passage for index in batch], numbers)
        return PairScores(
            logits, encoded.question_tokens, encoded.question_read, encoded.passages_cut
        )

    def close(self) -> None:
        """Free the model; calls in progress end as usual, and the next call loads it again."""
        with self._lock:
            self._loaded = None
            # Not shut down: calls in progress still need it, and its threads end with it.
            self._workers = None

    def __enter__(self) -> Self:
        """Return the cross-encoder itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the model."""
        self.close()

    def _loaded_workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self._threads, "nbrag-reranking")
            return self._workers

    def _prepared(
        self, question: str, passages: Sequence[str], *, headings: Sequence[str], windows: int
    ) -> tuple[Classifier, EncodedPairs]:
        classifier, tokenizer = self._load()
        return classifier, tokenizer.encode(question, passages, headings=headings, windows=windows)

    def _load(self) -> tuple[Classifier, PairTokenizer]:
        with self._lock:
            if self._loaded is None:
                tokenizer = PairTokenizer(self._files.tokenizer, self._settings)
                classifier = Classifier(
                    self._files,
                    self._settings,
                    pad_id=tokenizer.pad_id,
                    probe=tokenizer.encode(*_PROBE).pairs,
                    outputs=self._outputs,
                    providers=self._providers,
                )
                self._loaded = classifier, tokenizer
            return self._loaded
