"""Two dimensions from many."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError, MissingDependency
from nbrag.maps.projection import principal_axes, umap_points


def spread(seed: int, rows: int, dimension: int) -> np.ndarray:
    """Return vectors whose directions have clearly different variances."""
    generator = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(generator.standard_normal((dimension, dimension)))
    scales = 3.0 ** -np.arange(dimension)
    return (generator.standard_normal((rows, dimension)) * scales @ turned + 2).astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60), st.integers(2, 24))
def test_axes_are_those_of_a_singular_value_decomposition(
    seed: int, rows: int, dimension: int
) -> None:
    vectors = spread(seed, rows, dimension)
    axes = principal_axes(vectors)
    centred = vectors.astype(np.float64) - vectors.astype(np.float64).mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    shares = sizes**2 / (sizes**2).sum()
    assert axes.shares == pytest.approx(tuple(shares[:2]), abs=1e-6)
    if sizes[1] > 1.2 * (sizes[2] if len(sizes) > 2 else 0) and sizes[0] > 1.2 * sizes[1]:
        assert np.abs(axes.axes @ directions[:2].T) == pytest.approx(np.eye(2), abs=2e-3)
    points = axes.points(vectors)
    assert points.mean(axis=0) == pytest.approx([0, 0], abs=1e-5)


def test_the_same_vectors_give_the_same_signs() -> None:
    vectors = spread(3, 30, 6)
    assert (principal_axes(vectors).axes == principal_axes(vectors.copy()).axes).all()
    largest = np.abs(principal_axes(vectors).axes).argmax(axis=1)
    assert (principal_axes(vectors).axes[[0, 1], largest] > 0).all()


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (3, 2)])
def test_few_vectors_and_dimensions_are_no_failure(shape: tuple[int, int]) -> None:
    vectors = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    axes = principal_axes(vectors)
    assert axes.axes.shape == (2, shape[1])
    assert np.isfinite(axes.points(vectors)).all()
    assert axes.points(vectors).shape == (shape[0], 2)


def test_equal_vectors_are_one_point() -> None:
    axes = principal_axes(np.ones((5, 4), np.float32))
    assert axes.shares == (0.0, 0.0)
    assert axes.points(np.ones((5, 4), np.float32)) == pytest.approx(0)


def test_a_missing_umap_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingDependency) as told:
        umap_points(np.eye(8, dtype=np.float32))
    assert told.value._render_traceback_() == [
        "MissingDependency: a map by UMAP needs the package umap-learn, which is not installed.",
        "Hint: pip install 'nbrag[umap]'",
    ]


def test_too_few_for_umap() -> None:
    with pytest.raises(ConfigurationError, match="at least 5 chunks"):
        umap_points(np.eye(4, dtype=np.float32))


def test_umap_keeps_clusters_apart() -> None:
    generator = np.random.default_rng(1)
    centres = np.repeat(np.eye(2, 10), 20, axis=0) * 5
    vectors = (centres + generator.standard_normal((40, 10)) * 0.1).astype(np.float32)
    points = umap_points(vectors)
    assert points.shape == (40, 2)
    middles = points[:20].mean(axis=0), points[20:].mean(axis=0)
    spread_within = np.linalg.norm(points[:20] - middles[0], axis=1).max()
    assert np.linalg.norm(middles[0] - middles[1]) > spread_within
