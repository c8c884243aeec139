"""The workspace: choosing, keeping, refusing, and what a second opener sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nbrag
from nbrag.errors import (
    CollectionNotFound,
    ConfigurationError,
    DatabaseReadOnly,
    EmbedderMismatch,
    PipelineNotFound,
    StoreError,
)
from nbrag.spec import PipelineSpec
from nbrag.stores.duckdb import trace as trace_table
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace

RECORDS = [{"id": "a", "text": "Ants walk."}, {"id": "b", "text": "Bees fly."}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.duckdb"


@pytest.fixture
def workspace(file: Path) -> Iterator[Workspace]:
    with Workspace(file, embedder=HashEmbedder()) as opened:
        yield opened


def test_everything_is_there_after_reopening(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", RECORDS)
        workspace.save_pipeline(
            PipelineSpec("retrieval", "words", collection="docs").with_stage(
                "search", mode="keyword"
            )
        )
        before = [(c.id, c.score) for c in workspace.search("ants")]
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        assert workspace.collections() == ["docs"]
        assert workspace.pipelines() == ["default", "words"]
        assert [(c.id, c.score) for c in workspace.search("ants")] == before
        assert [c.record["source"] for c in workspace.search("bees", pipeline="words")] == ["b"]


def test_reading_only(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", RECORDS)
    with Workspace(file, embedder=HashEmbedder(), read_only=True) as reader:
        assert [c.source for c in reader.search("bees", top_k=1)] == ["b"]
        with pytest.raises(DatabaseReadOnly):
            reader.ingest("docs", [{"id": "c", "text": "new"}])
        with pytest.raises(DatabaseReadOnly):
            reader.ingest("other", RECORDS)
        with pytest.raises(DatabaseReadOnly):
            reader.save_pipeline(PipelineSpec("retrieval", "p"))


def test_which_collection_is_meant(workspace: Workspace) -> None:
    with pytest.raises(CollectionNotFound, match="ingest documents first"):
        workspace.search("x")
    workspace.ingest("first", RECORDS)
    assert workspace.choose_collection(None).name == "first"
    workspace.ingest("second", RECORDS)
    assert workspace.choose_collection(None).name == "second"
    spec = PipelineSpec("retrieval", "p", collection="first")
    assert workspace.choose_collection(None, spec).name == "first"
    assert workspace.choose_collection("second", spec).name == "second"
    with pytest.raises(CollectionNotFound, match="did you mean 'first'"):
        workspace.search("x", collection="frist")


def test_several_collections_and_none_named(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.ingest("one", RECORDS)
        workspace.ingest("two", RECORDS)
    with Workspace(file) as workspace, pytest.raises(CollectionNotFound, match="one, two"):
        workspace.search("x")


def test_dropping(workspace: Workspace) -> None:
    workspace.ingest("docs", RECORDS)
    workspace.drop_collection("docs")
    assert "docs" not in workspace
    with pytest.raises(CollectionNotFound):
        _ = workspace["docs"]
    report = workspace.ingest("docs", RECORDS)
    assert report.counts == {"added": 2}


def test_unknown_pipeline(workspace: Workspace) -> None:
    workspace.save_pipeline(PipelineSpec("retrieval", "support"))
    with pytest.raises(PipelineNotFound, match="did you mean 'support'"):
        workspace.pipeline("suport")
    with pytest.raises(ConfigurationError, match="retrieval"):
        workspace.save_pipeline(PipelineSpec("ingestion", "x"))


def test_default_pipeline_can_be_replaced(workspace: Workspace) -> None:
    workspace.save_pipeline(
        PipelineSpec("retrieval", "default").with_stage("search", mode="vector")
    )
    workspace.ingest("docs", RECORDS)
    stages = {record.stage for record in workspace.search("ants").trace.stages}
    assert "keyword" not in stages


def test_no_sources(workspace: Workspace) -> None:
    with pytest.raises(ConfigurationError, match="no sources"):
        workspace.ingest("docs")
    with pytest.raises(ConfigurationError, match="no sources"):
        workspace.ingest("docs", [])


def test_wrong_index_name() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'exact'"):
        Workspace(index="exakt")  # type: ignore[arg-type]


def test_other_embedder(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", RECORDS)
    other = HashEmbedder(dimension=16)
    with Workspace(file, embedder=other) as workspace:
        with pytest.raises(EmbedderMismatch, match="docs"):
            workspace.search("ants")
        with pytest.raises(EmbedderMismatch, match="docs"):
            workspace.ingest("docs", RECORDS)
        assert not other.embedded


def test_searches_are_kept_in_the_trace_table(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_table, "KEPT_RUNS", 2)
    workspace.ingest("docs", RECORDS)
    for question in ("ants", "bees", "birds"):
        workspace.search(question)
    rows = workspace.sql(
        "SELECT run, question, count(*) FROM nbrag.trace WHERE stage = 'vector'"
        " GROUP BY ALL ORDER BY run"
    ).fetchall()
    assert rows == [(2, "bees", 2), (3, "birds", 2)]


def test_a_trace_that_cannot_be_kept_is_a_warning(workspace: Workspace) -> None:
    workspace.ingest("docs", RECORDS)
    workspace.database.execute("DROP TABLE nbrag.trace")
    results = workspace.search("ants")
    assert len(results) == 2
    assert any("trace was not kept" in warning for warning in results.warnings)


def test_sql_sees_the_tables(workspace: Workspace) -> None:
    workspace.ingest("docs", RECORDS)
    rows = workspace.sql("SELECT source FROM docs.chunks WHERE content LIKE ?", ["Bees%"])
    assert rows.fetchall() == [("b",)]


def test_closed_workspace_says_so(file: Path) -> None:
    workspace = Workspace(file)
    workspace.close()
    workspace.close()
    with pytest.raises(StoreError, match="closed"):
        workspace.collections()


def test_two_workspaces_on_one_file_see_each_other(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as one:
        one.ingest("docs", RECORDS)
        with Workspace(file, embedder=HashEmbedder()) as two:
            assert len(two.search("ants")) == 2
            one.ingest("docs", [{"id": "c", "text": "Cats purr."}])
            assert [c.source for c in two.search("cats", top_k=1)] == ["c"]
            two.ingest("docs", [{"id": "d", "text": "Dogs bark."}])
            assert [c.source for c in one.search("dogs", top_k=1)] == ["d"]


def test_a_stage_that_needs_a_chat_model_says_what_to_do(workspace: Workspace) -> None:
    with pytest.raises(ConfigurationError, match="chat model"):
        workspace.context.chat()


def test_generated_python_finds_the_same(file: Path) -> None:
    with Workspace(file, embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", RECORDS)
        spec = PipelineSpec("retrieval", "p", collection="docs").with_stage("mmr", diversity=0.1)
        workspace.save_pipeline(spec)
        expected = [c.id for c in workspace.search("ants", pipeline="p")]
        source = spec.to_python(database=str(file))
        source = source.replace("nbrag.Workspace(", "Workspace(")
        embedder = HashEmbedder()
        names = {"Workspace": lambda path: Workspace(path, embedder=embedder)}
        exec(source, names)
        found = nbrag.run(names["retriever"].retrieve("ants"))  # type: ignore[attr-defined]
        names["workspace"].close()  # type: ignore[attr-defined]
    assert [c.id for c in found] == expected


@pytest.mark.parametrize("file", ["docs.duckdb", "DOCS.db", "docs.v2.duckdb", "main.duckdb"])
def test_a_collection_may_be_called_like_its_file(tmp_path: Path, file: str) -> None:
    for run in range(2):
        with Workspace(tmp_path / file, embedder=HashEmbedder()) as workspace:
            report = workspace.ingest("docs", RECORDS)
            assert report.counts == ({"added": 2} if run == 0 else {"unchanged": 2})
            assert workspace.search("word", collection="docs", where="ordinal == 0")
            assert workspace.collections() == ["docs"]
    with Workspace(tmp_path / file, embedder=HashEmbedder(), index="hnsw") as workspace:
        assert workspace.search("word", collection="docs")
        workspace.drop_collection("docs")
        assert workspace.collections() == []


def test_a_file_called_like_the_package_is_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't be a workspace's file"):
        Workspace(tmp_path / "NBRAG.duckdb")
