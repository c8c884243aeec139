"""Where documents would be cut, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbrag.errors import ConfigurationError
from nbrag.ingestion.chunk_preview import preview_chunks
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import HashEmbedder

EMBEDDER = HashEmbedder()


def no_chat() -> Any:
    raise ConfigurationError("no model")


CONTEXT = BuildContext(embedder=lambda: EMBEDDER, chat=no_chat)
SPEC = PipelineSpec("ingestion", "docs")


async def test_the_first_documents_are_cut_and_nothing_is_embedded() -> None:
    texts = [{"id": f"{n}", "text": f"page {n} is short"} for n in range(5)]
    made = await preview_chunks(SPEC, texts, CONTEXT)
    assert [document.uri for document in made.documents] == ["0", "1", "2"]
    only = made.documents[0].chunks[0]
    assert only.content == "page 0 is short"
    assert made.documents[0].tokens == tuple(EMBEDDER.count_tokens([only.embedding_text]))
    assert made.limit == EMBEDDER.max_tokens
    assert EMBEDDER.embedded == []


async def test_stages_on_chunks_are_left_out_and_no_model_is_needed() -> None:
    spec = SPEC.with_stage("chunk", max_tokens=16).with_stage("context")
    made = await preview_chunks(spec, [{"id": "a", "text": "word " * 60}], CONTEXT, documents=1)
    assert len(made.documents[0].chunks) > 3
    assert max(made.documents[0].tokens) <= 16


async def test_what_a_chunk_repeats_is_marked() -> None:
    text = " ".join(f"w{number}" for number in range(60))
    spec = SPEC.with_stage("chunk", strategy="fixed", max_tokens=20, overlap_tokens=5)
    made = await preview_chunks(spec, [{"id": "a", "text": text}], CONTEXT)
    first, second = made.documents[0].chunks[:2]
    assert first.span is not None
    assert second.span is not None
    repeated = first.span.end - second.span.start
    assert repeated > 0
    shown = made._repr_mimebundle_()["text/html"]
    assert f"its first {repeated} characters repeat the chunk before" in shown
    assert f">{text[second.span.start : first.span.end]}</u>" in shown


async def test_a_document_that_fails_is_a_line_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "bad.pdf").write_bytes(b"not one")
    (tmp_path / "good.md").write_text("# Fine\n\nWords & <b>more</b>.")
    made = await preview_chunks(SPEC, [tmp_path / "gone.md", tmp_path], CONTEXT)
    gone, bad, good = made.documents
    assert gone.error.startswith("SourceNotFound: ")
    assert bad.error
    assert not good.error
    bundle = made._repr_mimebundle_()
    assert "&lt;b&gt;more" in bundle["text/html"]
    assert "chunk 1: " in bundle["text/plain"]


async def test_much_is_cut_short_and_says_so() -> None:
    text = "\n\n".join(f"# Part {n}\n\n" + f"words{n} " * 400 for n in range(40))
    made = await preview_chunks(
        SPEC.with_stage("chunk", max_tokens=64), [{"id": "a", "text": text}], CONTEXT
    )
    shown = made._repr_mimebundle_()["text/html"]
    assert shown.count("<li") == 20
    assert f"{len(made.documents[0].chunks) - 20} more chunks are not shown." in shown


async def test_no_sources_are_told() -> None:
    with pytest.raises(ConfigurationError, match="no sources"):
        await preview_chunks(SPEC, [], CONTEXT)
