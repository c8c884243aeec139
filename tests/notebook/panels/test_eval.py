"""The eval panel: figures, the worst questions, both results, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import nbrag
from nbrag.errors import DatabaseLocked
from nbrag.evaluation import Judgements
from nbrag.notebook.panels import eval_state
from nbrag.notebook.panels.eval_view import EvalPanel
from nbrag.protocols import RetrievalQueryProcessor
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.spec.stages import unregister_stage
from nbrag.testing import control
from nbrag.workspace import Workspace

QUESTIONS = {
    "1": "How long are backups kept?",
    "2": "What does the small plan cost?",
    "3": "How do people sign in?",
}
QRELS = {
    "1": {"handbook/backups.md": 1},
    "2": {"handbook/prices.md": 1, "handbook/login.md": 0},
    "3": {"handbook/login.md": 2},
}
JUDGED = Judgements(QUESTIONS, QRELS, name="three")


@pytest.fixture
def judged(workspace: Workspace) -> Workspace:
    """The workspace with a second pipeline."""
    spec = nbrag.PipelineSpec("retrieval", "keyword").with_stage("search", mode="keyword")
    workspace.save_pipeline(spec)
    return workspace


@pytest.fixture
def panel(judged: Workspace) -> EvalPanel:
    return EvalPanel(judged, "default", "keyword", collection="docs", cases=JUDGED)


def press(panel: Any, words: str) -> None:
    control(panel, words).click()
    panel.wait()


def test_figures_are_those_of_the_workspace(panel: EvalPanel, judged: Workspace) -> None:
    press(panel, "Measure")
    assert panel.state.alert == ()
    expected = judged.evaluate(["default", "keyword"], JUDGED, collection="docs")
    assert panel.state.report.to_dicts() == expected.to_dicts()
    assert (
        panel.state.report.compare("keyword").to_dicts() == expected.compare("keyword").to_dicts()
    )
    assert "means with 95 % intervals" in panel._table.value
    assert panel.state.status == "three: 3 questions were measured."


def test_questions_are_ordered_and_a_choice_shows_both(panel: EvalPanel) -> None:
    press(panel, "Measure")
    questions = control(panel, "Questions")
    assert len(questions.options) == 3
    differences = [pair.difference for pair in panel.state.pairs()]
    assert differences == sorted(differences)
    questions.value = "2"
    panel.wait()
    assert set(panel.state.looked) == {"default", "keyword"}
    left, right = panel._left.value, panel._right.value
    assert "default" in left
    assert "keyword" in right
    for side in (left, right):
        assert "handbook/prices.md" in side
        assert "relevant" in side
    assert "not relevant" in left + right
    assert panel.state.query == "2"


def test_what_is_compared_can_be_changed(panel: EvalPanel) -> None:
    press(panel, "Measure")
    assert (control(panel, "Baseline").value, control(panel, "Compared").value) == (
        "default",
        "keyword",
    )
    control(panel, "Order by").value = "MRR"
    control(panel, "Baseline").value = "keyword"
    assert panel.state.compared == ("keyword",)
    control(panel, "Compared").value = "default"
    assert panel.state.compared == ("keyword", "default")
    assert panel.state.metric == "MRR"


def test_one_pipeline_alone_is_ordered_by_its_value(judged: Workspace) -> None:
    panel = EvalPanel(judged, "keyword", collection="docs", cases=JUDGED)
    press(panel, "Measure")
    values = [pair.value for pair in panel.state.pairs()]
    assert values == sorted(values)  # type: ignore[type-var]
    control(panel, "Questions").value = "1"
    panel.wait()
    assert panel._right.value in ("", "<span></span>")


def test_long_lists_have_pages(panel: EvalPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_state, "PAGE", 2)
    monkeypatch.setattr("nbrag.notebook.panels.eval_view.PAGE", 2)
    press(panel, "Measure")
    questions = control(panel, "Questions")
    assert len(questions.options) == 2
    assert "1 to 2 of 3" in panel._place.value
    press(panel, "Next questions")
    assert len(questions.options) == 1
    assert control(panel, "Next questions").disabled
    press(panel, "Previous questions")
    assert control(panel, "Previous questions").disabled


def test_metrics_are_checked_when_they_are_written(panel: EvalPanel) -> None:
    control(panel, "Metrics").value = "recall@3, ndgc@5"
    assert panel.state.alert[0] == "ConfigurationError: there is no metric 'ndgc@5'."
    control(panel, "Metrics").value = "p@1, map"
    assert panel.state.alert == ()
    press(panel, "Measure")
    assert panel.state.report.metrics == ("P@1", "MAP")


def build_broken(*_: Any) -> Any:
    raise nbrag.StageError("broken", "the stage is broken.")


@pytest.fixture
def broken(judged: Workspace) -> Any:
    options: Any = (StageOptions, build_broken, "use_broken", "Broken.")
    register_stage(StageDefinition("broken", "retrieval", "query", *options))
    spec = nbrag.PipelineSpec("retrieval", "broken").with_stage("broken").with_stage("search")
    judged.save_pipeline(spec)
    yield
    unregister_stage("retrieval", "broken")


def test_a_pipeline_that_fails_has_its_line_and_the_others_their_figures(
    judged: Workspace, broken: None
) -> None:
    panel = EvalPanel(judged, "broken", "default", "keyword", collection="docs", cases=JUDGED)
    press(panel, "Measure")
    assert panel.state.report.pipelines == ("default", "keyword")
    assert panel.state.problems["broken"][0].startswith("StageError: ")
    assert 'role="alert"' in panel._problems.value
    assert "broken: StageError" in panel._problems.value
    assert "broken" in panel.snapshot()["text/plain"]


def test_a_model_that_is_missing_is_the_pipelines_line(
    judged: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NBRAG_MODEL", raising=False)
    spec = nbrag.PipelineSpec("retrieval", "asks").with_stage("expand").with_stage("search")
    judged.save_pipeline(spec)
    panel = EvalPanel(judged, "default", "asks", collection="docs", cases=JUDGED)
    press(panel, "Measure")
    assert panel.state.report.pipelines == ("default",)
    with pytest.raises(nbrag.ConfigurationError) as told:
        judged.evaluate(["asks"], JUDGED, collection="docs")
    assert list(panel.state.problems["asks"]) == told.value._render_traceback_()
    panel.state.chosen = ("asks",)
    press(panel, "Measure")
    assert list(panel.state.alert) == told.value._render_traceback_()
    assert panel.state.report is not None  # the figures of before are still there


def test_a_stop_keeps_what_was_measured(judged: Workspace) -> None:
    asked = threading.Event()

    class Waits(RetrievalQueryProcessor):
        name = "waits"

        async def process(self, query: Any, collection: Any) -> Any:
            asked.set()
            await asyncio.sleep(60)
            return query

    options: Any = (StageOptions, lambda *_: Waits(), "use_waits", "Waits.")
    register_stage(StageDefinition("waits", "retrieval", "query", *options))
    try:
        judged.save_pipeline(
            nbrag.PipelineSpec("retrieval", "slow").with_stage("waits").with_stage("search")
        )
        panel = EvalPanel(judged, "default", "slow", collection="docs", cases=JUDGED)
        control(panel, "Measure").click()
        assert asked.wait(20)
        assert control(panel, "Measure").disabled
        press(panel, "Stop")
        assert panel.state.status == "Evaluation: stopped"
        assert panel.state.report.pipelines == ("default",)
        assert not control(panel, "Measure").disabled
    finally:
        unregister_stage("retrieval", "waits")


def test_judgements_come_from_a_file_or_from_marks(judged: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    case = {"query": "How long are backups kept?", "relevant": ["backups.md"]}
    file.write_text(json.dumps(case))
    panel = EvalPanel(judged, collection="docs")
    assert panel.state.chosen == ("default", "keyword")
    press(panel, "Measure")
    assert panel.state.alert[0] == "JudgementsError: no judgements are given."
    control(panel, "Judgements").value = str(file)
    press(panel, "Measure")
    assert panel.state.report.judgements == "cases.jsonl"
    assert str(tmp_path) not in panel.snapshot()["text/html"]

    found = judged.search("How long are backups kept?", collection="docs")
    judged.judgements.mark(
        "How long are backups kept?", found[0].source, found[0].id, collection="docs", name="mine"
    )
    press(panel, "Look again")
    assert control(panel, "Judgements").options == ("mine",)
    control(panel, "Judgements").value = "mine"
    press(panel, "Measure")
    assert panel.state.report.judgements == "mine"
    control(panel, "Judgements").value = "nowhere.jsonl"
    press(panel, "Measure")
    assert panel.state.alert[0].startswith("JudgementsError: nowhere.jsonl: no such file")


def test_an_empty_and_a_deleted_collection_are_the_magics_line(
    panel: EvalPanel, judged: Workspace
) -> None:
    press(panel, "Measure")
    before = panel.state.report
    judged.collection("empty")
    with pytest.raises(nbrag.NbragError) as told:
        judged.evaluate(["default"], JUDGED, collection="empty")
    press(panel, "Look again")
    control(panel, "Collection").value = "empty"
    press(panel, "Measure")
    assert list(panel.state.alert) == told.value._render_traceback_()

    control(panel, "Collection").value = "docs"
    judged.drop_collection("docs")
    with pytest.raises(nbrag.CollectionNotFound) as gone:
        judged.evaluate(["default"], JUDGED, collection="docs")
    press(panel, "Measure")
    assert list(panel.state.alert) == gone.value._render_traceback_()
    control(panel, "Questions").value = "2"
    panel.wait()
    assert panel.state.alert[0].startswith("CollectionNotFound: ")
    assert panel.state.report is before


def test_a_locked_file_is_told_and_the_panel_lives_on(judged: Workspace) -> None:
    locked = True

    def provider() -> Workspace:
        if locked:
            raise DatabaseLocked("x.duckdb", 42)
        return judged

    panel = EvalPanel(provider, collection="docs", cases=JUDGED)
    assert panel.state.alert[0].startswith("DatabaseLocked: ")
    locked = False
    panel.state.cases = JUDGED
    press(panel, "Look again")
    press(panel, "Measure")
    assert panel.state.report is not None


def test_the_still_picture_has_figures_and_worst_questions(panel: EvalPanel) -> None:
    press(panel, "Measure")
    control(panel, "Questions").value = "1"
    panel.wait()
    text = panel.snapshot()["text/plain"]
    assert "nDCG@10 of keyword minus default, the worst first" in text
    assert "How long are backups kept?" in text
    assert "95 %" in text


def test_an_unknown_pipeline_is_told_when_it_opens(judged: Workspace) -> None:
    panel = nbrag.panel("eval", judged, "keywrod")
    assert panel.state.alert[0] == "PipelineNotFound: there is no pipeline 'keywrod'."


def test_the_magic_passes_pipelines_and_judgements(filled: Any, tmp_path: Path) -> None:
    filled.user_ns["mine"] = JUDGED
    made = filled.run("%rag_panel eval default -c docs --cases mine")
    assert made.state.cases is JUDGED
    assert (made.state.chosen, made.state.collection) == (("default",), "docs")
    other = filled.run("%rag_panel eval --cases cases.jsonl")
    assert other.state.cases == "cases.jsonl"
