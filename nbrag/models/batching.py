"""Batches cut by tokens: a padded batch costs its longest text times its number of texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["batches_by_tokens"]


def batches_by_tokens(counts: Sequence[int], budget: int) -> list[list[int]]:
    """Group texts of similar length so that no padded batch is larger than a budget.

    Parameters
    ----------
    counts
        Tokens of each text.
    budget
        The most tokens of a batch, padding included, at least 1. A text that is longer on its
        own makes a batch by itself.

    Returns
    -------
    list[list[int]]
        Indices into ``counts``, each exactly once; longest texts first, so that the last
        batches are the short ones and workers finish together.

    Raises
    ------
    ValueError
        When the budget is below 1.
    """
    if budget < 1:
        raise ValueError(f"budget must be at least 1, not {budget}")
    batches: list[list[int]] = []
    width = 0
    for index in sorted(range(len(counts)), key=lambda index: (-counts[index], index)):
        if batches and (len(batches[-1]) + 1) * width <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
            width = counts[index]
    return batches
