"""Thresholds of corrective retrieval, found from judgements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbrag.errors import JudgementsError
from nbrag.types import RetrievalChunk

if TYPE_CHECKING:
    from nbrag.retrieval.processors.crag import CragValidator

__all__ = ["CragCalibration", "calibrate_crag"]

#: What is taken when the judgements leave the choice open.
_UPPER, _LOWER = 4, 1


@dataclass(frozen=True, slots=True)
class CragCalibration:
    """Thresholds for ``use_crag(upper=..., lower=...)``, and what they rest on.

    Attributes
    ----------
    upper, lower
        The thresholds.
    upper_accuracy
        Balanced accuracy, 0 to 1, of "relevant" for grades of ``upper`` and more.
    lower_accuracy
        Balanced accuracy of "not relevant" for grades up to ``lower``, among the chunks below
        ``upper``.
    questions, chunks, relevant
        How many were judged; chunks without a grade don't count.
    ungraded
        How many chunks the model gave no grade.
    """

    upper: int
    lower: int
    upper_accuracy: float
    lower_accuracy: float
    questions: int
    chunks: int
    relevant: int
    ungraded: int


async def calibrate_crag(
    validator: CragValidator,
    judged: Iterable[tuple[str, Sequence[RetrievalChunk], Collection[str]]],
) -> CragCalibration:
    """Find the thresholds at which a model's grades agree best with judgements.

    Every chunk is graded as the stage grades it. ``upper`` is the grade from which on "relevant"
    has the highest balanced accuracy (mean of the shares of relevant and of irrelevant chunks
    that are called right). ``lower`` is found in the same way among the chunks that this leaves
    open, those below ``upper``; where they are all of one kind, the share called right decides.
    Between equals the one nearest to the defaults (4 and 1) is taken. ``lower=0`` means that no
    grade is a sure sign of irrelevance.

    The figures hold for the questions that they were found with: measure on others.

    Parameters
    ----------
    validator
        Grades; its own thresholds don't matter.
    judged
        Per question: its text, the chunks that were found, and the ids of those (or of their
        documents) that are relevant.

    Raises
    ------
    JudgementsError
        When there are no relevant or no irrelevant chunks among those with a grade.
    ChatError
        When the model gives a question's chunks no grades at all.
    """
    pairs: list[tuple[int, bool]] = []
    questions = ungraded = 0
    for question, chunks, relevant in judged:
        wanted = set(relevant)
        grades = await validator.grade(question, chunks)
        questions += 1
        for chunk, grade in zip(chunks, grades, strict=True):
            if grade is None:
                ungraded += 1
            else:
                pairs.append((grade, bool(wanted & {chunk.id, chunk.document_id})))
    hits = sum(is_relevant for _, is_relevant in pairs)
    if not 0 < hits < len(pairs):
        raise JudgementsError(
            f"{len(pairs)} graded chunks of {questions} questions, {hits} of them relevant: "
            "thresholds need relevant and irrelevant ones.",
            hint="judge more questions, or retrieve more chunks for each",
        )
    uppers = {cut: _balanced(pairs, cut) for cut in range(2, 6)}
    upper = max(uppers, key=lambda cut: (uppers[cut], -abs(cut - _UPPER)))
    below = [(grade, is_relevant) for grade, is_relevant in pairs if grade < upper]
    lowers = {cut: _balanced(below, cut + 1) for cut in range(upper)}
    lower = max(lowers, key=lambda cut: (lowers[cut], -abs(cut - _LOWER)))
    return CragCalibration(
        upper, lower, uppers[upper], lowers[lower], questions, len(pairs), hits, ungraded
    )


def _balanced(pairs: Sequence[tuple[int, bool]], cut: int) -> float:
    """Return the mean share, over both kinds, of what ``grade >= cut`` calls right.

    Of pairs that are all of one kind, that kind's share; of none at all, 1.
    """
    shares = []
    for kind in (True, False):
        right = [(grade >= cut) == kind for grade, is_relevant in pairs if is_relevant == kind]
        if right:
            shares.append(sum(right) / len(right))
    return sum(shares) / len(shares) if shares else 1.0
