"""From many dimensions to two: principal components, and UMAP where it is installed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import ConfigurationError, MissingDependency

__all__ = ["PrincipalAxes", "principal_axes", "umap_points"]

#: Below this UMAP has no neighbourhoods to go by.
_FEWEST_FOR_UMAP = 5
_NEIGHBOURS = 15
#: Of the iteration for principal axes: directions, rounds, and when their values count as found.
_DIRECTIONS, _ROUNDS, _ENOUGH = 8, 300, 1e-9
#: Multiplications of one product below which OpenBLAS uses one thread (its threshold is 2**18).
_SMALL = 200_000


@dataclass(frozen=True, slots=True)
class PrincipalAxes:
    """The two directions in which vectors differ most.

    Attributes
    ----------
    mean
        float64 of shape (dimension,).
    axes
        float64 of shape (2, dimension), of length 1 each; zero where there is no such direction.
    shares
        The parts of the variance along them, from 0 to 1.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    shares: tuple[float, float]

    def points(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return float64 of shape (n, 2) for vectors of shape (n, dimension)."""
        return _Blocks(vectors.astype(np.float64) - self.mean).times(self.axes.T)


def principal_axes(vectors: NDArray[np.float32]) -> PrincipalAxes:
    """Return the first two principal components (Pearson 1901).

    By subspace iteration with 8 directions, at most 300 rounds, in one thread: where other work
    holds the processors, the threads of a linear algebra library wait for each other, and the
    full eigenvalue problem of 384 dimensions took seconds. The component of each axis that is
    largest in size is positive, so that the same vectors give the same map everywhere.

    Parameters
    ----------
    vectors
        Of shape (n, dimension), n at least 1.
    """
    exact = vectors.astype(np.float64)
    mean = exact.mean(axis=0)
    centred = exact - mean
    variances, axes = _leading(centred)
    largest = np.abs(axes).argmax(axis=1)
    axes = axes * np.where(axes[np.arange(len(axes)), largest] < 0, -1.0, 1.0)[:, None]
    total = float(np.einsum("ij,ij->", centred, centred)) / len(exact)
    shares = variances / total if total > 0 else np.zeros_like(variances)
    if len(axes) < 2:
        axes = np.vstack([axes, np.zeros_like(axes)])
        shares = np.append(shares, 0.0)
    return PrincipalAxes(mean, axes, (float(shares[0]), float(shares[1])))


class _Blocks:
    """A matrix cut into blocks of rows, so small that a product with one stays in this thread."""

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        self._rows, dimension = matrix.shape
        size = max(_SMALL // (dimension * _DIRECTIONS), 1)
        padding = -self._rows % size
        padded = np.pad(matrix, ((0, padding), (0, 0)))
        self._blocks = padded.reshape(-1, size, dimension)

    def times(self, other: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product with a matrix of shape (dimension, k)."""
        product: NDArray[np.float64] = (self._blocks @ other).reshape(-1, other.shape[1])
        return product[: self._rows]

    def scatter_times(self, other: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of the covariance (rows times their transpose) with a matrix."""
        inner = self._blocks @ other
        product = (self._blocks.transpose(0, 2, 1) @ inner).sum(axis=0)
        scaled: NDArray[np.float64] = product / self._rows
        return scaled


def _leading(centred: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the covariance's two largest eigenvalues, and their eigenvectors as rows."""
    blocks, dimension = _Blocks(centred), centred.shape[1]
    count = min(_DIRECTIONS, dimension)
    basis = np.random.default_rng(0).standard_normal((dimension, count))
    basis, _triangle = np.linalg.qr(basis)
    before = np.zeros(0)
    for _ in range(_ROUNDS):
        image = blocks.scatter_times(basis)
        values, turns = np.linalg.eigh(basis.T @ image)
        largest = values[::-1][:2]
        leading = (basis @ turns[:, ::-1][:, :2]).T
        if len(before) and np.allclose(largest, before, rtol=_ENOUGH, atol=0.0):
            break
        before = largest
        basis, _triangle = np.linalg.qr(image)
    return np.maximum(largest, 0.0), leading


def umap_points(vectors: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.float64]:
    """Return float64 of shape (n, 2) by UMAP (McInnes, Healy and Melville 2018).

    15 neighbours, by cosine, minimal distance 0.1: the paper's own defaults for all else.

    Parameters
    ----------
    vectors
        Of shape (n, dimension).
    seed
        The same seed and vectors give the same points on the same machine.

    Raises
    ------
    MissingDependency
        When umap-learn is not installed.
    ConfigurationError
        When there are fewer than 5 vectors.
    """
    if len(vectors) < _FEWEST_FOR_UMAP:
        raise ConfigurationError(
            f"UMAP needs at least {_FEWEST_FOR_UMAP} chunks, there are {len(vectors)}.",
            hint="draw the map with PCA",
        )
    with warnings.catch_warnings():
        # About optional parts of umap-learn that are not used here.
        warnings.simplefilter("ignore")
        try:
            import umap
        except ImportError:
            raise MissingDependency("a map by UMAP", "umap-learn", "umap") from None
        reducer = umap.UMAP(
            n_neighbors=min(_NEIGHBOURS, len(vectors) - 1),
            metric="cosine",
            random_state=seed,
            n_jobs=1,
            init="spectral" if len(vectors) > _NEIGHBOURS else "random",
        )
        points: NDArray[np.float64] = np.asarray(reducer.fit_transform(vectors), np.float64)
    return points
