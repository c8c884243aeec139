"""Mean vectors of stretches of a long text, each token seen within the text around it.

Late chunking (Günther et al. 2024, "Late Chunking: Contextual Chunk Embeddings Using Long-Context
Embedding Models"): the encoder sees as much of a document as it takes, and only then the vectors of
each chunk's tokens are averaged. A document beyond the encoder's limit is seen in windows that
overlap; a token's vector is taken from the window in which more of the text stands around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SpanMeans", "Window", "windows_of"]

#: The share of a window that it has in common with the next one.
OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a text's tokens that the encoder sees at once.

    Attributes
    ----------
    start, end
        What it sees, in tokens.
    keep_start, keep_end
        The part whose vectors are taken from it.
    """

    start: int
    end: int
    keep_start: int
    keep_end: int


def windows_of(count: int, size: int) -> list[Window]:
    """Return windows whose kept parts cover ``count`` tokens, each exactly once.

    Parameters
    ----------
    count
        Tokens in all.
    size
        Tokens of a window, at least 1.
    """
    if count <= size:
        return [Window(0, count, 0, count)]
    stride = max(1, size - int(size * OVERLAP))
    starts = [*range(0, count - size, stride), count - size]
    borders = [(before + size + after) // 2 for before, after in pairwise(starts)]
    return [
        Window(start, start + size, low, high)
        for start, low, high in zip(starts, [0, *borders], [*borders, count], strict=True)
    ]


class SpanMeans:
    """A whole text in tokens, and sums of token vectors for some stretches of it.

    Parameters
    ----------
    ids
        All token ids: special ones, the prefix, the text.
    offsets
        Where each token stands in the text, counted from behind the prefix.
    special
        Which tokens the model adds by itself.
    spans
        (start, end) character offsets of the stretches.
    limit
        Most tokens that the encoder takes at once.
    pools_prefix
        Whether what stands before the text counts for the stretch at its beginning.
    """

    def __init__(
        self,
        ids: Sequence[int],
        offsets: Sequence[tuple[int, int]],
        special: Sequence[bool],
        spans: Sequence[tuple[int, int]],
        limit: int,
        *,
        pools_prefix: bool = True,
    ) -> None:
        import numpy as np

        tail = 0
        while tail < len(ids) and special[len(ids) - 1 - tail]:
            tail += 1
        head = 0
        while head < len(ids) - tail and (special[head] or offsets[head][1] <= 0):
            head += 1
        body = len(ids) - head - tail
        self._ids = list(ids)
        self._head, self._tail, self._body = head, tail, body
        self.windows = windows_of(body, max(1, limit - head - tail))
        starts = np.array([start for start, _ in offsets[head : head + body]], dtype=np.int64)
        ends = np.array([end for _, end in offsets[head : head + body]], dtype=np.int64)
        # A tokenizer's offsets may step back by a mark or two; borders need them in order.
        np.maximum.accumulate(ends, out=ends)
        starts = np.minimum.accumulate(starts[::-1])[::-1]
        first = np.searchsorted(ends, [start for start, _ in spans], side="right")
        last = np.maximum(np.searchsorted(starts, [end for _, end in spans], side="left"), first)
        #: Stretches without any token.
        self.empty: list[int] = [int(place) for place in np.flatnonzero(first == last)]
        # Special tokens and the prefix count for the stretch at the text's beginning or end, so
        # that a text of a single chunk has the very vector that it has by itself.
        self._low = np.where(first == 0, 0 if pools_prefix else head, first + head)
        self._high = np.where(last == body, head + body + tail, last + head)
        self._sums: NDArray[np.float64] | None = None

    def window_ids(self, window: Window) -> list[int]:
        """Return the token ids of a window, with what the model and the prefix put around it."""
        head, ids = self._head, self._ids
        text = ids[head + window.start : head + window.end]
        return [*ids[:head], *text, *ids[head + self._body :]]

    def add(self, window: Window, states: NDArray[np.float32]) -> None:
        """Add a window's token vectors, shape (tokens of the window, dimension)."""
        import numpy as np

        head = self._head
        low = 0 if window.keep_start == 0 else head + window.keep_start
        high = head + window.keep_end
        if window.keep_end == self._body:
            high += self._tail
        # Places of the window's own row of vectors: its head stands where the text's does.
        shift = window.start
        if self._sums is None:
            self._sums = np.zeros((len(self._low), states.shape[1]))
        for place in np.flatnonzero((self._low < high) & (self._high > low)):
            start, end = max(self._low[place], low), min(self._high[place], high)
            own_start = start if start < head else start - shift
            self._sums[place] += states[own_start : end - shift].sum(axis=0, dtype=np.float64)

    def means(self) -> NDArray[np.float32]:
        """Return the mean vectors, float32 of shape (stretches, dimension), not scaled."""
        import numpy as np

        if self._sums is None:
            raise ValueError("no window was added")
        counts = np.maximum(self._high - self._low, 1)
        means: NDArray[np.float32] = (self._sums / counts[:, None]).astype(np.float32)
        return means
