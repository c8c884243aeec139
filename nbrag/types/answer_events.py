"""What happens while an answer is made."""

from __future__ import annotations

from dataclasses import dataclass

from nbrag.types.answers import Answer, Citation, Passage

__all__ = [
    "AnswerDone",
    "AnswerEvent",
    "CitationFound",
    "EvidenceRegistered",
    "StageFinished",
    "StageStarted",
    "TextPiece",
]


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of the answer begins."""

    stage: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage of the answer is over; ``detail`` says what it did."""

    stage: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceRegistered:
    """The passages have their numbers; nothing is written before."""

    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More of the answer's text.

    Attributes
    ----------
    piece
        What is new.
    text
        All of it so far; where it does not begin with what was there before, the answer was
        begun anew.
    """

    piece: str
    text: str


@dataclass(frozen=True, slots=True)
class CitationFound:
    """A quote was given and found in its passage."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class AnswerDone:
    """The end: the whole answer."""

    answer: Answer


AnswerEvent = (
    StageStarted | StageFinished | EvidenceRegistered | TextPiece | CitationFound | AnswerDone
)
