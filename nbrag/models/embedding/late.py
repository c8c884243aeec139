"""Late chunking: chunks are embedded as parts of their document, not by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from nbrag.errors import ConfigurationError
from nbrag.protocols import Embedder
from nbrag.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LateEmbedder", "SpanEmbedder"]


@runtime_checkable
class SpanEmbedder(Embedder, Protocol):
    """An embedder that can see a whole text and give vectors for stretches of it."""

    async def embed_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> NDArray[np.float32]:
        """Return float32 vectors of length 1, shape (len(spans), dimension).

        Parameters
        ----------
        text
            The whole text.
        spans
            (start, end) character offsets of the stretches.
        """
        ...


class LateEmbedder:
    """An embedder whose vectors of documents are made by late chunking.

    Each chunk's vector is the mean of its tokens' vectors, as the encoder gives them when it sees
    the whole document (Günther et al. 2024), or windows of it that overlap by a half when it is
    longer than the encoder takes. Queries are embedded as always. The identity says so, because
    such vectors must not be mixed with those of chunks by themselves.

    Parameters
    ----------
    embedder
        An embedder with mean pooling that gives vectors of tokens.

    Raises
    ------
    ConfigurationError
        When the embedder gives no vectors of tokens, or pools otherwise than by their mean.
    """

    def __init__(self, embedder: Embedder) -> None:
        if not isinstance(embedder, SpanEmbedder):
            raise ConfigurationError(
                f"late chunking needs the vectors of tokens, and {embedder.identity.name} gives "
                "none.",
                hint="use an ONNX model, e.g. embedder=minilm, or leave late=true out",
            )
        if embedder.identity.pooling != "mean":
            raise ConfigurationError(
                f"late chunking needs a model with mean pooling, and {embedder.identity.name} "
                f"pools by '{embedder.identity.pooling}'.",
                hint="use another embedder, or leave late=true out",
            )
        self._embedder: SpanEmbedder = embedder

    @property
    def identity(self) -> EmbedderIdentity:
        """The embedder's identity, marked as that of late chunking."""
        return self._embedder.identity.as_late

    @property
    def max_tokens(self) -> int:
        """The most tokens of one text that count, special tokens included."""
        return self._embedder.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens included, untruncated."""
        return self._embedder.count_tokens(texts)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of each token, special tokens left out."""
        return self._embedder.token_spans(text)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts by themselves, for what stands in no document."""
        return await self._embedder.embed_documents(texts)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        return await self._embedder.embed_queries(texts)

    async def embed_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> NDArray[np.float32]:
        """Return vectors of stretches of a text, seen within it; see :class:`SpanEmbedder`."""
        return await self._embedder.embed_spans(text, spans)

    def close(self) -> None:
        """Free the model; the next call loads it again."""
        self._embedder.close()
