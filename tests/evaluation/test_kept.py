"""Judgements kept in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrag.errors import DatabaseReadOnly, JudgementsError
from nbrag.evaluation import Judgements
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace

QUESTION = "How long are backups kept?"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kept.duckdb"
    with Workspace(path, embedder=HashEmbedder()) as workspace:
        pages = [("a.md", "Backups are kept for 35 days."), ("b.md", "A plan costs 5 dollars.")]
        workspace.ingest("docs", [{"id": uri, "text": text} for uri, text in pages])
    return path


def test_marks_are_kept_replaced_and_measured_by_name(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        found = workspace.search(QUESTION, collection="docs")
        right, wrong = found[0], found[1]
        marks = workspace.judgements
        for chunk, grade in ((right, 0), (wrong, 0), (right, 2)):
            marks.mark(QUESTION, chunk.source, chunk.id, collection="docs", grade=grade)
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        marks = workspace.judgements
        assert marks.names() == ["marked"]
        assert marks.grades(QUESTION, collection="docs") == {right.id: 2, wrong.id: 0}
        assert marks.grades(QUESTION, collection="other") == {}
        loaded = marks.load()
        assert loaded.queries == {"1": QUESTION}
        assert loaded.qrels == {"1": {right.id: 2, wrong.id: 0}}
        assert marks.load(unit="document").qrels == {"1": {"a.md": 2, "b.md": 0}}
        report = workspace.evaluate(["default"], "marked", metrics=["MRR"])
        assert "1.000 [" in report._repr_mimebundle_()["text/plain"]
        rows = workspace.sql("SELECT count(*), max(judged) <= now() FROM nbrag.judgements")
        assert rows.fetchall() == [(2, True)]
        marks.unmark(QUESTION, right.source, right.id, collection="docs")
        with pytest.raises(JudgementsError, match="no query has a relevant document"):
            marks.load()


def test_whole_documents_and_several_sets(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        marks = workspace.judgements
        marks.mark(QUESTION, "a.md", collection="docs", name="mine")
        marks.mark(QUESTION, "a.md", "chunk", collection="docs", name="mine")
        marks.mark("What does a plan cost?", "b.md", collection="docs", name="other")
        assert marks.names() == ["mine", "other"]
        assert marks.load("mine").qrels == {"1": {"a.md": 1}}
        with pytest.raises(JudgementsError, match=r"name 'mien'.*did you mean 'mine'"):
            marks.load("mien")
        given = marks.load("other")
        assert marks.find(given) is given
        assert marks.find("other") == given
        with pytest.raises(JudgementsError, match="no such file"):
            marks.find("gone.jsonl")
        with pytest.raises(JudgementsError, match="needs a question"):
            marks.mark(" ", "a.md", collection="docs")
        with pytest.raises(JudgementsError, match="negative"):
            marks.mark(QUESTION, "a.md", collection="docs", grade=-1)


def test_a_file_of_that_name_goes_before_a_kept_set(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.jsonl").write_text('{"query": "x?", "relevant": ["a.md"]}\n', "utf-8")
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.judgements.mark(QUESTION, "a.md", collection="docs", name="cases.jsonl")
        assert isinstance(workspace.judgements.find("cases.jsonl"), Judgements)
        assert workspace.judgements.find("cases.jsonl").queries == {"1": "x?"}


def test_older_files_get_the_table_when_opened_for_writing(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.database.execute("DROP TABLE nbrag.judgements")
    with Workspace(file, embedder=HashEmbedder(), read_only=True) as workspace:
        assert workspace.judgements.names() == []
        assert workspace.judgements.grades(QUESTION, collection="docs") == {}
        with pytest.raises(DatabaseReadOnly):
            workspace.judgements.mark(QUESTION, "a.md", collection="docs")
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.judgements.mark(QUESTION, "a.md", collection="docs")
        assert workspace.judgements.names() == ["marked"]
