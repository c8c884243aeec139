"""Windows of tokens."""

from __future__ import annotations

import itertools

from nbrag.ingestion.chunkers import FixedChunker
from nbrag.ingestion.readers import MarkdownReader
from nbrag.types import Document


def test_windows_are_full_and_overlap(model_counter):
    text = " ".join(f"word{n}" for n in range(500))
    chunks = FixedChunker(model_counter, 64, 16).chunk(Document("a", text))
    assert all(56 <= chunk.token_count <= 64 for chunk in chunks[1:-1])
    for before, after in itertools.pairwise(chunks):
        assert before.span.start < after.span.start < before.span.end


def test_structure_does_not_matter_but_front_matter_is_left_out(model_counter):
    data = b"---\ntags: [a]\n---\n# A\n\none\n\n# B\n\ntwo\n"
    document = MarkdownReader().read(data, uri="a.md", name="a.md")
    (chunk,) = FixedChunker(model_counter).chunk(document)
    assert chunk.content == "# A\n\none\n\n# B\n\ntwo"
    assert chunk.context == ""


def test_nothing_gives_nothing(model_counter):
    assert FixedChunker(model_counter).chunk(Document("a", " \n\u200b")) == []
