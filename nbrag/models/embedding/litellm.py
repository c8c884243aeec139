"""Embeddings by any provider that LiteLLM knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from nbrag.background import on_loop
from nbrag.errors import ConfigurationError, ModelError
from nbrag.models.embedding._provider_tokens import ByteLevelTokens, EstimatedTokens, SpanFinder
from nbrag.models.provider import (
    NO_RETRIES,
    load_litellm,
    provider_error,
    refuse_keys,
    retrying,
)
from nbrag.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LiteLLMEmbedder"]

#: The limit assumed for a model that LiteLLM's list does not have; nearly all take this much.
_CAUTIOUS_LIMIT = 512
#: Most tokens of one request; providers refuse more than about 300,000.
_REQUEST_TOKENS = 100_000


class LiteLLMEmbedder:
    """An embedder that asks a provider: OpenAI, Azure, Cohere, Voyage, Ollama, and others.

    Keys are read from the environment by LiteLLM (``OPENAI_API_KEY`` and so on) and never appear
    in errors. Texts go out in batches, several requests at a time; requests that fail for a
    passing reason are tried again, after the wait that the server asks for. Texts beyond the
    model's limit are cut to it. Vectors are scaled to length 1.

    Tokens of OpenAI models are counted with ``cl100k_base``, from the copy that LiteLLM carries;
    those of other models by a cautious estimate (see
    :class:`nbrag.models.embedding._provider_tokens.EstimatedTokens`: about 1.4 times the real
    count for English), because their tokenizers would have to be downloaded.

    Parameters
    ----------
    model
        Provider and model, e.g. ``openai/text-embedding-3-small``, ``ollama/nomic-embed-text``.
    dimension
        Length of a vector, which shorter than the model's own is asked of the provider. None
        takes the model's own: from LiteLLM's list, else learnt from the first reply (reading
        :attr:`identity` before that makes one call).
    max_tokens
        Where texts are cut; None takes it from LiteLLM's list, else 512.
    query_prefix, document_prefix
        Text put before each query or document.
    query_options, document_options
        More options of the call, e.g. ``{"input_type": "search_query"}``.
    api_base
        Address of a server, e.g. ``http://127.0.0.1:8000/v1``.
    batch_size
        Most texts of one request.
    concurrency
        Most requests at the same time.
    attempts
        How often a request is tried in all.
    timeout
        Seconds to wait for one reply.

    Raises
    ------
    ConfigurationError
        When an option can't be used.
    """

    def __init__(
        self,
        model: str = "openai/text-embedding-3-small",
        *,
        dimension: int | None = None,
        max_tokens: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        query_options: Mapping[str, Any] | None = None,
        document_options: Mapping[str, Any] | None = None,
        api_base: str | None = None,
        batch_size: int = 128,
        concurrency: int = 4,
        attempts: int = 5,
        timeout: float = 60.0,
    ) -> None:
        if not model.strip():
            raise ConfigurationError("the embedding model's name is empty.")
        limits = {
            "dimension": dimension,
            "max_tokens": max_tokens,
            "batch_size": batch_size,
            "concurrency": concurrency,
            "attempts": attempts,
        }
        for name, value in limits.items():
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}.")
        for options in (query_options or {}, document_options or {}):
            refuse_keys(options)
        self._model = model
        self._wanted_dimension = dimension
        self._dimension = dimension
        self._max_tokens = max_tokens
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._query_options = dict(query_options or {})
        self._document_options = dict(document_options or {})
        self._api_base = api_base
        self._batch_size = batch_size
        self._requests = asyncio.Semaphore(concurrency)
        self._attempts = attempts
        self._timeout = timeout
        self._tokens: SpanFinder | None = None

    def __repr__(self) -> str:
        """Return the model's name."""
        return f"LiteLLMEmbedder({self._model!r})"

    @property
    def identity(self) -> EmbedderIdentity:
        """The model's name, dimension and prefixes; providers tell no revision.

        Where the dimension is not known yet, one short text is embedded to learn it.
        """
        if self._dimension is None:
            self._dimension = self._listed("output_vector_size") or self._probed_dimension()
        return EmbedderIdentity(
            name=self._model,
            revision="",
            dimension=self._dimension,
            pooling="none",
            query_prefix=self._query_prefix,
            document_prefix=self._document_prefix,
        )

    @property
    def max_tokens(self) -> int:
        """The most tokens of one text that count; the document prefix has taken its share."""
        return max(self._limit() - len(self._spans(self._document_prefix)), 1)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, exact or estimated (see the class)."""
        return [len(self._spans(text)) for text in texts]

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of each token, exact or estimated."""
        return self._spans(text)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        return await on_loop(self._embed(texts, self._document_prefix, self._document_options))

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        return await on_loop(self._embed(texts, self._query_prefix, self._query_options))

    def close(self) -> None:
        """Do nothing: there is no model on this machine."""

    def __enter__(self) -> Self:
        """Return the embedder itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def _embed(
        self, texts: Sequence[str], prefix: str, options: Mapping[str, Any]
    ) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return np.zeros((0, self.identity.dimension), dtype=np.float32)
        # Importing LiteLLM and counting take seconds, during which the loop must go on.
        litellm = await asyncio.to_thread(load_litellm)
        prepared = await asyncio.to_thread(lambda: [self._cut(prefix + text) for text in texts])
        requests = [
            asyncio.ensure_future(self._request(litellm, [text for text, _ in batch], options))
            for batch in self._batches(prepared)
        ]
        try:
            replies = await asyncio.gather(*requests)
        finally:
            for request in requests:
                request.cancel()
        return np.concatenate(replies)

    async def _request(
        self, litellm: Any, texts: list[str], options: Mapping[str, Any]
    ) -> NDArray[np.float32]:
        async with self._requests:
            try:
                async for attempt in retrying(self._attempts):
                    with attempt:
                        reply = await litellm.aembedding(**self._arguments(texts, options))
            except Exception as error:  # noqa: BLE001 - providers raise what they like
                raise provider_error(self._model, error) from None
        return self._vectors(reply, len(texts))

    def _arguments(self, texts: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._model,
            "input": texts,
            "timeout": self._timeout,
            "max_retries": NO_RETRIES,
            "encoding_format": "float",
            "drop_params": True,
            **options,
        }
        if self._api_base is not None:
            arguments["api_base"] = self._api_base
        if self._wanted_dimension is not None:
            arguments["dimensions"] = self._wanted_dimension
        return arguments

    def _vectors(self, reply: Any, count: int) -> NDArray[np.float32]:
        """Return a reply's vectors in the order of the texts, checked and scaled."""
        import numpy as np

        rows = [row if isinstance(row, Mapping) else dict(row) for row in reply.data]
        order = [row.get("index", place) for place, row in enumerate(rows)]
        if sorted(order) != list(range(count)):
            raise ModelError(
                f"{self._model} answered {count} texts with {len(rows)} vectors"
                + ("." if len(rows) != count else ", some of them twice.")
            )
        by_text = sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])
        lengths = {len(row["embedding"]) for _, row in by_text}
        wanted = self._dimension or min(lengths)
        if lengths != {wanted}:
            found = ", ".join(str(length) for length in sorted(lengths))
            raise ModelError(
                f"{self._model} gave vectors of length {found}, not {wanted}.",
                hint="leave out dimension=: this model has one length only"
                if self._wanted_dimension
                else "the model behind this name has changed; make a new collection",
            )
        vectors = np.array([row["embedding"] for _, row in by_text], dtype=np.float32)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and norms.all()):
            raise ModelError(f"{self._model} gave a vector that is zero or not a number.")
        self._dimension = wanted
        scaled: NDArray[np.float32] = vectors / norms
        return scaled

    def _cut(self, text: str) -> tuple[str, int]:
        """Return the text within the model's limit, never empty, with its tokens."""
        if not text.strip():
            return " ", 1  # providers refuse empty input
        spans = self._spans(text)
        limit = self._limit()
        if len(spans) <= limit:
            return text, len(spans)
        # Cut before the first token beyond the limit, even where it shares its character.
        return text[: spans[limit][0]] or " ", limit

    def _batches(self, texts: list[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
        batch: list[tuple[str, int]] = []
        tokens = 0
        for text, count in texts:
            if batch and (len(batch) == self._batch_size or tokens + count > _REQUEST_TOKENS):
                yield batch
                batch, tokens = [], 0
            batch.append((text, count))
            tokens += count
        yield batch

    def _limit(self) -> int:
        if self._max_tokens is None:
            self._max_tokens = self._listed("max_input_tokens") or _CAUTIOUS_LIMIT
        return self._max_tokens

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if not text:
            return []
        if self._tokens is None:
            self._tokens = self._found_tokens()
        return self._tokens.spans(text)

    def _found_tokens(self) -> SpanFinder:
        name = self._model.rpartition("/")[2]
        if not name.startswith("text-embedding-") or name.startswith("text-embedding-0"):
            return EstimatedTokens()
        load_litellm()
        try:
            from litellm.litellm_core_utils.default_encoding import encoding
        except (ImportError, OSError):
            return EstimatedTokens()
        return ByteLevelTokens(encoding)

    def _listed(self, key: str) -> int | None:
        """Look up a number in LiteLLM's own list, which asks nobody."""
        listed = load_litellm().model_cost
        for name in (self._model, self._model.partition("/")[2]):
            value = listed.get(name, {}).get(key)
            if isinstance(value, int):
                return value
        return None

    def _probed_dimension(self) -> int:
        """Embed one word in this thread, whichever loop is waiting above it."""
        arguments = self._arguments(["dimension"], self._document_options)
        try:
            reply = load_litellm().embedding(**arguments)
        except Exception as error:  # noqa: BLE001 - providers raise what they like
            raise provider_error(self._model, error) from None
        return int(self._vectors(reply, 1).shape[1])
