"""What an ingestion would cost, without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrag.errors import ConfigurationError
from nbrag.ingestion.enriching import ChunkEnricher
from nbrag.models.chat import TokenPrice
from nbrag.spec import PipelineSpec, StageDefinition, StageOptions, register_stage
from nbrag.spec.stages import unregister_stage
from nbrag.testing import HashEmbedder
from nbrag.types import ChatMessage, ChatReply, Chunk
from nbrag.workspace import Workspace

RECORDS = [{"id": f"d{n}", "text": f"Text number {n}."} for n in range(5)]


class Echo(ChunkEnricher):
    name = "echo"

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        reply = await self.chat.complete([ChatMessage("user", chunk.content)])
        return [replace(chunk, metadata={"echo": reply.text})]


class Model:
    model = "counting/letters"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        self.calls += 1
        return ChatReply("yes")

    async def price(self) -> TokenPrice:
        return TokenPrice(0.001, 0.002)


@pytest.fixture(autouse=True)
def _stage() -> Any:
    register_stage(
        StageDefinition(
            name="echo",
            kind="ingestion",
            role="chunk",
            options=StageOptions,
            build=lambda _options, context: Echo(context.chat()),
            method="use_echo",
            summary="For these tests.",
        )
    )
    yield
    unregister_stage("ingestion", "echo")


def spec() -> PipelineSpec:
    return PipelineSpec("ingestion", "docs").with_stage("echo")


def test_it_counts_and_does_nothing(tmp_path: Path) -> None:
    model = Model()
    with Workspace(tmp_path / "w.duckdb", embedder=HashEmbedder(), chat=model) as workspace:
        first = workspace.preview("docs", RECORDS, spec=spec())
        assert (first.counts.documents, first.counts.chunks, first.calls) == (5, 5, 5)
        [stage] = first.stages
        assert (stage.stage, stage.calls, stage.kept) == ("echo", 5, 0)
        assert stage.cost == pytest.approx(stage.input_tokens * 0.001)
        assert "5 calls of the chat model" in first._repr_mimebundle_()["text/plain"]
        assert model.calls == 0
        assert workspace.collections() == []
        assert not len(workspace.ledger())
        workspace.ingest("docs", RECORDS[:3], spec=spec())
        assert model.calls == 3
        rest = workspace.preview("docs", RECORDS, spec=spec())
        assert (rest.counts.documents, rest.counts.outcomes, rest.calls) == (2, {"unchanged": 3}, 2)
        # Text that was asked about before is asked about for nothing.
        again = workspace.preview("other", RECORDS, spec=replace(spec(), name="other"))
        assert (again.calls, again.stages[0].kept) == (2, 3)
        assert model.calls == 3


def test_a_document_that_is_empty_now_is_counted_not_deleted(tmp_path: Path) -> None:
    with Workspace(embedder=HashEmbedder(), chat=Model()) as workspace:
        file = tmp_path / "a.md"
        file.write_text("Words.")
        workspace.ingest("docs", str(file), spec=spec())
        file.write_text("")
        assert workspace.preview("docs", str(file), spec=spec()).counts.outcomes == {"removed": 1}
        assert len(workspace.database.execute("SELECT * FROM docs.documents")) == 1


def test_without_stages_no_model_is_needed_and_with_them_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NBRAG_MODEL", raising=False)
    with Workspace(embedder=HashEmbedder()) as workspace:
        plain = workspace.preview("docs", RECORDS)
        assert (plain.calls, plain.stages, plain.counts.chunks) == (0, (), 5)
        with pytest.raises(ConfigurationError, match="none is configured"):
            workspace.preview("docs", RECORDS, spec=spec())
