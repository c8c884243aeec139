"""The pipeline panel: the same pipeline as a cell and as Python, and a live question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbrag
from nbrag.errors import SpecificationError
from nbrag.notebook.panels.pipeline_state import compared_table, movement
from nbrag.notebook.panels.pipeline_view import PipelinePanel
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder, ScriptedChatClient, control
from nbrag.workspace import Workspace

QUESTION = "How long are backups kept?"


@pytest.fixture
def panel(workspace: Workspace) -> PipelinePanel:
    made = PipelinePanel(workspace, collection="docs", question=QUESTION)
    assert made.state.alert == ()
    return made


def press(panel: PipelinePanel, *buttons: str) -> None:
    for words in buttons:
        control(panel, words).click()
    panel.wait()


def put(panel: PipelinePanel, label: str, value: Any) -> None:
    control(panel, label).value = value
    panel.wait()


def ids(results: Any) -> list[str]:
    return [chunk.id for chunk in results]


def built(panel: PipelinePanel) -> None:
    """Build filter, keyword search and neighbours by hand."""
    put(panel, "New stage", "filter")
    press(panel, "Add stage")
    put(panel, "where", 'team != "security"')
    control(panel, "Stages").value = panel.state.stages[1].number
    put(panel, "mode", "keyword")
    put(panel, "candidates", 20)
    put(panel, "New stage", "neighbours")
    press(panel, "Add stage")
    put(panel, "Name", "mine")


def test_a_panel_s_pipeline_its_cell_and_its_python_find_the_same(
    panel: PipelinePanel, workspace: Workspace, tmp_path: Path
) -> None:
    built(panel)
    assert panel.state.alert == ()
    press(panel, "Show as cell")
    cell = control(panel, "Text").value
    assert cell == (
        "%%rag_pipeline mine -c docs\n"
        'filter      where="team != \\"security\\""\n'
        "search      mode=keyword  candidates=20\n"
        "neighbours\n"
    )
    press(panel, "Search")
    found = panel.state.results
    assert len(found) > 0
    workspace.save_pipeline(PipelineSpec.from_cell(cell))
    by_cell = workspace.search(QUESTION, pipeline="mine", top_k=5)
    press(panel, "Show as Python")
    code = control(panel, "Text").value
    names: dict[str, Any] = {}
    code = code.replace("nbrag.Workspace(':memory:')", "given")
    exec(compile(code, "script", "exec"), {"given": workspace}, names)
    by_python = nbrag.run(names["retriever"].retrieve(QUESTION, top_k=5))
    assert ids(found) == ids(by_cell) == ids(by_python)
    assert [c.score for c in found] == [c.score for c in by_cell] == [c.score for c in by_python]


def test_each_change_asks_again_and_the_change_is_shown(panel: PipelinePanel) -> None:
    first = panel.state.results
    put(panel, "mode", "keyword")
    second = panel.state.results
    assert panel.state.before is first
    assert ids(second) != ids(first)
    assert "no longer found" in panel._found.value or "was" in panel._found.value
    put(panel, "When changed", False)
    put(panel, "mode", "vector")
    assert panel.state.results is second
    press(panel, "Search")
    assert panel.state.results is not second
    put(panel, "Question", "Where do people sign in?")
    assert panel.state.results.query.text == "Where do people sign in?"
    assert panel.state.before is None


def test_a_pipeline_that_asks_a_model_waits_to_be_asked(
    panel: PipelinePanel, workspace: Workspace
) -> None:
    client = ScriptedChatClient(['{"queries": ["backup retention"]}'] * 9)
    workspace.use_chat(client)
    before = panel.state.results
    put(panel, "New stage", "expand")
    press(panel, "Add stage")
    put(panel, "variants", 1)
    assert client.calls == []
    assert panel.state.results is before
    assert "press Search" in panel._found.value
    press(panel, "Search")
    assert len(client.calls) == 1


def test_a_value_that_does_not_fit_is_told_beside_its_control(panel: PipelinePanel) -> None:
    put(panel, "New stage", "filter")
    press(panel, "Add stage")
    line = panel.editor._errors["where"]
    assert "option &#x27;where&#x27; is required" in line.value
    put(panel, "where", "page >")
    assert 'role="alert"' in panel.editor._errors[""].value
    press(panel, "Search")
    assert panel.state.alert[0].startswith("SpecificationError: stage 'filter'")
    put(panel, "where", "level > 1")
    assert panel.state.alert == ()
    assert panel.editor._errors[""].value == line.value == ""
    assert len(panel.state.results) > 0


def test_a_stage_without_its_model_is_there_and_says_how_to_get_one(panel: PipelinePanel) -> None:
    put(panel, "New stage", "hyde")
    press(panel, "Add stage")
    assert panel.state.label(panel.state.stages[0]) == "1. hyde (its model is missing)"
    assert "%rag_config model=" in panel.editor._errors[""].value
    press(panel, "Switch off")
    press(panel, "Search")
    assert panel.state.alert == ()
    labels = [text for text, _ in control(panel, "New stage").options]
    assert "crag (its model is missing)" in labels
    assert "mmr" in labels


def test_saved_and_loaded_by_name_text_and_file(
    panel: PipelinePanel, workspace: Workspace, tmp_path: Path
) -> None:
    built(panel)
    spec = panel.state.pipeline()
    press(panel, "Save")
    assert panel.state.status == "Saved: %rag_search -p mine uses it."
    assert workspace.pipeline_spec("mine") == spec
    put(panel, "Saved pipeline", "default")
    press(panel, "Load")
    assert (panel.state.name, panel.state.collection, panel.state.stages) == ("default", "", ())
    (tmp_path / "mine.json").write_text(spec.to_json(), "utf-8")
    put(panel, "File", "mine.json")
    press(panel, "Load file")
    assert panel.state.pipeline() == spec
    assert control(panel, "File").value == ""
    put(panel, "Text", "%%rag_pipeline other -c docs\nmmr  diversity=0.9\n")
    press(panel, "Load text")
    assert panel.state.pipeline().to_body() == "mmr  diversity=0.9\n"
    assert panel.state.name == "other"
    again = PipelinePanel(workspace, "mine")
    assert again.state.pipeline() == spec


def test_bad_text_and_files_are_told_and_nothing_is_lost(panel: PipelinePanel) -> None:
    built(panel)
    spec = panel.state.pipeline()
    for text, words in (
        ("%%rag_pipeline x\nserch", "line 2: unknown stage 'serch'."),
        ("search mdoe=x", "line 1: stage 'search' has no option 'mdoe'."),
        ("%%rag_ingest x\nchunk", "that is a pipeline for ingestion, not for retrieval."),
        ("{", "not JSON"),
    ):
        put(panel, "Text", text)
        press(panel, "Load text")
        assert words in panel.state.alert[0]
        assert panel.state.pipeline() == spec
    put(panel, "File", "gone.json")
    press(panel, "Load file")
    assert "can't be read" in panel.state.alert[0]
    put(panel, "Name", "")
    press(panel, "Save")
    assert "has no name" in panel.state.alert[0]


def test_a_collection_that_is_gone_or_empty(panel: PipelinePanel, workspace: Workspace) -> None:
    workspace.drop_collection("docs")
    press(panel, "Search")
    with pytest.raises(nbrag.CollectionNotFound) as told:
        workspace.search(QUESTION, collection="docs")
    assert panel.state.alert == tuple(told.value._render_traceback_())
    workspace.collection("docs")
    press(panel, "Search")
    assert panel.state.alert[0] == "CollectionNotFound: collection 'docs' is empty."
    workspace.ingest("docs", [{"id": "a", "text": "Backups are kept."}])
    press(panel, "Search")
    assert panel.state.alert == ()
    assert len(panel.state.results) == 1


def test_a_locked_file_is_a_line_and_the_panel_works_once_it_is_free(
    workspace: Workspace,
) -> None:
    locked = True

    def provide() -> Workspace:
        if locked:
            raise nbrag.DatabaseLocked("handbook.duckdb", 77)
        return workspace

    panel = PipelinePanel(provide)
    assert panel.state.alert[0] == "DatabaseLocked: handbook.duckdb is held by process 77."
    press(panel, "Save")
    assert panel.state.alert[0].startswith("DatabaseLocked")
    locked = False
    put(panel, "Question", QUESTION)
    assert panel.state.alert == ()
    assert len(panel.state.results) > 0


def test_reading_only_is_told_when_saving(tmp_path: Path) -> None:
    with Workspace("file.duckdb", embedder=HashEmbedder()) as made:
        made.ingest("docs", [{"id": "a", "text": "Backups are kept."}])
    with Workspace("file.duckdb", embedder=HashEmbedder(), read_only=True) as reading:
        panel = PipelinePanel(reading)
        press(panel, "Save")
        assert panel.state.alert[0].startswith("DatabaseReadOnly: file.duckdb is open for")
        put(panel, "Question", QUESTION)
        assert len(panel.state.results) == 1
        panel.close()


def test_the_snapshot_holds_pipeline_and_results_and_nothing_private(
    panel: PipelinePanel, tmp_path: Path
) -> None:
    built(panel)
    press(panel, "Search")
    bundle = panel.snapshot()
    assert "%%rag_pipeline mine -c docs" in bundle["text/plain"]
    assert "35 days" in bundle["text/plain"]
    assert "<table" in bundle["text/html"]
    everything = repr([w.get_state() for w in _all(panel)]) + "".join(bundle.values())
    assert str(tmp_path) not in everything


def _all(box: Any) -> list[Any]:
    return [box, *(inner for child in getattr(box, "children", ()) for inner in _all(child))]


def test_words_for_movements() -> None:
    assert movement(1, None, compared=False) == ""
    assert movement(1, None, compared=True) == "+ new"
    assert movement(2, 2, compared=True) == "= same"
    assert movement(1, 3, compared=True) == "▲ was 3"
    assert movement(3, 1, compared=True) == "▼ was 1"


def test_hostile_results_are_escaped(workspace: Workspace) -> None:
    workspace.ingest("bad", [{"id": "<b>", "text": "<script>alert(1)</script> backups"}])
    found = workspace.search("backups", collection="bad")
    assert "<script" not in compared_table(found, found)["text/html"]


def test_the_magic_opens_it_and_a_rerun_closes_the_one_before(filled: Any) -> None:
    first = filled.run('%rag_panel pipeline -c docs --question "How long are backups kept?"')
    assert len(first.state.results) > 0
    filled.run("%%rag_pipeline mine -c docs\nsearch mode=vector")
    second = filled.run("%rag_panel pipeline mine")
    assert first.ended
    assert second.state.pipeline().to_body() == "search  mode=vector\n"
    with pytest.raises(nbrag.ConfigurationError, match="did you mean 'pipeline'"):
        filled.run("%rag_panel pipelnie")
    with pytest.raises(nbrag.ConfigurationError, match="no option 'cases'"):
        filled.run("%rag_panel pipeline --cases x")
    filled.run("%unload_ext nbrag")
    assert second.ended


def test_a_missing_pipeline_is_told_in_the_panel(workspace: Workspace) -> None:
    panel = PipelinePanel(workspace, "nowhere")
    assert panel.state.alert[0] == "PipelineNotFound: there is no pipeline 'nowhere'."
    with pytest.raises(SpecificationError):
        PipelineSpec.from_body("retrieval", "nowhere")
