"""A model's own tokenizer, used two ways: counting whole texts, and encoding cut ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbrag.errors import ModelInvalid
from nbrag.models.graph_files import is_pointer

__all__ = ["TextTokenizer"]

#: Halves of surrogate pairs, which can't be written as UTF-8; one replacement for each keeps
#: all offsets.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def _clean(text: str) -> str:
    return _LONE_SURROGATES.sub("\ufffd", text)


def _lower_each(text: str) -> str:
    """Lower the case where it keeps the length, so that offsets still hold."""
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


class TextTokenizer:
    """A ``tokenizer.json``; safe to use from several threads.

    Parameters
    ----------
    path
        The ``tokenizer.json``.
    max_tokens
        Where :meth:`encode` cuts, special tokens included.
    lower_case
        Whether texts are lowered first (``do_lower_case`` in a model's own files).

    Raises
    ------
    ModelInvalid
        When the file is not a tokenizer.
    """

    def __init__(self, path: Path, *, max_tokens: int, lower_case: bool = False) -> None:
        from tokenizers import Tokenizer

        try:
            self._whole: Any = Tokenizer.from_file(str(path))
            cutting: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            if path.is_file() and is_pointer(path):
                raise ModelInvalid(
                    f"{path} can't be read as a tokenizer: it is a Git LFS pointer, not the file "
                    "itself.",
                    hint="git lfs pull",
                ) from None
            raise ModelInvalid(
                f"{path} can't be read as a tokenizer: {error}", hint="get the file again"
            ) from error
        # A stored tokenizer may pad and cut by itself, even at another length than the model's.
        padding = self._whole.padding
        for tokenizer in (self._whole, cutting):
            tokenizer.no_padding()
            tokenizer.no_truncation()
        cutting.enable_truncation(max_length=max_tokens)
        self._cutting = cutting
        self._lower_case = lower_case
        #: Id that fills up shorter texts of a batch; the attention mask hides it.
        self.pad_id = int(padding["pad_id"]) if padding else 0

    def _prepared(self, texts: Sequence[str]) -> list[str]:
        cleaned = [_clean(text) for text in texts]
        return [_lower_each(text) for text in cleaned] if self._lower_case else cleaned

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each whole text, special tokens included."""
        # The variant without offsets is twice as fast.
        return [len(found) for found in self._whole.encode_batch_fast(self._prepared(texts))]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return (start, end) of each token of the whole text, special tokens left out."""
        # As a batch of one, because a single encode call keeps all other threads waiting.
        (found,) = self._whole.encode_batch(self._prepared([text]), add_special_tokens=False)
        return list(found.offsets)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids, special ones included, cut at ``max_tokens``; never an empty list."""
        found = self._cutting.encode_batch_fast(self._prepared(texts))
        return [encoding.ids or [self.pad_id] for encoding in found]

    def encode_whole(self, text: str) -> tuple[list[int], list[tuple[int, int]], list[bool]]:
        """Return a whole text's token ids with special ones, their spans, and which are special.

        Special tokens have the span (0, 0).
        """
        (found,) = self._whole.encode_batch(self._prepared([text]))
        return found.ids, list(found.offsets), [bool(flag) for flag in found.special_tokens_mask]

    def prefix_length(self, prefix: str) -> int:
        """Return how many tokens a prefix takes at a text's beginning, special ones included."""
        _, _, special = self.encode_whole(prefix)
        while special and special[-1]:
            special.pop()
        return len(special)
