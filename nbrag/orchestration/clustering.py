"""Passages in groups of like meaning, and subsets with one of each group."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["clusters", "subsets", "word_vectors"]

#: Starts of k-means, of which the closest clusters are kept, and most rounds of each.
_STARTS, _ROUNDS = 5, 50
#: A distance that only rounding makes.
_NOTHING = 1e-6
_WORD = re.compile(r"\w+")


def clusters(vectors: NDArray[np.float32], count: int, *, seed: int = 13) -> list[int]:
    """Divide vectors into clusters by k-means on their directions.

    Lloyd's rounds from k-means++ starts (Arthur and Vassilvitskii, SODA 2007), five of them, all
    drawn from one seed: the same vectors give the same clusters.

    Parameters
    ----------
    vectors
        Shape (n, dimension), of any length.
    count
        Most clusters; fewer when there are fewer different vectors.
    seed
        Of the starts.

    Returns
    -------
    list of int
        Each vector's cluster; numbered from 0 in the order in which they come.
    """
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float64)
    if not len(rows):
        return []
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    random = np.random.default_rng(seed)
    found = [_divided(rows, count, random) for _ in range(_STARTS)]
    labels = min(found, key=lambda one: one[0])[1]
    names: dict[int, int] = {}
    return [names.setdefault(int(label), len(names)) for label in labels]


def _divided(
    rows: NDArray[np.float64], count: int, random: np.random.Generator
) -> tuple[float, NDArray[np.intp]]:
    """Return the sum of distances to the centres, and each row's cluster."""
    import numpy as np

    centres = rows[[int(random.integers(len(rows)))]]
    while len(centres) < count:
        nearest = _distances(rows, centres).min(axis=1)
        if nearest.max() <= _NOTHING:
            break
        chosen = int(random.choice(len(rows), p=nearest / nearest.sum()))
        centres = np.vstack([centres, rows[chosen]])
    labels = _distances(rows, centres).argmin(axis=1)
    for _ in range(_ROUNDS):
        kept = [rows[labels == number].mean(axis=0) for number in np.unique(labels)]
        centres = np.stack(kept)
        following = _distances(rows, centres).argmin(axis=1)
        if np.array_equal(following, labels):
            break
        labels = following
    return float(_distances(rows, centres).min(axis=1).sum()), labels


def _distances(rows: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distances, shape (rows, centres)."""
    import numpy as np

    found: NDArray[np.float64] = np.square(rows[:, None, :] - centres[None, :, :]).sum(axis=2)
    return np.where(found > _NOTHING, found, 0.0)


def subsets(labels: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return different subsets with one member of each cluster.

    Members that were used least come first, then those that stand first: so the first subset
    holds the best of each cluster, and every member gets its turn as early as it can.

    Parameters
    ----------
    labels
        Each member's cluster, best members first.
    count
        Most subsets; fewer when there are no more different ones.

    Returns
    -------
    list of tuple of int
        Positions in ``labels``, ascending.
    """
    members: dict[int, list[int]] = {}
    for position, label in enumerate(labels):
        members.setdefault(label, []).append(position)
    used: Counter[int] = Counter()
    found: list[tuple[int, ...]] = []
    while members and len(found) < count:
        orders = [sorted(group, key=lambda one: (used[one], one)) for group in members.values()]
        # At most as many are passed over as there are already.
        every = (tuple(sorted(one)) for one in itertools.product(*orders))
        following = next((one for one in every if one not in found), None)
        if following is None:
            break
        found.append(following)
        used.update(following)
    return found


def word_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return vectors of the words in texts, rare words weighing more; shape (len(texts), words)."""
    import numpy as np

    counts = [Counter(_WORD.findall(text.casefold())) for text in texts]
    spread = Counter(word for one in counts for word in one)
    places = {word: place for place, word in enumerate(sorted(spread))}
    vectors = np.zeros((len(texts), max(len(places), 1)), np.float32)
    for row, one in enumerate(counts):
        for word, times in one.items():
            rarity = np.log((1 + len(texts)) / (1 + spread[word])) + 1
            vectors[row, places[word]] = (1 + np.log(times)) * rarity
    return vectors
