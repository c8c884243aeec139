"""Metrics of answers, against figures reckoned by hand."""

from __future__ import annotations

import json

import pytest

from nbrag.errors import ChatUnavailable, ConfigurationError
from nbrag.evaluation.answer_cases import AnswerCase
from nbrag.evaluation.answer_metrics import (
    alce_citations,
    answer_metrics,
    cited_relevance,
    claim_support,
    plain_values,
)
from nbrag.evaluation.short_answers import exact_match, normalised_answer, token_f1
from nbrag.testing import ScriptedChatClient
from nbrag.types import Answer, Citation, Passage, RetrievalChunk

PASSAGES = tuple(
    Passage(n, RetrievalChunk(f"c{n}", f"d{n}", f"Fact {n} is told here.", 1.0, {"source": source}))
    for n, source in enumerate(("ops/a.md", "ops/b.md", "web/c.md"), start=1)
)


def answered(text: str, *numbers: int) -> Answer:
    cited = tuple(Citation.of(PASSAGES[number - 1]) for number in numbers)
    return Answer("What?", text, citations=cited, passages=PASSAGES)


REFUSED = Answer("What?", "", "refused", "not told", passages=PASSAGES)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Answer, [1] is: an apple!", "answer is apple"),
        ("1973 oil-crisis", "1973 oilcrisis"),
        ("A", ""),
        ("theatre and another", "theatre and another"),
    ],
)
def test_short_answers_are_normalised_as_squad_does(text: str, plain: str) -> None:
    assert normalised_answer(text) == plain


def test_exact_match_and_f1() -> None:
    assert exact_match("The October, 1973 [2]", ["1973", "october 1973"]) == 1.0
    assert exact_match("October", ["1973"]) == 0.0
    # 2 common words; 3 given, 4 wanted: 2 * 2 / 7.
    assert token_f1("in October 1973", ["october of year 1973"]) == pytest.approx(4 / 7)
    assert token_f1("day day", ["day"]) == pytest.approx(2 / 3)
    assert token_f1("", ["the"]) == 1.0
    assert token_f1("", ["1973"]) == 0.0
    assert token_f1("1973", []) == 0.0


def test_refusals_and_answers() -> None:
    yes = AnswerCase("1", "What?", answers=("fact",), relevant={"ops/a.md": 1})
    no = AnswerCase("2", "What?", answerable=False)
    assert plain_values(REFUSED, yes) == {
        "refusal precision": 0.0,
        "refusal recall": None,
        "cited precision": None,
        "cited recall": 0.0,
        "exact match": 0.0,
        "token F1": 0.0,
    }
    found = plain_values(REFUSED, no)
    assert (found["refusal precision"], found["refusal recall"]) == (1.0, 1.0)
    assert found["token F1"] is None
    found = plain_values(answered("fact"), no)
    assert (found["refusal precision"], found["refusal recall"]) == (None, 0.0)


def test_cited_passages_against_judged_ones() -> None:
    case = AnswerCase("1", "What?", relevant={"a.md": 2, "c3": 1, "gone.md": 1, "ops/b.md": 0})
    # Cited: a.md (relevant), b.md (grade 0), c3 by its chunk's id; of three wanted two.
    assert cited_relevance(answered("x", 1, 1, 2, 3), case) == (pytest.approx(2 / 3), 2 / 3)
    assert cited_relevance(answered("x"), case) == (None, 0.0)
    assert cited_relevance(answered("x", 1), AnswerCase("1", "What?")) == (None, None)


async def test_claim_support_of_cited_passages_alone() -> None:
    def claims(*pairs: tuple[str, str]) -> str:
        return json.dumps(
            {
                "claims": [
                    {"claim": "It is.", "verdict": verdict, "passages": [], "quote": quote}
                    for verdict, quote in pairs
                ]
            }
        )

    judge = ScriptedChatClient(
        [
            claims(("supported", "Fact 1 is told"), ("partly", "told here"), ("unsupported", "")),
            claims(("supported", "Fact 3 is told"), ("supported", "Fact 1 is told")),
        ]
    )
    support, found = await claim_support(judge, answered("It is [1].", 1))
    assert support == pytest.approx(1.5 / 3)
    assert len(found) == 3
    assert "Fact 2" not in judge.calls[0].text
    support, _ = await claim_support(judge, answered("It is [1].", 1), only_cited=False)
    assert support == 1.0
    assert await claim_support(judge, answered("It is.")) == (0.0, ())
    assert await claim_support(judge, REFUSED) == (None, ())
    with pytest.raises(ChatUnavailable):
        await claim_support(ScriptedChatClient([ChatUnavailable("x")]), answered("It is.", 1))


async def test_citations_as_alce_reckons_them() -> None:
    """Four sentences, six citations.

    1. [1]: borne out: recalled, 1 precise.
    2. [1][2]: together; 1 alone does it: precise. 2 alone does not, and 1 does without it: in
       vain.
    3. [2][3]: together; neither alone, and neither without the other: both precise.
    4. no citation: not recalled. 5. [3]: not borne out: in vain.
    """
    bears = {
        ("One is so.", (1,)),
        ("Two is so.", (1, 2)),
        ("Two is so.", (1,)),
        ("Three is so.", (2, 3)),
    }

    def judge(messages):
        lines = messages[1].content.splitlines()
        statement = json.loads(lines[1])["statement"]
        sent = tuple(json.loads(line)["id"] for line in lines if line.startswith('{"id"'))
        return json.dumps({"reasoning": "", "supported": (statement, sent) in bears})

    text = "One is so [1]. Two is so [1][2]. Three is so [2][3]. Four is so. Five is so [3]."
    client = ScriptedChatClient(judge)
    precision, recall = await alce_citations(client, answered(text, 1, 2, 3))
    assert recall == pytest.approx(3 / 5)
    assert precision == pytest.approx(4 / 6)
    assert await alce_citations(client, REFUSED) == (None, None)
    assert await alce_citations(client, answered("Just so it is.")) == (None, 0.0)


def test_names_of_metrics() -> None:
    assert "claim support" not in answer_metrics(None, judge=False)
    assert "claim support" in answer_metrics(None, judge=True)
    with pytest.raises(ConfigurationError, match="needs a model that judges"):
        answer_metrics(["claim support"], judge=False)
    with pytest.raises(ConfigurationError, match="no metric 'token f1'") as caught:
        answer_metrics(["token f1"], judge=False)
    assert "token F1" in caught.value.hint
    with pytest.raises(ConfigurationError, match="no metric is given"):
        answer_metrics([], judge=False)
