"""What is answered: a text, the places that it rests on, and how it came to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from nbrag.rendering import Rendering, clip, plain
from nbrag.types._answer_view import answer_rendering
from nbrag.types.chat import LedgerEntry
from nbrag.types.documents import Span
from nbrag.types.exports import TabularResult
from nbrag.types.results import RetrievalChunk

__all__ = [
    "Answer",
    "AnswerDraft",
    "AnswerOutcome",
    "AnswerRound",
    "AnswerUsage",
    "Citation",
    "Claim",
    "ClaimVerdict",
    "Passage",
    "SupportBasis",
    "Turn",
    "support_of",
]

#: ``refused``: the passages do not answer the question. ``failed``: nothing usable came.
AnswerOutcome = Literal["answered", "refused", "failed"]
ClaimVerdict = Literal["supported", "partly", "unsupported"]
#: What ``support`` was reckoned from.
SupportBasis = Literal["citations", "claims", "none"]

_WORTH: dict[ClaimVerdict, float] = {"supported": 1.0, "partly": 0.5, "unsupported": 0.0}
#: Columns that a table of citations always has.
_COLUMNS = {
    "number": "int64",
    "chunk_id": "string",
    "document_id": "string",
    "source": "string",
    "title": "string",
    "heading_path": "list<string>",
    "page": "int64",
    "quote": "string",
    "verified": "bool",
    "chunk_start": "int64",
    "chunk_end": "int64",
    "document_start": "int64",
    "document_end": "int64",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A question that was asked before, and what it was answered."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of evidence: the number that it was sent under, bound to a chunk.

    Attributes
    ----------
    number
        From 1, in the order in which passages are shown to the model.
    chunk
        What stands behind it, with the text that was sent.
    """

    number: int
    chunk: RetrievalChunk

    @property
    def chunk_id(self) -> str:
        """The chunk's id."""
        return self.chunk.id

    @property
    def content(self) -> str:
        """The text that was sent."""
        return self.chunk.content


@dataclass(frozen=True, slots=True)
class Citation:
    """A place that an answer rests on.

    Attributes
    ----------
    number
        As it stands in the answer's text, in square brackets: the passage's number.
    chunk_id, document_id, source, title, heading_path, page
        Where that is; the source is the document's URI.
    span
        Where the chunk stands in its document; None where the chunk has no place in one.
    quote
        Words of the passage, exactly as they stand there; empty when the answer gives none that
        do.
    chunk_start, chunk_end
        Where the quote stands in the chunk's text; None without a quote.
    quote_span
        Where the quote stands in the document; None where that can't be told.
    """

    number: int
    chunk_id: str
    document_id: str
    source: str
    title: str = ""
    heading_path: tuple[str, ...] = ()
    page: int | None = None
    span: Span | None = None
    quote: str = ""
    chunk_start: int | None = None
    chunk_end: int | None = None
    quote_span: Span | None = None

    @classmethod
    def of(cls, passage: Passage, **quoted: Any) -> Citation:
        """Return a citation of a passage; ``quoted`` are the fields about the quote."""
        chunk = passage.chunk
        return cls(
            number=passage.number,
            chunk_id=chunk.id,
            document_id=chunk.document_id,
            source=chunk.source,
            title=str(chunk.record.get("title") or ""),
            heading_path=chunk.heading_path,
            page=chunk.page,
            span=chunk.span,
            **quoted,
        )

    @property
    def verified(self) -> bool:
        """Whether the quote was found in the passage that was sent."""
        return bool(self.quote)


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of an answer, held against the passages.

    Attributes
    ----------
    text
        The statement.
    verdict
        ``supported``, ``partly`` or ``unsupported``.
    passages
        Numbers of the passages that support it.
    quote
        Words of a passage that do, exactly as they stand there; empty when there are none.
    note
        What else is to be known, e.g. that the quote given was not found.
    """

    text: str
    verdict: ClaimVerdict
    passages: tuple[int, ...] = ()
    quote: str = ""
    note: str = ""


def support_of(claims: Iterable[Claim]) -> float | None:
    """Return the claims' mean support: supported 1, partly 0.5, not 0; None without a claim."""
    worth = [_WORTH[claim.verdict] for claim in claims]
    return sum(worth) / len(worth) if worth else None


@dataclass(frozen=True, slots=True)
class AnswerRound:
    """One round of a loop that answers.

    Attributes
    ----------
    number
        From 1.
    query
        What was searched for.
    text
        The answer that was drafted.
    support
        From 0 to 1; None when it is not known.
    claims
        The draft's statements as they were judged.
    new_passages
        How many passages no earlier round had.
    note
        What ended the round, or went wrong in it.
    """

    number: int
    query: str
    text: str = ""
    support: float | None = None
    claims: tuple[Claim, ...] = ()
    new_passages: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """One of several answers that were drafted side by side.

    Attributes
    ----------
    number
        From 1.
    text, rationale
        The draft and why it should be right.
    passages
        Numbers of the passages that it was drafted from.
    score
        What the choice went by; None when it was not scored.
    scores
        What the score was made of, by name.
    chosen
        Whether this became the answer.
    note
        What went wrong, when something did.
    """

    number: int
    text: str = ""
    rationale: str = ""
    passages: tuple[int, ...] = ()
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    chosen: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """What one answer took, retrieval included.

    Attributes
    ----------
    calls
        Requests to chat models.
    cached
        Those of them that a kept or shared answer served.
    failed
        Those of them that gave nothing.
    input_tokens, output_tokens
        By the providers' count; None when one of the calls doesn't tell.
    cost
        US dollars; None when the price of one of the calls is not known.
    """

    calls: int = 0
    cached: int = 0
    failed: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cost: float | None = 0.0

    @classmethod
    def of(cls, entries: Iterable[LedgerEntry]) -> AnswerUsage:
        """Return the sums of a ledger's entries."""
        found = list(entries)
        good = ("answered", "kept", "shared")
        return cls(
            calls=len(found),
            cached=sum(entry.cached for entry in found),
            failed=sum(entry.outcome not in good for entry in found),
            input_tokens=_sum([entry.input_tokens for entry in found]),
            output_tokens=_sum([entry.output_tokens for entry in found]),
            cost=_sum([entry.cost for entry in found]),
        )


def _sum(values: list[Any]) -> Any:
    return None if None in values else sum(values)


@dataclass(frozen=True, slots=True)
class Answer(TabularResult):
    """An answer with all that it rests on; what every orchestrator returns.

    Attributes
    ----------
    question
        As it was asked.
    text
        The answer, with the numbers of the cited passages in square brackets; empty when there
        is none. It is a model's text: to be escaped wherever it is shown.
    outcome
        ``answered``; ``refused`` when the collection does not answer the question; ``failed``
        when the model gave nothing that can be used.
    reason
        Why there is no answer; empty when there is one.
    standalone_question
        What was searched and answered: the question, or what a follow-up question became.
    citations
        In the order of their numbers. A number with several quotes stands several times.
    passages
        All evidence that the model was given, in the order of the numbers.
    support
        From 0 to 1: how much of the answer is borne out by the passages. None when that is not
        known, or when there is no answer.
    support_basis
        ``citations``: the share of the answer's sentences that cite a passage in words that
        occur there. ``claims``: the mean of the claims' verdicts by a model.
    claims, rounds, drafts
        What orchestrators that check, loop or draft have to show.
    history
        The conversation before the question.
    warnings
        What went wrong and what was done instead.
    prompts
        Version by name of each prompt that was used.
    model
        The chat model.
    usage
        Calls, tokens and cost of this answer.
    trace
        The retrieval's :class:`nbrag.tracing.Trace` with the stages of the answer.
    metadata
        What stages have to say.
    """

    _columns: ClassVar[Mapping[str, str]] = _COLUMNS

    question: str
    text: str = ""
    outcome: AnswerOutcome = "answered"
    reason: str = ""
    standalone_question: str = ""
    citations: tuple[Citation, ...] = ()
    passages: tuple[Passage, ...] = ()
    support: float | None = None
    support_basis: SupportBasis = "none"
    claims: tuple[Claim, ...] = ()
    rounds: tuple[AnswerRound, ...] = ()
    drafts: tuple[AnswerDraft, ...] = ()
    history: tuple[Turn, ...] = ()
    warnings: tuple[str, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    usage: AnswerUsage = field(default_factory=AnswerUsage)
    trace: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.outcome == "answered"

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation up to and with this answer, for a follow-up question."""
        said = self.text if self.answered else "There was no answer."
        return (*self.history, Turn(self.standalone_question or self.question, said))

    def __repr__(self) -> str:
        """Show the question and what became of it."""
        said = self.text if self.answered else self.outcome
        return f"<Answer {clip(plain(self.question), 60)!r}: {clip(plain(said), 80)!r}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the answer and its citations: text, Markdown and HTML, all of it escaped."""
        return answer_rendering(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the trace as plain values for JSON; passages without their texts."""
        return {
            "question": self.question,
            "standalone_question": self.standalone_question or self.question,
            "answered": self.answered,
            "outcome": self.outcome,
            "reason": self.reason,
            "text": self.text,
            "citations": self.to_dicts(),
            "passages": [_passage(passage) for passage in self.passages],
            "support": self.support,
            "support_basis": self.support_basis,
            "claims": [asdict(claim) for claim in self.claims],
            "rounds": [asdict(one) for one in self.rounds],
            "drafts": [{**asdict(draft), "scores": dict(draft.scores)} for draft in self.drafts],
            "history": [asdict(turn) for turn in self.history],
            "warnings": list(self.warnings),
            "prompts": dict(self.prompts),
            "model": self.model,
            "usage": asdict(self.usage),
            "metadata": dict(self.metadata),
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per citation, with the offsets of quotes as whole numbers."""
        return [_cited(citation) for citation in self.citations]


def _cited(citation: Citation) -> dict[str, Any]:
    span = citation.quote_span
    return {
        "number": citation.number,
        "chunk_id": citation.chunk_id,
        "document_id": citation.document_id,
        "source": citation.source,
        "title": citation.title,
        "heading_path": list(citation.heading_path),
        "page": citation.page,
        "quote": citation.quote,
        "verified": citation.verified,
        "chunk_start": citation.chunk_start,
        "chunk_end": citation.chunk_end,
        "document_start": None if span is None else span.start,
        "document_end": None if span is None else span.end,
    }


def _passage(passage: Passage) -> dict[str, Any]:
    span = passage.chunk.span
    return {
        "number": passage.number,
        "chunk_id": passage.chunk.id,
        "document_id": passage.chunk.document_id,
        "source": passage.chunk.source,
        "start": None if span is None else span.start,
        "end": None if span is None else span.end,
        "page": passage.chunk.page,
    }
