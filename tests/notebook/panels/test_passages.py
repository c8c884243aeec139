"""A passage in its document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nbrag.errors import DocumentNotFound
from nbrag.notebook.panels.passages import passage_html, read_passage
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace

TEXT = "\n\n".join(
    f"# Part {n}\n\nFact {n} is <b>bold</b>. " + "More words. " * 20 for n in range(9)
)


@pytest.fixture
def long() -> Any:
    with Workspace(embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", [{"id": "long.md", "text": TEXT}])
        yield workspace


async def test_surroundings_grow_to_the_whole_document(long: Workspace) -> None:
    collection = long["docs"]
    chunk = long.search("Fact 4", collection="docs", top_k=1)[0]
    assert chunk.span is not None
    passage = await read_passage(collection, chunk, 100)
    assert passage.text == TEXT[chunk.span.start : chunk.span.end]
    assert passage.before == TEXT[chunk.span.start - 100 : chunk.span.start]
    assert passage.after == TEXT[chunk.span.end : chunk.span.end + 100]
    assert passage.more
    whole = await read_passage(collection, chunk, len(TEXT))
    assert whole.before + whole.text + whole.after == TEXT
    assert not whole.more
    edge = await read_passage(collection, chunk, len(TEXT) - chunk.span.end)
    assert not edge.more_after


async def test_the_passage_is_marked_and_everything_escaped(long: Workspace) -> None:
    chunk = long.search("Fact 4", collection="docs", top_k=1)[0]
    shown = passage_html(await read_passage(long["docs"], chunk, 50))
    assert "<b>" not in shown
    marked = shown.partition("<mark")[2].partition("</mark>")[0]
    assert "&lt;b&gt;bold" in marked
    assert 'aria-label="Passage in its document"' in shown
    assert "[…]" in shown


async def test_a_text_of_no_document_is_shown_alone(long: Workspace) -> None:
    chunk = long.search("Fact 4", collection="docs", top_k=1)[0]
    passage = await read_passage(long["docs"], replace(chunk, span=None))
    assert (passage.text, passage.more) == (chunk.content, False)
    assert "stands in no document" in passage_html(passage)


async def test_a_document_that_is_gone(long: Workspace) -> None:
    chunk = long.search("Fact 4", collection="docs", top_k=1)[0]
    await long["docs"].delete_documents([chunk.document_id])
    with pytest.raises(DocumentNotFound):
        await read_passage(long["docs"], chunk)
