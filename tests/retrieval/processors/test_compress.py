"""Compression: the nearest sentences stay, in their order, within the limit, with their places."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbrag
from nbrag.models.chat.passages import word_spans
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.compress import CompressOptions, ContextualCompressor
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import HashEmbedder
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults, Span
from nbrag.workspace import Workspace

FILLER = "Cats sleep all day long. Dogs bark at night outside. "
LONG = f"{FILLER}The dump command makes a backup. {FILLER}Another backup is made by hand. {FILLER}"


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", [{"id": "a", "text": LONG}, {"id": "b", "text": "A short backup."}])
        yield opened


def compressed(text: str, words: int, embedder: Any = None) -> RetrievalChunk:
    stage = ContextualCompressor(
        CompressOptions(words=words), embedder=lambda: embedder or HashEmbedder()
    )
    chunk = RetrievalChunk("c", "d", text, 0.5, {}, None, Span(7, 7 + len(text)))
    results = RetrievalResults(RetrievalQuery("dump command backup"), (chunk,))
    changed: RetrievalResults = nbrag.run(stage.process(results, None))  # type: ignore[arg-type]
    (only,) = changed.chunks
    return only


def test_the_nearest_sentences_stay_in_the_order_of_the_text(workspace: Workspace) -> None:
    context = BuildContext(lambda: workspace.embedder, lambda: None)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    pipeline = builder.use_compression(words=12).build()
    question = "The backup made by the dump command"
    results = nbrag.run(pipeline.process(workspace["docs"], question))
    by_length = sorted(results, key=lambda found: -len(found.content))
    assert [found.content for found in by_length] == [
        "The dump command makes a backup. [...] Another backup is made by hand.",
        "A short backup.",
    ]
    long = by_length[0]
    text = nbrag.run(workspace["docs"].document_text(long.document_id))
    assert [text[start:end] for start, end in long.record["strip_spans"]] == [
        "The dump command makes a backup.",
        "Another backup is made by hand.",
    ]
    assert long.history[-1].stage == "compress"
    assert long.history[-1].score is None


@given(
    st.lists(st.sampled_from(["One two.", "A dump!", "Command " * 30 + ".", "\n\n", "文字。"])),
    st.integers(5, 60),
)
def test_what_is_left_is_short_and_stands_in_the_text(parts: list[str], words: int) -> None:
    text = " ".join(parts)
    left = compressed(text, words)
    if len(word_spans(text)) <= words:
        assert left.content == text
        return
    pieces = left.content.split(" [...] ")
    assert all(piece in text for piece in pieces)
    assert left.content == text or sum(len(word_spans(piece)) for piece in pieces) <= words


def test_a_sentence_longer_than_the_limit_stays_rather_than_nothing() -> None:
    text = "word " * 40
    assert compressed(text, 10).content == text


def test_nothing_is_embedded_when_nothing_is_long() -> None:
    class Never:
        async def embed_queries(self, texts: Sequence[str]) -> Any:
            raise AssertionError

    assert compressed("Short.", 10, Never()).content == "Short."


def test_sentences_are_embedded_as_documents_in_one_call() -> None:
    calls = []

    class Noting:
        async def embed_queries(self, texts: Sequence[str]) -> Any:
            calls.append(("query", list(texts)))
            return np.array([[1.0, 0.0]], np.float32)

        async def embed_documents(self, texts: Sequence[str]) -> Any:
            calls.append(("documents", list(texts)))
            return np.array([[i, 0] for i in range(len(texts))], np.float32)

    assert compressed("One two three. Four five six. Seven eight nine.", 6, Noting()).content == (
        "Four five six. Seven eight nine."
    )
    assert calls == [
        ("query", ["dump command backup"]),
        ("documents", ["One two three.", "Four five six.", "Seven eight nine."]),
    ]


@pytest.mark.parametrize(
    ("line", "method", "options"),
    [
        ("compress", "use_compression", {}),
        ("compress words=50", "use_compression", {"words": 50}),
        ("order", "use_order", {}),
    ],
)
def test_cell_builder_and_dict_are_the_same(
    workspace: Workspace, line: str, method: str, options: dict[str, Any]
) -> None:
    context = BuildContext(lambda: workspace.embedder, lambda: None)
    start = RetrievalPipelineBuilder(PipelineSpec("retrieval", "short"), context)
    built = getattr(start, method)(**options).spec
    cell = PipelineSpec.from_cell(f"%%rag_pipeline short\n{line}\n")
    data = PipelineSpec.from_dict(json.loads(json.dumps(built.to_dict())))
    assert built == cell == data
    assert PipelineSpec.from_cell(built.to_cell()) == built
    assert built.to_python() == cell.to_python() == data.to_python()
    assert f".{method}(" in built.to_python()
