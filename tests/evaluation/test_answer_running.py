"""Evaluations of answers: cases, failures, judges, reports; and 100 real questions by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbrag.errors import ChatUnavailable, ConfigurationError, JudgementsError, ReplayMissing
from nbrag.evaluation import AnswerCase, AnswerCases, evaluate_answers
from nbrag.evaluation.bootstrap import bootstrap_intervals, bootstrap_with_gaps
from nbrag.models.chat import ManagedChatClient
from nbrag.orchestration import Answerer
from nbrag.testing import ScriptedChatClient
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults


class Corpus:
    """Finds given documents for given questions."""

    def __init__(self, texts: dict[str, str], found: dict[str, list[str]]) -> None:
        self.texts = texts
        self.found = found

    async def retrieve(self, query, *, top_k=5, where=None):
        chunks = tuple(
            RetrievalChunk(f"chunk-{name}", name, self.texts[name], 1.0, {"source": name})
            for name in self.found[query][:top_k]
        )
        return RetrievalResults(RetrievalQuery(query), chunks)


def answerer(replies: Any, corpus: Corpus, model: str = "scripted") -> Answerer:
    return Answerer(corpus, ManagedChatClient(ScriptedChatClient(replies, model=model), attempts=1))


def asked(messages: Any) -> str:
    return json.loads(messages[1].content.splitlines()[0])["question"]


def begin(text: str) -> str:
    """Return a text's first whole words."""
    return text[:60].rpartition(" ")[0]


# 100 questions of clapnq-dev --------------------------------------------------------------


@pytest.mark.data
async def test_one_hundred_questions_come_to_the_figures_reckoned_by_hand(
    data_folder: Path,
) -> None:
    """50 questions with an answer and 50 without, and a model whose behaviour is known.

    With an answer: 20 answered in the accepted words, 10 in other words, each citing the right
    passage; 10 citing it and a wrong one; 5 refused; 3 citing what was not sent; 2 failed calls.
    Without: 35 refused, 12 answered with a citation, 3 empty replies.
    """
    folder = data_folder / "clapnq-dev"
    cases = AnswerCases.load(folder)
    yes = [case for case in cases if case.answerable][:50]
    no = [case for case in cases if not case.answerable][:50]
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    texts = {line["_id"]: line["text"] for line in map(json.loads, lines)}
    names = sorted(texts)
    found, behaviour = {}, {}
    for place, case in enumerate(yes + no):
        right = case.wanted[0] if case.answerable else case.metadata["nearest_passage"]
        other = next(name for name in names if name not in (right, *case.wanted))
        found[case.question] = [right, other]
        behaviour[case.question] = (place, case, texts[right], texts[other])

    def model(messages):
        place, case, right, other = behaviour[asked(messages)]
        evidence = f'EVIDENCE\n[1] "{begin(right)}"\n[2] "{begin(other)}"\nANSWER\n'
        if place < 20:
            return f"{evidence}{case.answers[0]} [1]"
        if place < 30:
            return f"{evidence}Xyzzy plugh quux [1]."
        if place < 40:
            return f"{evidence}Xyzzy plugh quux [1][2]."
        if place < 45 or 50 <= place < 85:
            return f"{evidence}NOT ANSWERED: it is not told."
        if place < 48:
            return "ANSWER\nXyzzy plugh quux [9]."
        if place < 50:
            return ChatUnavailable("it is down.")
        return f"{evidence}Xyzzy plugh quux [1]." if place < 97 else ""

    def judge(messages):
        place, _, right, _ = behaviour[asked(messages)]
        if place >= 50:
            return "I would rather not."
        claims = [
            {"claim": "It is.", "verdict": "supported", "passages": [1], "quote": begin(right)}
        ]
        if place >= 30:
            claims.append({"claim": "So.", "verdict": "unsupported", "passages": [], "quote": ""})
        return json.dumps({"claims": claims})

    report = await evaluate_answers(
        {"plain": answerer(model, Corpus(texts, found))},
        AnswerCases(yes + no, "clapnq-dev, 100"),
        judge=ScriptedChatClient(judge, model="the-judge"),
        metrics=[
            "refusal precision",
            "refusal recall",
            "cited precision",
            "cited recall",
            "exact match",
            "token F1",
            "claim support",
        ],
    )
    values = {metric: report.value("plain", metric) for metric in report.metrics}
    expected = {
        "refusal precision": 35 / 40,  # 35 of the 40 refused
        "refusal recall": 35 / 47,  # of the 50 without an answer three failed
        "cited precision": (30 * 1 + 10 * 0.5) / 40,  # of those that cite anything
        "cited recall": 40 / 48,  # of the 50 with an answer two failed
        "exact match": 20 / 48,
        "token F1": 20 / 48,
        "claim support": (30 * 1 + 10 * 0.5 + 3 * 0) / 43,  # the 12 judged in vain don't count
    }
    assert values == pytest.approx(expected)
    assert len(report.failures["plain"]) == 5
    assert len(report.judge_errors["plain"]) == 12
    rows = {row["metric"]: row for row in report.summary_rows()}
    assert rows["claim support"]["questions"] == 43
    assert rows["claim support"]["judge_errors"] == 12
    assert rows["refusal precision"]["questions"] == 40
    for row in rows.values():
        assert row["low"] <= row["mean"] <= row["high"]
    assert report.judge == "the-judge"
    shown = report._repr_mimebundle_()["text/plain"]
    assert "judged by the-judge" in shown
    assert "12 questions could not be judged" in shown
    assert "5 questions failed" in shown


# Small ones --------------------------------------------------------------------------------

TEXTS = {"a": "Backups are kept for 35 days.", "b": "Logs are kept for a week."}
FOUND = {"One?": ["a", "b"], "Two?": ["b"], "Three?": []}
CASES = AnswerCases(
    [
        AnswerCase("1", "One?", answers=("35 days",), relevant={"a": 1}),
        AnswerCase("2", "Two?", relevant={"b": 1}),
        AnswerCase("3", "Three?", answerable=False),
    ]
)
GOOD = 'EVIDENCE\n[1] "are kept for"\nANSWER\nFor 35 days it is [1].'


async def test_two_ways_are_compared_question_by_question() -> None:
    corpus = Corpus(TEXTS, FOUND)
    report = await evaluate_answers(
        {
            "careful": answerer(lambda _: "ANSWER\nNOT ANSWERED: no.", corpus),
            "bold": answerer(lambda _: GOOD, corpus),
        },
        CASES,
    )
    assert report.value("careful", "cited recall") == 0.0
    assert report.value("bold", "cited recall") == 1.0
    assert report.value("bold", "exact match") == 0.0
    assert report.value("bold", "token F1") == pytest.approx(2 * 2 / 7)
    difference = report.compare("bold")["cited recall"]
    assert (difference.mean, difference.wins, difference.losses) == (1.0, 2, 0)
    assert report.compare("bold")["refusal recall"].ties == 1
    assert [row["outcome"] for row in report.question_rows()[:3]] == ["refused"] * 3
    assert report.to_arrow().num_rows == 12
    with pytest.raises(ConfigurationError, match="no answerer 'blod'"):
        report.compare("blod")


async def test_a_judge_that_answers_too_is_told_of() -> None:
    claims = json.dumps(
        {"claims": [{"claim": "x", "verdict": "unsupported", "passages": [], "quote": ""}]}
    )
    report = await evaluate_answers(
        {"plain": answerer(lambda _: GOOD, Corpus(TEXTS, FOUND), model="same")},
        CASES,
        judge=ScriptedChatClient(lambda _: claims, model="same"),
        metrics=["claim support"],
    )
    assert any("is the model that answered" in note for note in report.notes)
    assert report.value("plain", "claim support") == 0.0


async def test_when_all_fails_the_reason_is_raised_and_a_missing_recording_always() -> None:
    class Broken:
        def __init__(self, error: Exception) -> None:
            self.error = error

        async def answer(self, question, **options):
            raise self.error

    with pytest.raises(ChatUnavailable):
        await evaluate_answers({"x": Broken(ChatUnavailable("down."))}, CASES)
    with pytest.raises(ReplayMissing):
        await evaluate_answers({"x": Broken(ReplayMissing("not recorded."))}, CASES)
    with pytest.raises(ConfigurationError, match="nothing that answers"):
        await evaluate_answers({}, CASES)


def test_cases_are_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(
        '{"query": "One?", "answers": "35", "relevant": ["a.md"], "level": 2}\n'
        '{"query": "Two?", "answerable": false}\n'
    )
    cases = AnswerCases.load(file)
    one, two = cases
    assert (one.answers, one.wanted, one.metadata) == (("35",), ("a.md",), {"level": 2})
    assert not two.answerable
    assert len(cases.every(2)) == 1
    assert "1 without an answer" in cases._repr_mimebundle_()["text/plain"]
    file.write_text('{"query": "One?", "answerable": "no"}\n')
    with pytest.raises(JudgementsError, match=r"cases\.jsonl:1"):
        AnswerCases.load(file)
    file.write_text('{"question": "One?"}\n')
    with pytest.raises(JudgementsError, match='no "query"'):
        AnswerCases.load(file)
    with pytest.raises(JudgementsError, match="twice"):
        AnswerCases([AnswerCase("1", "a"), AnswerCase("1", "b")])


def test_intervals_with_gaps() -> None:
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.0] * 10)
    low, high = bootstrap_intervals(values[:, None])[0]
    assert bootstrap_with_gaps(values) == pytest.approx((low, high))
    gaps = np.where(np.arange(50) % 2 == 0, values, np.nan)
    found = bootstrap_with_gaps(gaps)
    assert found is not None
    # Half of the questions know half as much.
    assert found[1] - found[0] > high - low
    assert bootstrap_with_gaps(np.full(3, np.nan)) is None
    assert bootstrap_with_gaps(values, values) == (0.0, 0.0)
