"""A plain chunker: windows of tokens, whatever the structure."""

from __future__ import annotations

from dataclasses import replace

from nbrag.ingestion.chunkers.cutting import TokenMap, cut_stretch
from nbrag.ingestion.chunkers.drafts import (
    Draft,
    Limits,
    fitting,
    to_chunks,
    with_overlap,
)
from nbrag.ingestion.readers.text import paragraph_blocks
from nbrag.protocols import TokenCounter
from nbrag.types import Chunk, Document

__all__ = ["FixedChunker"]


class FixedChunker:
    """Cuts a text into windows of a number of tokens, at the end of a word where there is one.

    Nothing is embedded beside the text itself. It is the baseline to compare with.

    Parameters
    ----------
    counter
        The embedder's tokenizer.
    max_tokens
        Most tokens of a chunk, special tokens included. At least 16.
    overlap_tokens
        Tokens repeated from the chunk before, at most half of ``max_tokens``.

    Raises
    ------
    ConfigurationError
        When the limits leave no room for text.
    """

    def __init__(
        self, counter: TokenCounter, max_tokens: int = 256, overlap_tokens: int = 0
    ) -> None:
        self._limits = Limits(max_tokens, overlap_tokens)
        self._counter = counter

    @property
    def settings(self) -> dict[str, int]:
        """What decides about the chunks, for telling whether a document must be cut again."""
        return {
            "max_tokens": self._limits.max_tokens,
            "overlap_tokens": self._limits.overlap_tokens,
        }

    def chunk(self, document: Document) -> list[Chunk]:
        """Return the chunks in order; a document without visible text has none."""
        blocks = document.blocks or tuple(paragraph_blocks(document.text))
        if not blocks:
            return []
        document = replace(document, blocks=blocks)
        text = document.text
        tokens = TokenMap(self._counter, text)
        special = self._counter.count_tokens([""])[0]
        room = max(1, self._limits.max_tokens - special)
        budget = max(1, room - self._limits.overlap_tokens)
        pieces = cut_stretch(
            text,
            blocks[0].start,
            blocks[-1].end,
            tokens,
            kind="words",
            budgets=(budget, budget),
            max_characters=self._limits.max_characters,
        )
        drafts = [Draft(start, end, "", (), "words", 0) for start, end in pieces]
        fitted = fitting(drafts, text, tokens, self._counter, self._limits)
        overlapping = with_overlap(
            fitted, text, tokens, self._counter, self._limits, room=lambda _: room
        )
        return to_chunks(document, overlapping)
