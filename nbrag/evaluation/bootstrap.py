"""Percentile bootstrap intervals of means (Efron 1979; Sakai 2006 for retrieval metrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CONFIDENCE", "RESAMPLES", "bootstrap_intervals", "bootstrap_with_gaps"]

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


def bootstrap_with_gaps(
    values: NDArray[np.float64],
    other: NDArray[np.float64] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Return a 95 % interval for a mean over those questions that have a value.

    Questions are drawn with and without a value, so that how many have one varies too, as in a
    precision, whose denominator depends on the answers.

    Parameters
    ----------
    values
        float64 of shape (queries,); NaN where a question has no value.
    other
        A second series on the same questions: the interval is then that of the difference of the
        two means, values minus other, under the same draws.
    resamples, seed
        As in :func:`bootstrap_intervals`; samples without any value are left out.

    Returns
    -------
    tuple of float or None
        Low and high; None when no question has a value.
    """
    import numpy as np

    count = len(values)
    generator = np.random.default_rng(seed)
    means: list[NDArray[np.float64]] = []
    step = max(_BLOCK // max(count, 1), 1)
    for start in range(0, resamples if count else 0, step):
        drawn = generator.integers(0, count, size=(min(step, resamples - start), count))
        found = _means(values, drawn)
        means.append(found if other is None else found - _means(other, drawn))
    known = np.concatenate(means) if means else np.empty(0)
    known = known[~np.isnan(known)]
    if not len(known):
        return None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)


def _means(values: NDArray[np.float64], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each sample's mean over its known values, NaN where it has none."""
    import numpy as np

    there = ~np.isnan(values)
    counts = there[drawn].sum(axis=1)
    sums = np.where(there, values, 0.0)[drawn].sum(axis=1)
    found: NDArray[np.float64] = np.full(len(drawn), np.nan)
    np.divide(sums, counts, out=found, where=counts > 0)
    return found
