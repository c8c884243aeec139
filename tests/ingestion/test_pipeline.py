"""Ingestion end to end: outcomes, skipping, replacing, resuming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nbrag
from nbrag.errors import EmbedderMismatch, SpecificationError
from nbrag.protocols import IngestionChunkProcessor
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder
from nbrag.types import Chunk, Document
from nbrag.workspace import Workspace


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def workspace(embedder: HashEmbedder) -> Iterator[Workspace]:
    with Workspace(embedder=embedder) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, body in {
        "a.md": "# Alpha\n\nApples grow on trees.\n\n## Beta\n\nBees like flowers.\n",
        "b.txt": "Cats sleep all day.",
        "sub/c.md": "# Gamma\n\nDogs bark at night.\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(body, encoding="utf-8")
    return tmp_path


def outcomes(report: Any) -> dict[str, str]:
    return {Path(row.uri).name: row.outcome for row in report}


def test_first_run_adds_everything(workspace: Workspace, folder: Path) -> None:
    report = workspace.ingest("docs", folder)
    assert outcomes(report) == {"a.md": "added", "b.txt": "added", "c.md": "added"}
    assert report.embedded == report.chunks > 0
    documents, chunks = nbrag.run(workspace["docs"].count())
    assert (documents, chunks) == (3, report.chunks)


def test_second_run_embeds_nothing(
    workspace: Workspace, folder: Path, embedder: HashEmbedder
) -> None:
    workspace.ingest("docs", folder)
    before = len(embedder.embedded)
    report = workspace.ingest("docs", folder)
    assert set(outcomes(report).values()) == {"unchanged"}
    assert len(embedder.embedded) == before
    assert report.embedded == 0


def test_changed_file_embeds_only_its_changed_chunks(
    workspace: Workspace, folder: Path, embedder: HashEmbedder
) -> None:
    workspace.ingest("docs", folder)
    before = len(embedder.embedded)
    text = (folder / "a.md").read_text(encoding="utf-8").replace("Bees", "Wasps")
    (folder / "a.md").write_text(text, encoding="utf-8")
    report = workspace.ingest("docs", folder)
    assert outcomes(report) == {"a.md": "changed", "b.txt": "unchanged", "c.md": "unchanged"}
    new = embedder.embedded[before:]
    assert len(new) == report.embedded == 1
    assert "Wasps" in new[0]
    found = workspace.search("Wasps", top_k=10)
    assert all("Bees" not in chunk.content for chunk in found)


def test_same_document_twice_is_one(workspace: Workspace, folder: Path) -> None:
    record = {"id": "r1", "text": "Only once."}
    report = workspace.ingest("docs", [record, record])
    assert [row.outcome for row in report] == ["added", "duplicate"]
    assert [row.outcome for row in workspace.ingest("docs", [record])] == ["unchanged"]


def test_same_text_in_two_files_stays_two_documents(
    workspace: Workspace, embedder: HashEmbedder
) -> None:
    records = [{"id": "one", "text": "Equal words."}, {"id": "two", "text": "Equal words."}]
    report = workspace.ingest("docs", records)
    assert [row.outcome for row in report] == ["added", "added"]
    assert len(set(embedder.embedded)) == len(embedder.embedded)


def test_vanished_documents_stay_unless_asked(workspace: Workspace, folder: Path) -> None:
    workspace.ingest("docs", folder)
    (folder / "b.txt").unlink()
    assert "b.txt" not in outcomes(workspace.ingest("docs", folder))
    assert nbrag.run(workspace["docs"].count())[0] == 3
    report = workspace.ingest("docs", folder, remove_missing=True)
    assert outcomes(report)["b.txt"] == "removed"
    assert not [c for c in workspace.search("Cats sleep", top_k=9) if "Cats" in c.content]


def test_nothing_is_removed_when_a_source_is_missing(workspace: Workspace, folder: Path) -> None:
    workspace.ingest("docs", folder)
    report = workspace.ingest("docs", folder / "no-such-folder", remove_missing=True)
    assert report.counts == {"failed": 1}
    assert report.warnings
    assert nbrag.run(workspace["docs"].count())[0] == 3


def test_file_that_became_empty_is_not_found_any_more(workspace: Workspace, folder: Path) -> None:
    workspace.ingest("docs", folder)
    (folder / "b.txt").write_text("  \n", encoding="utf-8")
    report = workspace.ingest("docs", folder)
    assert outcomes(report)["b.txt"] == "removed"
    assert nbrag.run(workspace["docs"].count())[0] == 2


def test_file_that_broke_keeps_its_last_good_version(workspace: Workspace, folder: Path) -> None:
    workspace.ingest("docs", folder)
    (folder / "b.txt").write_bytes(bytes(range(256)) * 8)
    report = workspace.ingest("docs", folder)
    (row,) = report.failed
    assert row.uri.endswith("b.txt")
    assert "kept" in row.reason
    assert nbrag.run(workspace["docs"].count())[0] == 3


def test_one_bad_file_does_not_stop_the_others(workspace: Workspace, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    (folder / "accent.txt").write_bytes("café au lait, déjà vu".encode("cp1252"))
    report = workspace.ingest("docs", folder)
    assert outcomes(report) | {"accent.txt": "added"} == outcomes(report)
    assert [Path(row.uri).name for row in report.failed] == ["broken.pdf"]


def test_other_settings_cut_again(workspace: Workspace, embedder: HashEmbedder) -> None:
    text = "word " * 400
    workspace.ingest("docs", [{"id": "a", "text": text}])
    spec = PipelineSpec("ingestion", "docs").with_stage("chunk", max_tokens=32)
    report = workspace.ingest("docs", [{"id": "a", "text": text}], spec=spec)
    assert report.rows[0].outcome == "changed"
    assert report.rows[0].chunks > 10
    stored = workspace.sql("SELECT max(token_count) FROM docs.chunks").fetchall()
    assert stored[0][0] <= 32


def test_another_embedder_is_refused(workspace: Workspace) -> None:
    workspace.ingest("docs", [{"id": "a", "text": "words"}])
    other = HashEmbedder(dimension=32)
    pipeline = Workspace(embedder=other).ingestion_pipeline().build()
    with pytest.raises(EmbedderMismatch, match="docs"):
        nbrag.run(pipeline.run([{"id": "b", "text": "more"}], workspace["docs"]))


def test_function_processors(workspace: Workspace) -> None:
    def shout(document: Document) -> Document:
        return replace(document, metadata={**document.metadata, "loud": True})

    def fragile(chunk: Chunk) -> Chunk:
        if "bad" in chunk.content:
            raise ValueError("no")
        return replace(chunk, metadata={**chunk.metadata, "length": len(chunk.content)})

    pipeline = workspace.ingestion_pipeline().use(shout).use(fragile).build()
    records = [{"id": "a", "text": "good"}, {"id": "b", "text": "bad"}]
    report = nbrag.run(pipeline.run(records, workspace.collection("docs")))
    assert report.counts == {"added": 2}
    rows = workspace.sql("SELECT source, loud, length FROM docs.chunks ORDER BY source").fetchall()
    assert rows == [("a", True, 4), ("b", True, None)]
    with pytest.raises(SpecificationError, match="annotate"):
        workspace.ingestion_pipeline().use(lambda x: x)


class _Numbering(IngestionChunkProcessor):
    name = "numbering"

    def __init__(self) -> None:
        self.finalized: list[str] = []

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        number = 0
        async for chunk in chunks:
            number += 1
            yield replace(chunk, metadata={**chunk.metadata, "number": number})

    async def finalize(self, collection: Any) -> None:
        self.finalized.append(collection.name)


def test_chunk_processor_sees_all_documents_and_finalizes_once(workspace: Workspace) -> None:
    numbering = _Numbering()
    pipeline = workspace.ingestion_pipeline().use(numbering).build()
    records = [{"id": str(i), "text": f"text {i}"} for i in range(5)]
    nbrag.run(pipeline.run(records, workspace.collection("docs")))
    rows = workspace.sql("SELECT number FROM docs.chunks ORDER BY number").fetchall()
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5]
    assert numbering.finalized == ["docs"]


class _StopsAfter(HashEmbedder):
    """Breaks off after a number of calls, as a kill would."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    async def embed_documents(self, texts: Sequence[str]) -> Any:
        if self.left <= 0:
            raise asyncio.CancelledError
        self.left -= 1
        return await super().embed_documents(texts)


def test_a_stop_in_a_long_document_loses_one_batch_at_most(tmp_path: Path) -> None:
    # About 60,000 tokens: several batches of one document.
    record = {"id": "long", "text": " ".join(f"w{i}" for i in range(60_000))}
    file = tmp_path / "w.duckdb"
    stopping = _StopsAfter(2)
    with Workspace(file, embedder=stopping) as workspace, pytest.raises(KeyboardInterrupt):
        workspace.ingest("docs", [record])
    done = len(stopping.embedded)
    assert done > 0
    embedder = HashEmbedder()
    with Workspace(file, embedder=embedder) as workspace:
        assert nbrag.run(workspace["docs"].count()) == (0, 0)
        report = workspace.ingest("docs", [record])
        assert report.counts == {"added": 1}
        assert len(embedder.embedded) == report.chunks - done
        staged = workspace.sql("SELECT count(*) FROM docs.staged_vectors").fetchall()
        assert staged == [(0,)]


def test_progress_ends_with_done(workspace: Workspace, folder: Path) -> None:
    states: list[Any] = []
    workspace.ingest("docs", folder, progress=states.append)
    assert states[-1].stage == "done"
    assert (states[-1].documents_done, states[-1].documents_total) == (3, 3)
