"""Soft clusters of vectors within a token limit, as RAPTOR forms them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nbrag.errors import MissingDependency

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float64]

__all__ = ["packed_clusters", "require_clustering", "soft_clusters"]

#: Numbers of clusters that are tried first; then those around the best of them.
_LADDER = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128, 181, 256)
#: Steps in which the neighbourhood of the best is looked through.
_STEPS = 4
#: Vectors from which the number of clusters is chosen; all of them are then assigned.
_SAMPLE = 1_000
_SEED = 0
#: Least variance of a component, as a share of that of all vectors.
_LEAST_VARIANCE = 0.05


def require_clustering() -> None:
    """Raise MissingDependency when scikit-learn is not there, before anything is paid for."""
    # Looked for and not imported, which takes a second or two.
    if find_spec("sklearn") is None or find_spec("threadpoolctl") is None:
        raise MissingDependency("the stage 'tree form=raptor'", "scikit-learn", "tree")


def soft_clusters(
    vectors: NDArray[Any],
    tokens: Sequence[int],
    *,
    limit: int,
    threshold: float = 0.1,
    dimensions: int = 10,
    most: int = 50,
) -> list[list[int]]:
    """Return clusters of rows, each within the token limit; a row may be in several.

    The method is RAPTOR's (Sarthi et al., 2024). Vectors are reduced; a Gaussian mixture, its
    number of components chosen by BIC (of at most 50), divides them, and each part is reduced
    and divided once more by itself. A row belongs to every component that it has a probability
    above 0.1 of, and at least to its likeliest. What is over the limit (3,500 tokens there) is
    divided again by the same means; where that leads to no smaller parts, it is cut into pieces
    along its first principal component.

    Three things differ from the authors' code. Vectors are reduced to 10 dimensions by PCA
    instead of UMAP: PCA gives the same for the same vectors, in any order and for two of them
    as for thousands, where UMAP draws at random and breaks on small sets. Components have one
    variance each instead of a full covariance: on 404 chunks of the tutorial corpus
    (all-MiniLM-L6-v2) their best BIC is -3,678, that of full covariances -3,185. And a
    component has at least a twentieth of the whole variance, and identical vectors are weighed
    once: else a component per vector would win the comparison, where vectors are few or repeated.

    Parameters
    ----------
    vectors
        Shape (rows, dimension). Rows of the same vector are told apart by their order, all
        others not: any order of them gives the same clusters.
    tokens
        Of each row. A row over the limit is a cluster by itself.
    limit
        Most tokens of a cluster.
    threshold
        Probability from which a row belongs to a component.
    dimensions
        What vectors are reduced to; as few rows as that, and one, are not divided further unless
        they are over the limit.
    most
        Most components of one division.

    Returns
    -------
    list
        Rows of each cluster, ascending; clusters in the order of their first rows. Every row is
        in at least one, and no cluster is another's equal.

    Raises
    ------
    MissingDependency
        When scikit-learn is not installed.
    """
    import numpy as np

    require_clustering()
    from threadpoolctl import threadpool_limits

    rows = np.asarray(vectors, np.float64)
    if not len(rows):
        return []
    divide = _Divider(
        rows, tokens, limit=limit, threshold=threshold, dimensions=dimensions, most=most
    )
    # One thread: several wait busily for each other where cores are shared, for a set this small.
    with threadpool_limits(1):
        found = {tuple(cluster) for cluster in divide(list(range(len(rows))))}
    return sorted([list(cluster) for cluster in _without_loners(found, rows, tokens, limit)])


class _Divider:
    """Divides rows until every part is within the limit."""

    def __init__(
        self,
        rows: Vectors,
        tokens: Sequence[int],
        *,
        limit: int,
        threshold: float,
        dimensions: int,
        most: int,
    ) -> None:
        self.rows = rows
        self.tokens = tokens
        self.limit = limit
        self.threshold = threshold
        self.dimensions = dimensions
        self.most = most

    def __call__(self, members: list[int]) -> Iterator[list[int]]:
        """Yield the parts of a set of rows."""
        for part in self._parts(members):
            for cluster in self._parts(part):
                if sum(self.tokens[row] for row in cluster) <= self.limit or len(cluster) == 1:
                    yield cluster
                elif len(cluster) < len(members):
                    yield from self(cluster)
                else:
                    yield from packed_clusters(self.rows, self.tokens, cluster, self.limit)

    def _parts(self, members: list[int]) -> list[list[int]]:
        """Divide rows once, by a mixture of as many components as BIC prefers."""
        import numpy as np

        # Sorted as well: the order in which rows came has no influence on what follows.
        distinct, place = np.unique(self.rows[members], axis=0, return_inverse=True)
        if len(distinct) <= self.dimensions + 1:
            return [members]
        likely = _memberships(distinct, self.dimensions, self.most)
        belongs = likely > self.threshold
        belongs[np.arange(len(distinct)), likely.argmax(axis=1)] = True
        place = place.reshape(-1)
        parts = [
            [member for member, row in zip(members, place, strict=True) if belongs[row, component]]
            for component in range(belongs.shape[1])
        ]
        return [part for part in parts if part]


def _memberships(distinct: Vectors, dimensions: int, most: int) -> Vectors:
    """Return the probability of each component for each row, shape (rows, components)."""
    import numpy as np
    from sklearn.decomposition import PCA
    from sklearn.exceptions import ConvergenceWarning

    count = min(dimensions, *distinct.shape)
    with warnings.catch_warnings():
        # A mixture that has not settled is one candidate among others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        reduced = PCA(count, random_state=_SEED).fit_transform(distinct)
        sample = reduced
        if len(reduced) > _SAMPLE:
            chosen = np.random.default_rng(_SEED).choice(len(reduced), _SAMPLE, replace=False)
            sample = reduced[np.sort(chosen)]
        best = _best_number(sample, min(most, len(distinct) - 1))
        likely: Vectors = _mixture(best, reduced).predict_proba(reduced)
    return likely


def _best_number(sample: Vectors, most: int) -> int:
    """Return the number of components with the lowest BIC."""
    found: dict[int, float] = {}

    def look(numbers: Sequence[int]) -> int:
        for number in numbers:
            if number not in found:
                found[number] = float(_mixture(number, sample).bic(sample))
        return min(found, key=lambda number: (found[number], number))

    ladder = [*(number for number in _LADDER if number < most), most]
    place = ladder.index(look(ladder))
    low, high = ladder[max(place - 1, 0)], ladder[min(place + 1, len(ladder) - 1)]
    return look(range(low, high + 1, max((high - low) // _STEPS, 1)))


def _mixture(components: int, rows: Vectors) -> Any:
    """Return a mixture that is fitted to rows."""
    from sklearn.mixture import GaussianMixture

    least = _LEAST_VARIANCE * float(rows.var(axis=0).mean())
    mixture = GaussianMixture(
        components, covariance_type="spherical", reg_covar=max(least, 1e-9), random_state=_SEED
    )
    return mixture.fit(rows)


def packed_clusters(
    vectors: NDArray[Any], tokens: Sequence[int], members: Sequence[int], limit: int
) -> list[list[int]]:
    """Return rows in pieces within a token limit, cut along the direction in which they differ.

    Parameters
    ----------
    vectors, tokens
        Of all rows.
    members
        The rows to be cut, at least one.
    limit
        Most tokens of a piece; a row over it is a piece by itself.
    """
    import numpy as np

    rows = np.asarray(vectors, np.float64)[list(members)]
    centred = rows - rows.mean(axis=0)
    axis = np.linalg.svd(centred, full_matrices=False)[2][0] if len(rows) > 1 else centred[0]
    # The sign of an axis is arbitrary: the one whose largest part is positive is taken.
    axis = axis * (1.0 if axis[np.abs(axis).argmax()] >= 0 else -1.0)
    along = np.round(centred @ axis, 9)
    ordered = [members[place] for place in np.lexsort((np.array(members), along))]
    total = sum(tokens[row] for row in ordered)
    share = total / max(-(-total // limit), 1)
    pieces: list[list[int]] = []
    filled = 0
    for row in ordered:
        if not pieces or filled + tokens[row] > limit or filled >= share:
            pieces.append([])
            filled = 0
        pieces[-1].append(row)
        filled += tokens[row]
    return [sorted(piece) for piece in pieces]


def _without_loners(
    found: set[tuple[int, ...]], rows: Vectors, tokens: Sequence[int], limit: int
) -> set[tuple[int, ...]]:
    """Bring clusters of one row to the nearest one that has room, as far as there is one."""
    import numpy as np

    kept = {cluster for cluster in found if len(cluster) > 1}
    covered = {row for cluster in kept for row in cluster}
    loners = sorted(
        (cluster[0] for cluster in found - kept if cluster[0] not in covered),
        key=lambda row: (tuple(rows[row]), row),
    )
    clusters = [list(cluster) for cluster in sorted(kept)]
    means = np.array([rows[cluster].mean(axis=0) for cluster in clusters]).reshape(
        -1, rows.shape[1]
    )
    filled = np.array([sum(tokens[row] for row in cluster) for cluster in clusters])
    alone = []
    for row in loners:
        room = np.flatnonzero(filled + tokens[row] <= limit)
        if not len(room):
            alone.append([row])
            continue
        nearest = room[(means[room] @ rows[row]).argmax()]
        cluster = clusters[nearest]
        cluster.append(row)
        means[nearest] += (rows[row] - means[nearest]) / len(cluster)
        filled[nearest] += tokens[row]
    return {tuple(sorted(cluster)) for cluster in (*clusters, *alone)}
