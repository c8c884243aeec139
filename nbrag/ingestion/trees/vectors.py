"""Vectors of a tree's nodes: stored ones, those of summaries, and stand-ins for missing ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nbrag.ingestion.embedding import BATCH_TOKENS
from nbrag.protocols import Collection, Embedder
from nbrag.types import stable_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["NodeVectors", "embedded"]


async def embedded(
    embedder: Embedder, collection: Collection, texts: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """Return float32 vectors by text; those that the collection knows are not computed again.

    Computed ones are kept by the collection at once, in batches of a token budget, so that a
    stop loses one batch at the most.
    """
    session = collection.writer()
    hashes = {text: stable_hash(text) for text in dict.fromkeys(texts)}
    known = await session.known_vectors(list(hashes.values()))
    vectors = {text: known[own] for text, own in hashes.items() if own in known}
    waiting = [text for text in hashes if text not in vectors]
    counts = embedder.count_tokens(waiting)
    while waiting:
        size, tokens = 0, 0
        while size < len(waiting) and (not size or tokens + counts[size] <= BATCH_TOKENS):
            tokens += counts[size]
            size += 1
        batch, waiting, counts = waiting[:size], waiting[size:], counts[size:]
        computed = await embedder.embed_documents(batch)
        await session.stage_vectors([hashes[text] for text in batch], computed)
        vectors.update(zip(batch, computed, strict=True))
    return vectors


class NodeVectors:
    """Gives the vectors of passages and of summaries by id.

    Parameters
    ----------
    embedder
        Computes those of new summaries.
    collection
        Has those of passages.
    text
        Gives a summary's text by its node's id, None where it is missing.
    children
        Gives a missing summary's children; nothing for anything else.
    """

    def __init__(
        self,
        embedder: Embedder,
        collection: Collection,
        text: Callable[[str], str | None],
        children: Callable[[str], Sequence[str]],
    ) -> None:
        self._embedder = embedder
        self._collection = collection
        self._text = text
        self._children = children
        self._known: dict[str, NDArray[np.float32]] = {}

    async def __call__(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return float32 vectors by id; for a missing summary, the mean of its children's."""
        wanted = [node for node in ids if node not in self._known]
        texts = {node: text for node in wanted if (text := self._text(node)) is not None}
        if texts:
            vectors = await embedded(self._embedder, self._collection, list(texts.values()))
            self._known.update({node: vectors[text] for node, text in texts.items()})
        missing = [node for node in wanted if node not in texts and self._children(node)]
        for node in missing:
            beneath = await self(self._children(node))
            self._known[node] = sum(beneath.values()) / len(beneath)  # type: ignore[assignment]
        passages = [node for node in wanted if node not in self._known]
        self._known.update(await self._collection.vectors(passages))
        return {node: self._known[node] for node in ids}
