"""Answers as they are shown and exported: a model's text is hostile until it is escaped."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbrag.types import (
    Answer,
    AnswerDraft,
    AnswerRound,
    AnswerUsage,
    Citation,
    Claim,
    LedgerEntry,
    Passage,
    RetrievalChunk,
    Span,
    support_of,
)

HOSTILE = (
    "<script>alert(1)</script> ![x](http://evil.example/p.png) [link](javascript:x) <img src=x>"
)


def answer_with(text: str, **fields) -> Answer:
    chunk = RetrievalChunk("c", "d", text, 1.0, {"source": text, "heading_path": (text,)})
    passage = Passage(1, chunk)
    citation = Citation.of(passage, quote=text, chunk_start=0, chunk_end=len(text))
    return Answer(text, f"{text} [1]", citations=(citation,), passages=(passage,), **fields)


@pytest.mark.parametrize("outcome", ["answered", "refused", "failed"])
def test_nothing_of_a_models_text_is_markup(outcome: str) -> None:
    answer = answer_with(
        HOSTILE,
        outcome=outcome,
        reason=HOSTILE,
        warnings=(HOSTILE,),
        standalone_question=f"{HOSTILE}?",
        rounds=(AnswerRound(1, HOSTILE, HOSTILE, 0.5, (Claim(HOSTILE, "partly", (1,), HOSTILE),)),),
        drafts=(AnswerDraft(1, HOSTILE, HOSTILE, (1,), 0.5, note=HOSTILE),),
    )
    shown = answer._repr_mimebundle_()
    page = shown["text/html"]
    assert "<script" not in page
    assert "<img" not in page
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= {
        *("abbr", "caption", "details", "div", "strong", "summary", "table", "tbody", "td", "th"),
        *("span", "thead", "tr"),
    }
    markdown = shown["text/markdown"]
    assert re.search(r"(?<!\\)\]\(", markdown) is None
    assert re.search(r"(?<!\\)<", markdown) is None


def test_numbers_tell_their_place() -> None:
    answer = answer_with("fact")
    page = answer._repr_mimebundle_()["text/html"]
    assert '<abbr title="fact &gt; fact">[1]</abbr>' in page
    assert "[7]" in Answer("What?", "x [7]")._repr_mimebundle_()["text/html"]


def test_neither_times_nor_costs_are_shown_and_what_is_not_borne_out_is() -> None:
    usage = AnswerUsage(3, 0, 0, 777, 888, 0.999)
    shown = answer_with("fact", usage=usage, support=0.5, support_basis="citations")
    text = shown._repr_mimebundle_()["text/plain"]
    assert "777" not in text
    assert "999" not in text
    assert "! support 0.50: not all sentences" in text


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_text_can_be_shown_and_written(text: str) -> None:
    answer = answer_with(text, warnings=(text,))
    for form in answer._repr_mimebundle_().values():
        form.encode()
    json.dumps(answer.to_dict())
    assert repr(answer)
    assert answer.to_arrow().num_rows == 1


def test_a_long_answer_is_cut_where_it_is_shown() -> None:
    shown = Answer("What?", "word " * 300_000)._repr_mimebundle_()
    assert all(len(form) < 50_000 for form in shown.values())


def test_exports() -> None:
    chunk = RetrievalChunk("c", "d", "A fact.", 1.0, {"source": "a.md"}, span=Span(10, 17, 2))
    citation = Citation.of(Passage(1, chunk), quote="fact", chunk_start=2, chunk_end=6)
    answer = Answer("What?", "It is [1].", citations=(citation,), support=1.0)
    row = answer.to_dicts()[0]
    assert (row["page"], row["verified"], row["chunk_start"], row["document_start"]) == (
        2,
        True,
        2,
        None,
    )
    assert answer.to_pandas()["quote"].tolist() == ["fact"]
    assert Answer("What?").to_arrow().column_names == list(row)
    assert Answer("What?", outcome="refused").turns[0].answer == "There was no answer."


def test_sums_of_accounts_do_not_hide_what_is_not_known() -> None:
    def entry(outcome: str, cost: float | None, cached: bool = False) -> LedgerEntry:
        return LedgerEntry("answer", "m", 5, 2, cost, cached, 0.1, outcome)

    known = AnswerUsage.of([entry("answered", 0.5), entry("kept", 0.0, True)])
    assert known == AnswerUsage(2, 1, 0, 10, 4, 0.5)
    unknown = AnswerUsage.of([entry("answered", None), entry("RateLimited", 0.1)])
    assert (unknown.cost, unknown.failed) == (None, 1)


def test_support_of_claims() -> None:
    claims = [Claim("a", "supported"), Claim("b", "partly"), Claim("c", "unsupported")]
    assert support_of(claims) == pytest.approx(0.5)
