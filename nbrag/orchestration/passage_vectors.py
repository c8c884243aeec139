"""Vectors of retrieved passages, from wherever they are to be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nbrag.orchestration.clustering import word_vectors
from nbrag.protocols import Collection, Embedder, Retriever
from nbrag.types import RetrievalChunk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["passage_vectors"]


async def passage_vectors(
    retriever: Retriever,
    chunks: Sequence[RetrievalChunk],
    embedder: Callable[[], Embedder] | None,
) -> tuple[NDArray[np.float32], str]:
    """Return one vector for each chunk, shape (len(chunks), dimension), and where they come from.

    Parameters
    ----------
    retriever
        Where the chunks come from; one with a ``collection`` has stored vectors.
    chunks
        The passages.
    embedder
        Gives what embeds passages without a stored vector; called only when there are some.

    Returns
    -------
    tuple
        The vectors, and ``collection``, ``embedder``, ``collection and embedder``, or ``words``:
        without an embedder, passages are told apart by their words.
    """
    import numpy as np

    collection = getattr(retriever, "collection", None)
    stored: dict[str, NDArray[np.float32]] = {}
    if isinstance(collection, Collection):
        stored = await collection.vectors([chunk.id for chunk in chunks])
    missing = [chunk for chunk in chunks if chunk.id not in stored]
    if not missing:
        return np.stack([stored[chunk.id] for chunk in chunks]), "collection"
    if embedder is None:
        return word_vectors([chunk.content for chunk in chunks]), "words"
    model = embedder()
    same = isinstance(collection, Collection) and (
        bool(stored) and model.identity == collection.identity.searched_with
    )
    to_embed = missing if same else list(chunks)
    embedded = await model.embed_documents([chunk.content for chunk in to_embed])
    known = {**(stored if same else {})}
    known |= {chunk.id: embedded[row] for row, chunk in enumerate(to_embed)}
    vectors = np.stack([known[chunk.id] for chunk in chunks])
    return vectors, "collection and embedder" if same else "embedder"
