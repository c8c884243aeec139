"""An embedder for tests: no model, no download, the same vectors in every process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from nbrag.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["HashEmbedder"]

_TOKEN = re.compile(r"\w+|[^\w\s]")
#: Begin and end marks, which real models add to each text.
_SPECIAL_TOKENS = 2


@lru_cache(maxsize=65_536)
def _word_vector(word: str, dimension: int) -> NDArray[np.float32]:
    """Return a word's own direction: ``dimension`` signs drawn from a hash of the word."""
    import numpy as np

    seed = word.encode("utf-8", "surrogatepass")
    digest = hashlib.shake_128(seed).digest((dimension + 7) // 8)
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8), count=dimension)
    vector = bits.astype(np.float32) * 2 - 1
    vector.flags.writeable = False
    return vector


class HashEmbedder:
    """An embedder that needs no model: a text's vector is the sum of its words' hashes.

    Each casefolded word has a fixed random direction (signs from a hash), and a text is their
    sum, scaled to length 1. So the cosine of two texts is about the share of words that they
    have in common, within a noise of ``1 / sqrt(dimension)``. It is the same in every process.

    Parameters
    ----------
    dimension
        Length of a vector, at least 1.
    max_tokens
        Tokens of a text that count, the two special ones included; the rest is ignored.

    Attributes
    ----------
    calls
        How often texts were embedded, documents and queries together.
    embedded
        Every document text that was embedded, in order: a test can see that none was embedded
        a second time.
    queries
        Every query text that was embedded, in order.
    """

    def __init__(self, dimension: int = 64, max_tokens: int = 256) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, not {dimension}")
        if max_tokens <= _SPECIAL_TOKENS:
            raise ValueError(f"max_tokens must be more than {_SPECIAL_TOKENS}, not {max_tokens}")
        self._dimension = dimension
        self._max_tokens = max_tokens
        self.calls = 0
        self.embedded: list[str] = []
        self.queries: list[str] = []

    @property
    def identity(self) -> EmbedderIdentity:
        """Name, revision (the hash scheme and the limit) and dimension."""
        return EmbedderIdentity(
            name="nbrag/hash-embedder",
            revision=f"1-{self._max_tokens}",
            dimension=self._dimension,
            pooling="none",
        )

    @property
    def max_tokens(self) -> int:
        """The most tokens of one text that count, special tokens included."""
        return self._max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of words and punctuation marks of each text, plus 2."""
        return [sum(1 for _ in _TOKEN.finditer(text)) + _SPECIAL_TOKENS for text in texts]

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of each word and punctuation mark."""
        return [match.span() for match in _TOKEN.finditer(text)]

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        self.calls += 1
        self.embedded.extend(texts)
        return self._vectors(texts)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        self.calls += 1
        self.queries.extend(texts)
        return self._vectors(texts)

    def close(self) -> None:
        """Do nothing: there is no model to free."""

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            tokens = _TOKEN.findall(text)[: self._max_tokens - _SPECIAL_TOKENS]
            for token in tokens:
                vectors[row] += _word_vector(token.casefold(), self._dimension)
            if not vectors[row].any():
                vectors[row] = _word_vector("", self._dimension)
            vectors[row] /= np.linalg.norm(vectors[row])
        return vectors
