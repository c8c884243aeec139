"""Stages that work on the whole collection once all documents are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import nbrag
from nbrag.ingestion import IngestReport
from nbrag.protocols import Collection, IngestionChunkProcessor, StageProblem
from nbrag.testing import HashEmbedder
from nbrag.types import Chunk
from nbrag.workspace import Workspace

RECORDS = [{"id": f"d{n}", "text": f"Text number {n}."} for n in range(3)]


class Whole(IngestionChunkProcessor):
    name = "whole"
    changes_chunks = False

    def __init__(self, settings: str = "") -> None:
        self.settings = settings
        self.seen: list[tuple[int, int]] = []
        self.ahead: list[tuple[list[str], list[str]]] = []
        self.fails = False
        self._problems: list[StageProblem] = []

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        async for chunk in chunks:
            yield chunk

    async def finalize(self, collection: Collection) -> None:
        self.seen.append(await collection.count())
        if self.fails:
            self._problems = [StageProblem(self.name, "", "no answer.", "summary")] * 2

    async def preview(
        self, collection: Collection, chunks: Sequence[Chunk], documents: Mapping[str, str]
    ) -> None:
        uris = sorted(documents.values())
        self.ahead.append(([chunk.content for chunk in chunks], uris))

    def take_problems(self) -> list[StageProblem]:
        problems, self._problems = self._problems, []
        return problems

    def take_notes(self) -> list[str]:
        return [f"whole: {len(self.seen)} looks"]


def ingest(workspace: Workspace, stage: Whole, records: Any = RECORDS, **how: Any) -> IngestReport:
    pipeline = workspace.ingestion_pipeline().use(stage).build()
    return nbrag.run(pipeline.run(records, workspace.collection("docs"), **how))


def test_they_see_what_stays_only_and_the_report_tells_of_them() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        stage = Whole()
        report = ingest(workspace, stage)
        assert report.notes == ("whole: 1 looks",)
        assert "whole: 1 looks" in report._repr_mimebundle_()["text/plain"]
        ingest(workspace, stage, RECORDS[:2], remove_missing=True)
        assert stage.seen == [(3, 3), (2, 2)]


def test_their_problems_are_told_and_make_no_document_incomplete() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        stage = Whole()
        stage.fails = True
        report = ingest(workspace, stage)
        assert report.warnings == (
            "stage 'whole': 2 summaries missing, e.g. no answer. The next run tries again.",
        )
        assert not [row for row in report if row.reason]
        stage.fails = False
        assert ingest(workspace, stage).counts == {"unchanged": 3}
        assert len(stage.seen) == 2


def test_other_options_of_them_change_no_document() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        ingest(workspace, Whole("one"))
        assert ingest(workspace, Whole("two")).counts == {"unchanged": 3}
        plain = workspace.ingestion_pipeline().build()
        target = workspace.collection("docs")
        assert nbrag.run(plain.run(RECORDS, target)).counts == {"unchanged": 3}


def test_a_preview_shows_them_what_would_be_written() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        stage = Whole()
        ingest(workspace, stage, RECORDS[:2])
        pipeline = workspace.ingestion_pipeline().use(stage).build()
        edited = [RECORDS[0], {"id": "d1", "text": "Other."}, RECORDS[2]]
        nbrag.run(pipeline.preview(edited, workspace.collection("docs")))
        [(texts, uris)] = stage.ahead
        assert texts == ["Other.", "Text number 2."]
        assert [uri[-2:] for uri in uris] == ["d1", "d2"]
        assert len(stage.seen) == 1
