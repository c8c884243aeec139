"""Stages of ingestion that ask a chat model: order, failures, and what a next run does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import nbrag
from nbrag.errors import ChatUnavailable, ConfigurationError
from nbrag.ingestion import IngestReport
from nbrag.ingestion.enriching import ChunkEnricher
from nbrag.models.chat import Budget, ask
from nbrag.protocols import Collection
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import ChatMessage, ChatReply, Chunk
from nbrag.workspace import Workspace


class Echo(ChunkEnricher):
    """Adds the model's word on each chunk."""

    name = "echo"

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        reply = await self.chat.complete([ChatMessage("user", chunk.content)])
        return [replace(chunk, metadata={**chunk.metadata, "echo": reply.text})]


class Model:
    """Answers with the question's number of letters, late for the first ones; may fail."""

    model = "counting/letters"

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.asked: list[str] = []

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        text = messages[-1].content
        self.asked.append(text)
        await asyncio.sleep(0.02 if len(self.asked) < 4 else 0)
        if self.fails and self.fails in text:
            raise ChatUnavailable("the server is down.")
        return ChatReply(str(len(text)))


RECORDS = [{"id": f"d{n}", "text": f"Text number {n} of {10**n}."} for n in range(8)]


def ingest(workspace: Workspace, records: Any = RECORDS) -> IngestReport:
    pipeline = workspace.ingestion_pipeline().use(Echo(workspace.chat)).build()
    return nbrag.run(pipeline.run(records, workspace.collection("docs")))


def stored(workspace: Workspace) -> dict[str, str | None]:
    rows = workspace.database.execute("SELECT content, echo FROM docs.chunks ORDER BY row")
    return {str(content): echo for content, echo in rows}


def test_every_chunk_is_enriched_and_keeps_its_place() -> None:
    with Workspace(embedder=HashEmbedder(), chat=Model()) as workspace:
        report = ingest(workspace)
        assert report.counts == {"added": 8}
        assert not report.warnings
        assert stored(workspace) == {r["text"]: str(len(r["text"])) for r in RECORDS}
        assert {entry.stage for entry in workspace.ledger()} == {"echo"}


def test_failures_are_counted_and_only_they_are_asked_again(tmp_path: Path) -> None:
    model = Model(fails="number 3")
    with Workspace(tmp_path / "w.duckdb", embedder=HashEmbedder(), chat=model) as workspace:
        report = ingest(workspace)
        assert report.counts == {"added": 8}
        [warning] = report.warnings
        assert warning.startswith(
            "stage 'echo': 1 chunk stored without it, e.g. the server is down."
        )
        [row] = [row for row in report if row.reason]
        assert (row.uri.endswith("d3"), row.reason) == (True, "1 chunk without echo")
        assert sum(echo is None for echo in stored(workspace).values()) == 1
        model.fails, model.asked = "", []
        again = ingest(workspace)
        assert again.counts == {"changed": 1, "unchanged": 7}
        assert again.embedded == 0
        assert len(model.asked) == 1
        assert stored(workspace) == {r["text"]: str(len(r["text"])) for r in RECORDS}
        assert ingest(workspace).counts == {"unchanged": 8}


def test_a_spent_budget_stops_the_asking_not_the_run(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with Workspace(
        path, embedder=HashEmbedder(), chat=Model(), budget=Budget(calls=5), concurrency=1
    ) as workspace:
        report = ingest(workspace)
        assert report.counts == {"added": 8}
        assert "3 chunks stored without it" in report.warnings[0]
    model = Model()
    with Workspace(path, embedder=HashEmbedder(), chat=model) as workspace:
        assert ingest(workspace).counts == {"changed": 3, "unchanged": 5}
        assert len(model.asked) == 3
        assert not [echo for echo in stored(workspace).values() if echo is None]


def test_an_edit_asks_about_its_changed_chunks_only(tmp_path: Path) -> None:
    model = Model()
    with Workspace(tmp_path / "w.duckdb", embedder=HashEmbedder(), chat=model) as workspace:
        ingest(workspace)
        model.asked = []
        edited = [*RECORDS[:-1], {"id": "d7", "text": "Another text."}]
        assert ingest(workspace, edited).counts == {"changed": 1, "unchanged": 7}
        assert model.asked == ["Another text."]


def test_what_is_no_model_error_is_raised() -> None:
    with pytest.raises(ConfigurationError, match="stage 'echo' needs a chat client"):
        Echo("gpt")  # type: ignore[arg-type]
    chat = ScriptedChatClient(lambda _: ChatReply(""))
    assert Echo(chat).take_problems() == []


class Yes(BaseModel):
    yes: bool


class Asking(ChunkEnricher):
    """Asks for a structured answer."""

    name = "asking"

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        reply = await ask(self.chat, [ChatMessage("user", chunk.content)], Yes)
        return [replace(chunk, metadata={**chunk.metadata, "yes": reply.yes})]


def test_junk_is_not_kept_and_is_asked_about_again(tmp_path: Path) -> None:
    class Junk(Model):
        async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
            self.asked.append(messages[0].content)
            junk = self.fails and self.fails in messages[0].content
            return ChatReply("I'd rather not." if junk else '{"yes": true}')

    model = Junk(fails="number 3")
    with Workspace(tmp_path / "w.duckdb", embedder=HashEmbedder(), chat=model) as workspace:

        def again() -> IngestReport:
            model.asked = []
            pipeline = workspace.ingestion_pipeline().use(Asking(workspace.chat)).build()
            return nbrag.run(pipeline.run(RECORDS, workspace.collection("docs")))

        assert "1 chunk stored without it" in again().warnings[0]
        assert len(model.asked) == 9
        assert "1 chunk stored without it" in again().warnings[0]
        assert len(model.asked) == 2
        model.fails = ""
        assert again().counts == {"changed": 1, "unchanged": 7}
        assert len(model.asked) == 1
        assert again().counts == {"unchanged": 8}


def test_a_stage_sees_the_collection_first_and_its_settings_count() -> None:
    class Seeing(Echo):
        settings = "one"
        seen = 0

        async def prepare(self, collection: Collection) -> None:
            self.seen = (await collection.count())[0]

    with Workspace(embedder=HashEmbedder(), chat=Model()) as workspace:
        stage = Seeing(workspace.chat)
        pipeline = workspace.ingestion_pipeline().use(stage).build()
        target = workspace.collection("docs")
        nbrag.run(pipeline.run(RECORDS, target))
        assert nbrag.run(pipeline.run(RECORDS, target)).counts == {"unchanged": 8}
        assert stage.seen == 8
        stage.settings = "two"
        assert nbrag.run(pipeline.run(RECORDS, target)).counts == {"changed": 8}
