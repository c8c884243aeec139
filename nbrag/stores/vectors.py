"""What a vector must be before it is stored or searched with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import EmbedderMismatch, QueryError, StoreError
from nbrag.types import EmbedderIdentity

__all__ = ["checked_query", "checked_vectors", "require_identity"]


def checked_vectors(
    vectors: NDArray[np.float32], count: int, dimension: int, *, collection: str
) -> NDArray[np.float32]:
    """Return contiguous float32 vectors of shape (count, dimension).

    Raises
    ------
    StoreError
        When the shape is another, or a vector is zero or not finite.
    """
    try:
        array = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise StoreError(f"collection '{collection}': not vectors: {error}.") from error
    if not count and not array.size:
        return np.empty((0, dimension), np.float32)
    if array.shape != (count, dimension):
        raise StoreError(
            f"collection '{collection}' takes {count} vectors of length {dimension}; "
            f"these have shape {array.shape}.",
            hint="use the embedder that the collection was made with",
        )
    squares = np.einsum("ij,ij->i", array, array, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(squares) | (squares <= 0))
    if len(bad):
        what = "zero" if squares[bad[0]] <= 0 else "not finite"
        raise StoreError(
            f"collection '{collection}': vector {int(bad[0])} is {what}.",
            hint="the embedder gave no usable vector for that text; was the text empty?",
        )
    return array


def checked_query(vector: NDArray[np.float32] | None, dimension: int) -> NDArray[np.float32]:
    """Return a query's vector as float32 of shape (dimension,).

    Raises
    ------
    QueryError
        When there is none, or it is of another length, zero or not finite.
    """
    if vector is None:
        raise QueryError("The vector search got a query without a vector.")
    array = np.asarray(vector, dtype=np.float32).reshape(-1)
    if len(array) != dimension:
        raise QueryError(
            f"The query's vector has length {len(array)}, the collection's have {dimension}.",
            hint="use the embedder that the collection was made with",
        )
    if not np.isfinite(array).all() or not array.any():
        raise QueryError("The query's vector is zero or not finite.", hint="is the question empty?")
    return array


def require_identity(collection: str, stored: EmbedderIdentity, used: EmbedderIdentity) -> None:
    """Make sure that vectors of the two embedders can be compared.

    Raises
    ------
    EmbedderMismatch
        Names both embedders and what differs.
    """
    differing = [
        f"{name} {getattr(stored, name)!r} there, {getattr(used, name)!r} here"
        for name in EmbedderIdentity.__slots__
        if getattr(stored, name) != getattr(used, name)
    ]
    if differing:
        hint = "use that embedder, or ingest into a new collection"
        if stored.name == used.name and _is_prepared(stored) != _is_prepared(used):
            hint = (
                "name it with prepared=false, e.g. embedder='minilm prepared=false', or ingest "
                "into a new collection"
                if _is_prepared(used)
                else "prepare the model here as well (nbrag models prepare NAME), or ingest into a "
                "new collection"
            )
        raise EmbedderMismatch(
            f"collection '{collection}' was made with the embedder {stored.name}, and "
            f"{used.name} is in use ({'; '.join(differing)}).",
            hint=hint,
        )


def _is_prepared(identity: EmbedderIdentity) -> bool:
    """Return whether vectors come from a prepared graph, as its revision says."""
    return "-prepared" in identity.revision
