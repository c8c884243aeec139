"""The pictures of rounds and drafts, and the words that say the same."""

from __future__ import annotations

from nbrag.types import Answer, AnswerDraft, AnswerRound, Claim

CLAIMS = (Claim("a", "supported"), Claim("b", "partly"), Claim("c", "unsupported"))


def test_rounds_are_bars_of_claims() -> None:
    rounds = (
        AnswerRound(1, "q", claims=CLAIMS[1:]),
        AnswerRound(2, "q", claims=CLAIMS, note="chosen"),
    )
    shown = Answer("?", "Text.", rounds=(*rounds, AnswerRound(3, "q")))._repr_mimebundle_()
    for line in (
        "round 1  ▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░  0 supported, 1 partly, 1 not",
        "round 2  ███████▒▒▒▒▒▒░░░░░░░  1 supported, 1 partly, 1 not, chosen",
        "round 3  ····················  no claims were checked",
    ):
        assert line in shown["text/plain"].splitlines()
        assert line in shown["text/markdown"]
    page = shown["text/html"]
    assert 'role="img" aria-label="Claims of each round: round 1: 0 supported' in page
    assert page.count("width:33.3%;") == 3
    assert page.count("width:50.0%;") == 2


def test_drafts_are_bars_of_scores() -> None:
    drafts = (
        AnswerDraft(1, "a", "r", (1, 4), 0.25, {"rubric": 2.0, "shared": 1.0}),
        AnswerDraft(2, "b", passages=(12,), score=1.0, chosen=True),
        AnswerDraft(3, note="failed"),
    )
    shown = Answer("?", "Text.", drafts=drafts)._repr_mimebundle_()
    lines = shown["text/plain"].splitlines()
    assert "draft 1 [1][4]  █████···············  0.25" in lines
    assert "draft 2 [12]    ████████████████████  1.00, chosen" in lines
    assert "draft 3         ····················  no score" in lines
    assert "rubric 2, shared 1" in shown["text/html"]
    assert "width:25.0%;background:#0072b2" in shown["text/html"]


def test_numbers_out_of_bounds_stay_in_the_picture() -> None:
    shown = Answer("?", "T.", drafts=(AnswerDraft(1, score=7.5),))._repr_mimebundle_()
    assert "width:100.0%;" in shown["text/html"]
