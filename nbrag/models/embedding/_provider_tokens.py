"""Counting tokens of models whose tokenizer is not on this machine."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Protocol

__all__ = ["ByteLevelTokens", "EstimatedTokens", "SpanFinder"]

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_PIECE = re.compile(r"[A-Za-z]{1,4}|\S")


class SpanFinder(Protocol):
    """Finds a text's tokens."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of each token."""
        ...


class EstimatedTokens:
    """A count that is rather too high than too low, for tokenizers that aren't at hand.

    Up to four ASCII letters are one token, every digit and sign is one, and any other character
    is one token for each byte of its UTF-8 form but the first (an accented or Cyrillic letter 1,
    a Han or Kana character 2, an emoji 3). Tokens of English come out about 1.4 times as many as
    with a real tokenizer, so texts are cut early rather than refused.
    """

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) of each estimated token; a character may have several."""
        found: list[tuple[int, int]] = []
        for match in _PIECE.finditer(text):
            character = match.group()
            extra = 0 if character.isascii() else len(character.encode("utf-8", "replace")) - 2
            found.extend([match.span()] * (1 + max(extra, 0)))
        return found


class ByteLevelTokens:
    """OpenAI's ``cl100k_base`` tokens, from the copy that LiteLLM carries.

    Parameters
    ----------
    encoding
        A tiktoken encoding.
    """

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) of each token; a character may have several."""
        cleaned = _LONE_SURROGATES.sub("\ufffd", text)
        tokens = self._encoding.encode_ordinary(cleaned)
        _, starts = self._encoding.decode_with_offsets(tokens)
        bounds = pairwise([*starts, len(cleaned)])
        return [(start, max(end, start + 1)) for start, end in bounds]
