"""Percentile bootstrap intervals of means (Efron 1979; Sakai 2006 for retrieval metrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CONFIDENCE", "RESAMPLES", "bootstrap_intervals"]

RESAMPLES = 10_000
CONFIDENCE = 0.95
#: Numbers drawn at a time; bounds the memory to some tens of megabytes.
_BLOCK = 1_000_000


def bootstrap_intervals(
    values: NDArray[np.float64], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[tuple[float, float]]:
    """Return a 95 % interval for the mean of each column.

    Parameters
    ----------
    values
        float64 of shape (queries, metrics); all columns are resampled alike.
    resamples
        How many samples are drawn, each as large as the data, with replacement.
    seed
        The same seed gives the same intervals.

    Returns
    -------
    list of tuple
        Low and high of each column.
    """
    import numpy as np

    count, columns = values.shape
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, columns))
    step = max(_BLOCK // count, 1)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = generator.integers(0, count, size=(size, count))
        for column in range(columns):
            means[start : start + size, column] = values[:, column][drawn].mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
