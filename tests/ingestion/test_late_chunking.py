"""`chunk late=true`: vectors depend on the whole document, and are never taken from another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nbrag import Workspace
from nbrag.errors import ConfigurationError, EmbedderMismatch
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder
from nbrag.types import EmbedderIdentity

SAME = "The limit is thirty days, and nobody may change it."
FIRST = f"# Backups\n\nAll about backups and their copies.\n\n## Limit\n\n{SAME}\n"
SECOND = f"# Invoices\n\nAll about invoices and payment.\n\n## Limit\n\n{SAME}\n"
LATE = PipelineSpec.from_body("ingestion", "chunk late=true max_tokens=32")
PLAIN = PipelineSpec.from_body("ingestion", "chunk max_tokens=32")


class SpanHashEmbedder(HashEmbedder):
    """Vectors of stretches that depend on the whole text and the place in it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @property
    def identity(self) -> EmbedderIdentity:
        return replace(super().identity, pooling="mean")

    async def embed_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> Any:
        self.seen.append(text)
        return await self.embed_documents([f"{text} {start} {end}" for start, end in spans])


@pytest.fixture
def embedder() -> SpanHashEmbedder:
    return SpanHashEmbedder()


@pytest.fixture
def workspace(embedder: SpanHashEmbedder):
    with Workspace(embedder=embedder) as opened:
        yield opened


def records(*texts: str) -> list[dict[str, str]]:
    return [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)]


def vectors(workspace: Workspace, content: str) -> np.ndarray:
    query = "SELECT embedding FROM docs.chunks WHERE content LIKE ? ORDER BY document_id, ordinal"
    rows = workspace.sql(query, [f"%{content}%"]).fetchall()
    return np.array([row[0] for row in rows], dtype=np.float32)


def test_the_same_text_has_another_vector_in_another_document(workspace, embedder):
    workspace.ingest("docs", records(FIRST, SECOND), spec=LATE)
    first, second = vectors(workspace, "thirty days")
    assert abs(first - second).max() > 1e-3
    assert embedder.seen == [FIRST, SECOND]
    assert workspace["docs"].identity.pooling.startswith("late-")


def test_the_same_text_twice_in_one_document_has_two_vectors(workspace):
    text = f"# A\n\n## Limit\n\n{SAME}\n\n# A\n\n## Limit\n\n{SAME}\n"
    report = workspace.ingest("docs", records(text), spec=LATE)
    assert not report.failed
    first, second = vectors(workspace, "thirty days")
    assert abs(first - second).max() > 1e-3


def test_plain_vectors_are_shared_as_before(workspace, embedder):
    workspace.ingest("docs", records(FIRST, SECOND), spec=PLAIN)
    assert embedder.seen == []
    assert not workspace["docs"].identity.pooling.startswith("late-")


def test_a_changed_document_is_embedded_anew_and_others_are_not(workspace, embedder):
    workspace.ingest("docs", records(FIRST, SECOND), spec=LATE)
    before = vectors(workspace, "thirty days")
    embedder.seen.clear()
    report = workspace.ingest("docs", records(FIRST, SECOND), spec=LATE)
    assert [row.outcome for row in report] == ["unchanged", "unchanged"]
    assert embedder.seen == []
    changed = FIRST.replace("copies", "snapshots")
    workspace.ingest("docs", records(changed, SECOND), spec=LATE)
    assert embedder.seen == [changed]
    after = vectors(workspace, "thirty days")
    # The passage's own text is the same, but what stands around it is not.
    moved = [abs(old - new).max() > 1e-3 for old, new in zip(before, after, strict=True)]
    assert sorted(moved) == [False, True]


@pytest.mark.parametrize(("made", "then"), [(LATE, PLAIN), (PLAIN, LATE)])
def test_the_two_kinds_of_vectors_are_never_mixed(workspace, made, then):
    workspace.ingest("docs", records(FIRST), spec=made)
    how = "with" if made is LATE else "without"
    with pytest.raises(EmbedderMismatch, match=f"made {how} late chunking") as caught:
        workspace.ingest("docs", records(FIRST, SECOND), spec=then)
    assert "chunk late=true" in caught.value.hint


def test_a_late_collection_is_searched_as_any_other(workspace):
    workspace.ingest("docs", records(FIRST, SECOND), spec=LATE)
    results = workspace.search("How long is the limit for invoices?", collection="docs")
    assert len(results) > 1
    assert not results.warnings


def test_what_stands_in_no_document_is_embedded_by_itself(workspace, embedder):
    import asyncio

    from nbrag.ingestion.embedding import VectorBatcher
    from nbrag.models.embedding import LateEmbedder
    from nbrag.types import Chunk, ChunkKind, Document, Span

    class NoSession:
        """Knows nothing, and must not be asked for vectors."""

    document = Document("d", "one two three four")
    chunks = [
        Chunk("a", document.id, "one two", span=Span(0, 7), token_count=4),
        Chunk("q", document.id, "why two?", kind=ChunkKind.HYPOTHETICAL_QUERY, parent_id="a"),
    ]
    batcher = VectorBatcher(LateEmbedder(embedder), NoSession(), batch_tokens=4)
    (ready,) = asyncio.run(batcher.add(document, chunks))
    (alone,) = asyncio.run(embedder.embed_documents(["why two?"]))
    np.testing.assert_array_equal(ready.vectors["q"], alone)
    assert ready.complete
    assert ready.embedded == batcher.embedded == 2


def test_an_embedder_without_token_vectors_is_refused_before_anything_is_read():
    with Workspace(embedder=HashEmbedder()) as workspace:
        with pytest.raises(ConfigurationError, match="vectors of tokens"):
            workspace.ingest("docs", records(FIRST), spec=LATE)
        assert workspace.collections() == []


@pytest.mark.model
def test_the_built_in_model_end_to_end(tmp_path):
    with Workspace(tmp_path / "late.duckdb") as workspace:
        workspace.ingest("docs", records(FIRST, SECOND), spec=LATE)
        found = workspace.search("How long are backups limited to?", collection="docs", top_k=6)
        limits = [chunk for chunk in found if "thirty" in chunk.content]
        assert [chunk.source for chunk in limits] == ["d0", "d1"]
    with Workspace(tmp_path / "late.duckdb") as workspace:
        assert workspace["docs"].identity.pooling == "late-mean"
        assert len(workspace.search("limits", collection="docs")) > 1
