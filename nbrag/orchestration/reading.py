"""A model's reply as it comes in: evidence, answer, refusal; every citation checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nbrag.models.chat.markers import known_markers, statements, without_markers
from nbrag.orchestration.evidence import Evidence
from nbrag.orchestration.prompts import REFUSAL
from nbrag.rendering import clip
from nbrag.types import AnswerEvent, AnswerOutcome, Citation, CitationFound, TextPiece

__all__ = ["AnswerReader", "CitedText", "check_citations"]

_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
#: A line that begins a part: alone on its line, or followed by a colon and the part itself.
_HEADER = re.compile(
    r"^\W*(?P<name>evidence|quotes?|answer)\W*$"
    r"|^[\s#*_>-]*(?P<same_line>evidence|quotes?|answer)\s*[*_]*:[*_]*\s*(?P<rest>\S.*)$",
    re.IGNORECASE,
)
#: What may still become a header.
_BEGUN_HEADER = re.compile(r"[\s#*_>-]*([A-Za-z]{0,8})[*_:]*\s*\Z")
_QUOTE_LINE = re.compile(
    r"^[\s*•-]*[\[(【]?\s*(?:passages?|ids?|#)?\s*(?P<number>\d{1,6})\s*"
    r"(?:†[^\]】]*)?[\])】]?\s*[:.=-]*\s*(?P<quote>\S.*)$",
    re.IGNORECASE,
)
_QUOTE_SIGNS = "\"'`\u201c\u201d\u201e\u201f\u00ab\u00bb\u2018\u2019\u300c\u300d\u300e\u300f"
_REFUSED = re.compile(r"^\W*NOT[\s_-]+ANSWERED\b[\s*_:.\u2013\u2014-]*", re.IGNORECASE)
#: Lines of the request that small models repeat instead of answering.
_ECHO = re.compile(r"^\s*(?:</?passages>|\{\s*\"(?:id\"\s*:\s*\d|question\"\s*:))")
_OPEN_MARKER = re.compile(r"[\[【][^\]】\n]{0,60}\Z")
_FENCE = re.compile(r"\A\s*```\w*\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
#: A first line of this length, or a whole line, is no header any more.
_LONG_LINE = 40
_SHOWN = 80
#: Warnings of one kind that are told one by one.
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class CitedText:
    """An answer that was read and checked.

    Attributes
    ----------
    text
        The answer; its markers name passages that were sent. Empty without an answer.
    outcome, reason
        As in :class:`nbrag.types.Answer`.
    citations
        In the order of their numbers.
    support
        Share of the sentences that cite a passage in words that occur in it; None without an
        answer.
    warnings
        What was removed, and what can't be relied on.
    """

    text: str
    outcome: AnswerOutcome = "answered"
    reason: str = ""
    citations: tuple[Citation, ...] = ()
    support: float | None = None
    warnings: tuple[str, ...] = ()


def check_citations(
    text: str, quotes: Sequence[tuple[int, str]], evidence: Evidence, *, cited: bool = True
) -> CitedText:
    """Check an answer's markers and quotes against the passages that were sent.

    Parameters
    ----------
    text
        The answer with its markers.
    quotes
        Number of a passage and words that are said to stand in it.
    evidence
        What was sent.
    cited
        Whether citations were asked for; otherwise they are neither missed nor kept.
    """
    clean, unknown = known_markers(text.strip(), evidence if cited else ())
    clean = clean.strip()
    if not cited:
        return CitedText(clean)
    warnings = [
        f"the answer cites passage {number}, which it was not given: the citation was removed"
        for number in unknown
    ]
    found: dict[int, list[Citation]] = {}
    for number, quote in quotes:
        if number not in evidence:
            warnings.append(
                f"words of passage {number} are quoted, which was not given: they were removed"
            )
            continue
        located = evidence.quotes(number, quote)
        found.setdefault(number, []).extend(
            citation for citation in located if citation not in found.get(number, ())
        )
        if not located:
            warnings.append(_not_there(number, quote, evidence))
    parts = statements(clean)
    used = sorted({number for part in parts for number in part.numbers})
    citations = [
        citation
        for number in used
        for citation in found.get(number) or [Citation.of(evidence.passage(number))]
    ]
    bare = [str(number) for number in used if not found.get(number)]
    borne = sum(any(found.get(number) for number in part.numbers) for part in parts)
    uncited = sum(not part.numbers for part in parts)
    warnings = _few(warnings)
    if clean and not used:
        warnings.append("the answer cites no passage: nothing shows that it is in the collection")
    elif uncited:
        warnings.append(f"{uncited} of {len(parts)} sentences of the answer cite no passage")
    if bare:
        warnings.append(f"no words that occur in it are given for passage {', '.join(bare)}")
    return CitedText(
        clean,
        citations=tuple(citations),
        support=borne / len(parts) if parts else 0.0,
        warnings=tuple(warnings),
    )


def _not_there(number: int, quote: str, evidence: Evidence) -> str:
    where = evidence.numbers_with(quote)
    elsewhere = f"; they stand in passage {', '.join(map(str, where))}" if where else ""
    return (
        f"words quoted from passage {number} do not occur in it{elsewhere}: '{clip(quote, _SHOWN)}'"
    )


def _few(warnings: list[str]) -> list[str]:
    distinct = list(dict.fromkeys(warnings))
    more = len(distinct) - _MOST_TOLD
    if more <= 0:
        return distinct
    return [*distinct[:_MOST_TOLD], f"{more} more citations were removed or not found"]


class AnswerReader:
    """Reads a reply piece by piece.

    The reply has a part of quotes and a part with the answer, in either order; without such parts
    all of it is the answer. Thoughts (``<think>...</think>``) are left out.

    Parameters
    ----------
    evidence
        The passages that were sent.
    cited
        Whether citations were asked for.
    """

    def __init__(self, evidence: Evidence, *, cited: bool = True) -> None:
        self._evidence = evidence
        self._cited = cited
        self._raw = ""
        self._text = ""
        self._seen: set[tuple[int, str]] = set()

    @property
    def raw(self) -> str:
        """The reply so far, as the model wrote it."""
        return self._raw

    def feed(self, piece: str) -> list[AnswerEvent]:
        """Take a piece in, and return what it brought: text of the answer, quotes that are there.

        Text that may still turn out to be a marker or a heading is held back.
        """
        self._raw += piece
        answer, quotes = _parts(self._raw, final=False)
        events: list[AnswerEvent] = []
        for number, quote in quotes if self._cited else ():
            if (number, quote) in self._seen or number not in self._evidence:
                continue
            self._seen.add((number, quote))
            events += [CitationFound(found) for found in self._evidence.quotes(number, quote)]
        text = _presentable(answer, self._evidence if self._cited else Evidence())
        if text != self._text:
            new = text.removeprefix(self._text)
            events.append(TextPiece(new, text))
            self._text = text
        return events

    def finish(self) -> CitedText:
        """Return the whole answer, checked."""
        answer, quotes = _parts(self._raw, final=True)
        refused = _REFUSED.match(answer)
        if refused is not None:
            # Markers in a refusal cite nothing.
            reason, _ = known_markers(answer[refused.end() :], ())
            reason = " ".join(reason.split())
            return CitedText("", "refused", reason or "the passages do not say it")
        if not any(sign.isalnum() for sign in without_markers(answer)):
            what = "an empty reply" if not self._raw.strip() else "no answer in its reply"
            reason = f"the model gave {what}"
            return CitedText("", "failed", reason, warnings=(f"stage 'answer': {reason}",))
        return check_citations(answer, quotes, self._evidence, cited=self._cited)


def _without_thoughts(raw: str) -> str:
    """Return the reply without thoughts; one that never ends takes the rest along."""
    ends = list(_THOUGHT_END.finditer(raw))
    text = raw[ends[-1].end() :] if ends else raw
    opened = _THOUGHT.search(text)
    return text if opened is None else text[: opened.start()]


def _parts(raw: str, *, final: bool) -> tuple[str, list[tuple[int, str]]]:
    """Return the answer's words and the quotes of a reply, or of as much of it as is there."""
    text = _without_thoughts(raw)
    if final and (fenced := _FENCE.match(text)) is not None:
        text = fenced[1]
    lines = text.split("\n")
    last = "" if final else lines.pop()
    part = ""
    answer: list[str] = []
    before: list[str] = []
    quotes: list[tuple[int, str]] = []
    loose: list[str] = []
    for line in lines:
        header = _HEADER.match(line)
        name = (header["name"] or header["same_line"]).lower() if header is not None else ""
        if header is not None and not (part == "answer" and name == "answer" and answer):
            part = "answer" if name == "answer" else "evidence"
            line = header["rest"] or ""  # noqa: PLW2901 - the rest of the heading's line
        if _ECHO.match(line) or (not line.strip() and not answer):
            continue
        if part == "answer":
            answer.append(line)
        elif part == "evidence":
            found = list(_quotes(line))
            quotes += found
            loose += [] if found or _is_fence(line) else [line]
        else:
            before.append(line)
    if part != "answer" and not answer:
        answer = [*before, *(loose if part == "evidence" and final else ())]
        if part == "evidence" and not final:
            answer = []
    if not final and _may_show(last, part, begun=bool(answer or before)):
        answer.append(last)
    if not final and not part and not lines and len(last) <= _LONG_LINE:
        answer = []
    if answer and _is_fence(answer[-1]):
        answer.pop()
    return "\n".join(answer).strip(), quotes


def _may_show(last: str, part: str, *, begun: bool) -> bool:
    """Return whether a line that is not complete yet belongs to the answer for certain."""
    if part == "evidence" or not last.strip() or last.lstrip()[0] in "<{":
        return False
    heading = _BEGUN_HEADER.match(last)
    if heading is not None and any(
        name.startswith(heading[1].lower()) for name in ("evidence", "quotes", "answer")
    ):
        return False
    return part == "answer" or begun or len(last) > _LONG_LINE


def _is_fence(line: str) -> bool:
    return line.strip().startswith("```") and not line.strip("`\n ").count(" ")


def _quotes(line: str) -> Iterator[tuple[int, str]]:
    found = _QUOTE_LINE.match(line)
    if found is None:
        return
    quote = found["quote"].strip()
    bare = quote.rstrip(".,;")
    if quote[0] in _QUOTE_SIGNS:
        quote = (bare if bare[-1:] in _QUOTE_SIGNS else quote)[1:].rstrip(_QUOTE_SIGNS)
    if quote.strip():
        yield int(found["number"]), quote.strip()


def _presentable(answer: str, evidence: Evidence) -> str:
    """Return what of an unfinished answer can be shown: no half marker, no refusal's beginning."""
    start = answer.lstrip("\"'*_# ")[: len(REFUSAL)].upper()
    if REFUSAL.startswith(start) or _REFUSED.match(answer):
        return ""
    held = _OPEN_MARKER.search(answer)
    text = answer if held is None else answer[: held.start()]
    return known_markers(text.rstrip(), evidence)[0].strip()
