"""The map panel: drawn at once, by what one chooses, with a question on it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import nbrag
from nbrag.errors import DatabaseLocked
from nbrag.maps import map_collection
from nbrag.notebook.panels.map_view import MapPanel
from nbrag.testing import control
from nbrag.workspace import Workspace


@pytest.fixture
def panel(workspace: Workspace) -> MapPanel:
    return MapPanel(workspace, collection="docs")


def test_it_is_drawn_when_it_opens_and_the_still_picture_is_the_same(
    panel: MapPanel, workspace: Workspace
) -> None:
    assert panel.state.alert == ()
    assert panel.state.drawn == map_collection(workspace, "docs")
    svg = panel._picture.value
    assert svg.count("<svg") == 1
    assert svg in panel.snapshot()["text/html"]
    assert panel.state.status == "The map of docs is drawn."


def test_marks_follow_the_choice(panel: MapPanel) -> None:
    by = control(panel, "Marks tell")
    assert ("team", "team") in by.options
    assert ("document", "document") in by.options
    by.value = "document"
    panel.wait()
    assert panel.state.drawn.by == "document"
    assert "handbook/login.md" in panel._picture.value


def test_a_question_is_marked_with_its_results(panel: MapPanel, workspace: Workspace) -> None:
    control(panel, "Question").value = "How long are backups kept?"
    panel.wait()
    found = workspace.search("How long are backups kept?", collection="docs")
    assert [hit.source for hit in panel.state.drawn.hits] == [chunk.source for chunk in found]
    control(panel, "Results").value = 2
    panel.wait()
    assert len(panel.state.drawn.hits) == 2
    text = panel.snapshot()["text/plain"]
    assert "How long are backups kept?" in text


def test_another_collection_has_other_fields(panel: MapPanel, workspace: Workspace) -> None:
    workspace.ingest("notes", [{"id": "n", "text": "a note", "mood": "good"}])
    control(panel, "Marks tell").value = "document"
    panel.wait()
    control(panel, "Draw").click()
    panel.wait()
    control(panel, "Collection").value = "notes"
    panel.wait()
    assert panel.state.drawn.collection == "notes"
    assert panel.state.by == "mood"


def test_a_missing_umap_is_a_line_and_the_map_stays(
    panel: MapPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    for number in range(3):
        panel.workspace.ingest("docs", [{"id": f"x{number}", "text": f"text {number}"}])
    before = panel._picture.value
    control(panel, "Method").value = "umap"
    panel.wait()
    assert panel.state.alert == (
        "MissingDependency: a map by UMAP needs the package umap-learn, which is not installed.",
        "Hint: pip install 'nbrag[umap]'",
    )
    assert panel._picture.value == before
    control(panel, "Method").value = "pca"
    panel.wait()
    assert panel.state.alert == ()


def test_empty_and_deleted_collections_are_told(panel: MapPanel, workspace: Workspace) -> None:
    workspace.collection("empty")
    control(panel, "Draw").click()
    panel.wait()
    before = panel.state.drawn
    control(panel, "Collection").value = "empty"
    panel.wait()
    assert panel.state.alert[0] == "CollectionNotFound: collection 'empty' is empty."
    workspace.drop_collection("docs")
    control(panel, "Collection").value = "docs"
    panel.wait()
    with pytest.raises(nbrag.CollectionNotFound) as told:
        workspace.search("x", collection="docs")
    assert list(panel.state.alert) == told.value._render_traceback_()
    assert panel.state.drawn is before


def test_a_workspace_without_collections_is_no_error(workspace: Workspace) -> None:
    workspace.drop_collection("docs")
    panel = MapPanel(workspace)
    assert panel.state.alert == ()
    control(panel, "Draw").click()
    panel.wait()
    assert panel.state.alert[0].startswith("CollectionNotFound: there is no collection yet")


def test_a_locked_file_is_told_and_the_panel_lives_on(workspace: Workspace) -> None:
    locked = True

    def provider() -> Workspace:
        if locked:
            raise DatabaseLocked("x.duckdb", 42)
        return workspace

    panel = MapPanel(provider, collection="docs")
    assert panel.state.alert[0].startswith("DatabaseLocked: ")
    locked = False
    control(panel, "Draw").click()
    panel.wait()
    assert panel.state.drawn is not None


def test_a_pipeline_whose_model_is_missing_is_told(
    panel: MapPanel, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NBRAG_MODEL", raising=False)
    spec = nbrag.PipelineSpec("retrieval", "asks").with_stage("expand").with_stage("search")
    workspace.save_pipeline(spec)
    made: Any = nbrag.panel("map", workspace, collection="docs")
    control(made, "Pipeline").value = "asks"
    control(made, "Question").value = "anything"
    made.wait()
    assert made.state.alert[0].startswith("ConfigurationError: ")
    assert made.state.drawn is not None
    assert made.state.question == "anything"


def test_the_magic_passes_collection_and_question(filled: Any) -> None:
    made = filled.run('%rag_panel map -c docs --question "backups"')
    assert made.state.drawn.question == "backups"
    with pytest.raises(nbrag.ConfigurationError, match="takes no names"):
        filled.run("%rag_panel map docs")
