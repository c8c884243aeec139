"""Token counters for the chunkers' tests: words, bytes, and the installed model's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from nbrag.models.embedding import default_embedder
from nbrag.protocols import TokenCounter


class WordCounter:
    """Words and signs, and two special tokens."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(re.findall(r"\w+|[^\w\s]", text)) + 2 for text in texts]

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


class ByteCounter:
    """Each byte is a token, white space too; a letter may have several with the same place."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.encode("utf-8", "replace")) for text in texts]

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return [
            (index, index + 1)
            for index, letter in enumerate(text)
            for _ in letter.encode("utf-8", "replace")
        ]


class EdgeCounter(WordCounter):
    """Counts a text on its own higher than within a longer one, as some tokenizers do."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [
            count + 3 + len(text) // 40
            for count, text in zip(super().count_tokens(texts), texts, strict=True)
        ]


@pytest.fixture(scope="session")
def model_counter() -> TokenCounter:
    """The tokenizer of the installed model."""
    return default_embedder()


@pytest.fixture(scope="session", params=["words", "bytes", "edges", "model"])
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    """Each kind of counter in turn."""
    if request.param == "model":
        return request.getfixturevalue("model_counter")
    return {"words": WordCounter, "bytes": ByteCounter, "edges": EdgeCounter}[request.param]()
