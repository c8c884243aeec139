"""How the vectors of a text's tokens become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["pool"]


def pool(pooling: str, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return one vector for each text.

    Parameters
    ----------
    pooling
        ``cls``: the first token's; ``last``: the last one's; ``max``: the largest of each number;
        ``weightedmean``: later tokens count more, by their place (Muennighoff 2022);
        ``mean``: all alike.
    states
        Token vectors, shape (texts, tokens, dimension).
    mask
        Which tokens count, shape (texts, tokens): at least one of each text, padding on
        either side.

    Returns
    -------
    NDArray[numpy.float32]
        Vectors of shape (texts, dimension), not scaled.
    """
    import numpy as np

    rows = np.arange(len(states))
    if pooling == "cls":
        return np.asarray(states[rows, mask.argmax(axis=1)])
    if pooling == "last":
        return np.asarray(states[rows, mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)])
    if pooling == "max":
        return np.asarray(np.where(mask[:, :, None], states, -np.inf).max(axis=1))
    places = np.cumsum(mask, axis=1) if pooling == "weightedmean" else 1
    weights = (mask * places).astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    # Padding may hold anything, even what is not a number.
    return np.asarray(np.einsum("btd,bt->bd", np.where(mask[:, :, None], states, 0), weights))
