"""How an answer is shown: its text is a model's, and the passages are anybody's."""

from __future__ import annotations

import html
import re
import textwrap
from typing import TYPE_CHECKING

from nbrag.rendering import Cell, Rendering, clip, plain, render_table
from nbrag.types._answer_picture import drafts_picture, rounds_picture

if TYPE_CHECKING:
    from nbrag.types.answers import Answer, AnswerDraft, AnswerRound, Citation

#: Characters of an answer that are shown: a notebook must stay loadable.
_LONGEST = 20_000
_WIDTH = 100
_MARKER = re.compile(r"\[(\d+)\]")
_TEXT_STYLE = "white-space:pre-wrap;max-width:60em;margin:0.3em 0"


def answer_rendering(answer: Answer) -> Rendering:
    """Return question, answer, citations and warnings; no times, costs or counts of calls."""
    said = shown_text(answer)
    tables = [_citations(answer)] if answer.citations else []
    tables += [_rounds(answer.rounds), rounds_picture(answer.rounds)] if answer.rounds else []
    tables += [_drafts(answer.drafts), drafts_picture(answer.drafts)] if answer.drafts else []
    heads = _heads(answer)
    notes = [clip(plain(note), _LONGEST) for note in _notes(answer)]
    text = [*heads, _wrapped(said), *(table["text/plain"] for table in tables)]
    markdown = [f"**{_markdown(heads[0])}**", *map(_markdown, heads[1:])]
    markdown += [_markdown(said), *(table["text/markdown"] for table in tables)]
    page = [f"<div><strong>{_html(heads[0])}</strong></div>"]
    page += [f"<div>{_html(head)}</div>" for head in heads[1:]]
    page += [f'<div dir="auto" style="{_TEXT_STYLE}">{_marked(said, answer)}</div>']
    page += [table["text/html"] for table in tables]
    return {
        "text/plain": "\n".join([*text, *(f"! {note}" for note in notes)]),
        "text/markdown": "\n\n".join([*markdown, *(f"> {_markdown(note)}" for note in notes)]),
        "text/html": "".join(
            [
                *page,
                *(f'<div role="note" style="{_NOTE_STYLE}">{_html(note)}</div>' for note in notes),
            ]
        ),
    }


_NOTE_STYLE = "border-left:3px solid #c77700;padding:0.2em 0.6em;margin:0.3em 0"


def shown_text(answer: Answer) -> str:
    """Return the answer's words, or in what way there is none."""
    if answer.answered:
        return _cut(plain(answer.text))
    said = "The collection does not answer this" if answer.outcome == "refused" else "No answer"
    return _cut(plain(f"{said}: {answer.reason}" if answer.reason else f"{said}."))


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"


def _heads(answer: Answer) -> list[str]:
    """Return the question as it was asked, and the one that it was taken for."""
    heads = [clip(plain(answer.question), 200)]
    if answer.standalone_question not in ("", answer.question):
        heads.append(f"understood as: {clip(plain(answer.standalone_question), 200)}")
    return heads


def _notes(answer: Answer) -> list[str]:
    notes = list(answer.warnings)
    if answer.answered and answer.support is not None and answer.support < 1:
        what = {"citations": "sentences", "claims": "claims"}.get(answer.support_basis, "text")
        notes.insert(0, f"support {answer.support:.2f}: not all {what} are borne out by passages")
    return notes


def _wrapped(text: str) -> str:
    return "\n".join(
        textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False) if line else ""
        for line in text.splitlines()
    )


def _html(text: str) -> str:
    return html.escape(text, quote=True)


def _markdown(text: str) -> str:
    """Return a text in which nothing is markup: no image, no link, no tag."""
    escaped = re.sub(r"([\\`*_{}\[\]<>#|$&~!()])", r"\\\1", text)
    # Two schemes that front ends make links of without any markup.
    return re.sub(r"(?i)\b(https?)://", r"\1:\\/\\/", escaped)


def _marked(text: str, answer: Answer) -> str:
    """Return the text escaped, each number with its place as a tooltip."""
    places = {citation.number: _place(citation) for citation in answer.citations}
    parts, last = [], 0
    for marker in _MARKER.finditer(text):
        place = places.get(int(marker[1])) if len(marker[1]) <= 4 else None
        if place is not None:
            parts.append(_html(text[last : marker.start()]))
            parts.append(f'<abbr title="{_html(place)}">{marker[0]}</abbr>')
            last = marker.end()
    return "".join([*parts, _html(text[last:])])


def _place(citation: Citation) -> str:
    page = [] if citation.page is None else [f"page {citation.page}"]
    return clip(plain(" > ".join([citation.source, *citation.heading_path, *page])), 200)


def _citations(answer: Answer) -> Rendering:
    texts = {passage.number: passage.content for passage in answer.passages}
    rows: list[list[Cell]] = [
        [
            citation.number,
            citation.source,
            " > ".join(citation.heading_path),
            citation.page,
            citation.quote or "(no words of the passage were given)",
        ]
        for citation in answer.citations
    ]
    return render_table(
        "Citations",
        ["number", "source", "heading", "page", "quote"],
        rows,
        details=[texts.get(citation.number, citation.quote) for citation in answer.citations],
        paths=["source"],
    )


def _rounds(rounds: tuple[AnswerRound, ...]) -> Rendering:
    rows: list[list[Cell]] = [
        [one.number, one.query, one.new_passages, one.support, one.note, one.text] for one in rounds
    ]
    return render_table(
        "Rounds",
        ["round", "query", "new passages", "support", "note", "draft"],
        rows,
        details=["\n".join(_claim_lines(one)) or one.text for one in rounds],
    )


def _claim_lines(one: AnswerRound) -> list[str]:
    return [
        f"{claim.verdict}: {claim.text}" + (f' ("{claim.quote}")' if claim.quote else "")
        for claim in one.claims
    ]


def _drafts(drafts: tuple[AnswerDraft, ...]) -> Rendering:
    rows: list[list[Cell]] = [
        [
            draft.number,
            "chosen" if draft.chosen else "",
            draft.score,
            ", ".join(map(str, draft.passages)),
            draft.note,
            draft.text,
        ]
        for draft in drafts
    ]
    return render_table(
        "Drafts",
        ["draft", "", "score", "passages", "note", "text"],
        rows,
        details=[
            "\n\n".join(filter(None, (draft.text, draft.rationale, _scores(draft))))
            for draft in drafts
        ],
    )


def _scores(draft: AnswerDraft) -> str:
    """Return what the score was made of."""
    return ", ".join(f"{name} {value:g}" for name, value in draft.scores.items())
