"""The workspace behind the magics: opened late, changed with the settings, never lost quietly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbrag.errors import ConfigurationError, DatabaseReadOnly
from nbrag.notebook.session import (
    NotebookSession,
    current_workspace,
    session_of,
    use_workspace,
)
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace


@pytest.fixture
def session(bare_shell: Any) -> NotebookSession:
    bare_shell.run("%load_ext nbrag")
    found = session_of(bare_shell)
    assert found is not None
    return found


def fill(workspace: Workspace, name: str = "docs") -> None:
    workspace._embedder = HashEmbedder()
    workspace.ingest(name, [{"id": "a", "text": "Some text."}])


def test_opens_at_first_use_and_keeps_it(session: NotebookSession) -> None:
    assert session.opened is None
    assert current_workspace() is session.workspace is session.opened


def test_another_database_closes_the_first(session: NotebookSession, tmp_path: Path) -> None:
    session.configure({"database": "one.duckdb"})
    first = session.workspace
    fill(first)
    session.configure({"database": "two.duckdb"})
    second = session.workspace
    assert second is not first
    assert second.collections() == []
    session.configure({"database": "one.duckdb"})
    assert session.workspace.collections() == ["docs"]
    assert {path.name for path in tmp_path.iterdir()} >= {"one.duckdb", "two.duckdb"}


def test_a_path_counts_from_the_folder_in_which_it_was_set(
    session: NotebookSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.configure({"database": "one.duckdb"})
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert session.workspace.path == str(tmp_path / "one.duckdb")


def test_read_only(session: NotebookSession) -> None:
    session.configure({"database": "one.duckdb"})
    fill(session.workspace)
    session.configure({"read_only": "true"})
    assert session.workspace.collections() == ["docs"]
    with pytest.raises(DatabaseReadOnly):
        session.workspace.collection("new")


def test_what_would_lose_collections_in_memory_is_refused(session: NotebookSession) -> None:
    session.configure({"index": "exact"})
    fill(session.workspace)
    with pytest.raises(ConfigurationError, match=r"would lose its collections \(docs\)"):
        session.configure({"index": "hnsw", "top_k": "9"})
    assert session.configuration["index"] == "exact"
    assert session.configuration["top_k"] == 5
    with pytest.raises(ConfigurationError, match="would lose"):
        session.reset([])
    assert session.workspace.collections() == ["docs"]
    session.configure({"top_k": "9"})


def test_a_setting_from_outside_does_not_lose_them_either(
    session: NotebookSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session.workspace)
    monkeypatch.setenv("NBRAG_INDEX", "exact")
    with pytest.raises(ConfigurationError, match="would lose"):
        _ = session.workspace
    monkeypatch.delenv("NBRAG_INDEX")
    assert session.workspace.collections() == ["docs"]


def test_leaving_memory_warns_of_the_loss(session: NotebookSession) -> None:
    fill(session.workspace)
    session.configure({"database": "file.duckdb"})
    with pytest.warns(UserWarning, match="with its collections: docs"):
        _ = session.workspace


def test_a_workspace_opened_in_python_stays_open(bare_shell: Any) -> None:
    bare_shell.run("%load_ext nbrag")
    with Workspace(embedder=HashEmbedder()) as mine:
        use_workspace(mine)
        assert current_workspace() is mine
        bare_shell.run("%unload_ext nbrag")
        assert mine.collections() == []


def test_without_the_magics_there_is_no_workspace(bare_shell: Any) -> None:
    with pytest.raises(ConfigurationError, match="not loaded"):
        current_workspace()
