"""What drafts weigh: by probabilities of tokens, or by a rubric."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nbrag.orchestration.drafting import Draft
from nbrag.orchestration.limits import LimitedChatClient
from nbrag.orchestration.verifying import (
    CONSISTENCY_PROMPT,
    REFLECTION_PROMPT,
    probability_of_yes,
    rubric_scores,
)

__all__ = [
    "Weights",
    "shared_evidence",
    "together",
    "weights_by_probabilities",
    "weights_by_rubric",
]

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Weights:
    """What is known of the drafts' weight.

    Attributes
    ----------
    how
        ``probabilities``, ``rubric`` or ``none``.
    scores
        By a draft's number, its scores by name: ``rubric`` from 1 to 5; or ``consistency``,
        ``reflection`` and, where it is known, ``draft``, probabilities all.
    notes
        By a draft's number, the reason given.
    """

    how: str = "none"
    scores: dict[int, dict[str, float]] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)

    def score(self, number: int) -> float | None:
        """Return what the choice goes by, from 0 to 1; None when the draft was not weighed."""
        parts = self.scores.get(number)
        if parts is None:
            return None
        if "rubric" in parts:
            return (parts["rubric"] - 1) / 4
        return parts.get("draft", 1.0) * parts["consistency"] * parts["reflection"]

    def borne_out(self, number: int) -> float | None:
        """Return the verifier's word on the evidence alone, from 0 to 1; None without one."""
        return self.scores.get(number, {}).get("reflection", self.score(number))


async def weights_by_rubric(
    chat: LimitedChatClient, question: str, drafts: Sequence[Draft]
) -> Weights:
    """Weigh all drafts in one request, in the order given; errors as the client raises them."""
    found = await rubric_scores(chat, question, drafts)
    return Weights(
        "rubric",
        {number: {"rubric": float(score)} for number, (score, _) in found.items()},
        {number: reason for number, (_, reason) in found.items()},
    )


async def weights_by_probabilities(
    chat: LimitedChatClient, question: str, drafts: Sequence[Draft]
) -> Weights | None:
    """Weigh the drafts by two questions on each, side by side after the first.

    Returns
    -------
    Weights or None
        None when the model's replies do not tell how likely yes and no are: the first draft shows
        it before others are asked about.

    Raises
    ------
    ChatError, ModelError
        As the client raises them.
    """

    async def asked(draft: Draft) -> dict[str, float] | None:
        """Return what the model says on one draft."""
        consistency = await probability_of_yes(chat, CONSISTENCY_PROMPT, question, draft)
        if consistency is None:
            return None
        reflection = await probability_of_yes(chat, REFLECTION_PROMPT, question, draft)
        return (
            None if reflection is None else {"consistency": consistency, "reflection": reflection}
        )

    first = await asked(drafts[0])
    if first is None:
        return None
    scores: dict[int, dict[str, float]] = {}
    # Weights are comparable only where all have the same factors.
    known = {one.number: one.probability for one in drafts if one.probability is not None}
    others = await together([asked(draft) for draft in drafts[1:]])
    for draft, given in zip(drafts, [first, *others], strict=True):
        if given is None:
            return None
        own = {"draft": known[draft.number]} if len(known) == len(drafts) else {}
        scores[draft.number] = {**own, **given}
    return Weights("probabilities", scores)


def shared_evidence(draft: Draft, drafts: Sequence[Draft]) -> int:
    """Return how often other drafts cite the passages that this one cites."""
    return sum(len(draft.cites & other.cites) for other in drafts if other is not draft)


async def together(work: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """Return what all give, in order; when one raises, or all are cancelled, none runs on."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
