"""What is embedded together with a chunk: document title, heading path, a table's header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbrag.ingestion.chunkers.cutting import best_cut
from nbrag.protocols import TokenCounter

__all__ = ["ContextBuilder", "SectionContext"]

_SEPARATOR = " > "
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class SectionContext:
    """The context of a section's chunks.

    Attributes
    ----------
    text
        One line, e.g. ``Handbook > Backups > EU region``; may be empty.
    shown
        Numbers of the headings whose words all stand in it.
    """

    text: str = ""
    shown: frozenset[int] = frozenset()


class ContextBuilder:
    """Makes contexts that leave at least half of a chunk's tokens to its body.

    Parameters
    ----------
    counter
        The embedder's tokenizer.
    max_tokens
        Most tokens of a chunk.
    title
        The document's title.
    """

    def __init__(self, counter: TokenCounter, max_tokens: int, title: str) -> None:
        self._counter = counter
        self._title = title
        self._special = counter.count_tokens([""])[0]
        self._most = max(1, (max_tokens - self._special) // 2 - 1)
        self._costs: dict[str, int] = {}
        self._body = max_tokens - self._special

    def room(self, context: str) -> int:
        """Return how many tokens a context leaves to the body."""
        return max(1, self._body - self._cost(context))

    def section(self, path: Sequence[tuple[int, str]]) -> SectionContext:
        """Return the context under a path of (heading number, heading title).

        When it is too long, headings are left out, the outer ones first, then the document's
        title, and at last the innermost heading is clipped.
        """
        parts = [(number, title) for number, title in path if title]
        same = bool(parts) and parts[0][1].casefold() == self._title.casefold()
        if self._title and not same:
            parts.insert(0, (-1, self._title))
        while len(parts) > 1 and self._cost(self._joined(parts)) > self._most:
            del parts[1 if len(parts) > 2 else 0]
        text = self._joined(parts)
        clipped = self._clipped(text, self._most)
        shown = frozenset(number for number, _ in parts) if clipped == text else frozenset[int]()
        return SectionContext(clipped, shown)

    def with_header(self, context: str, header: str) -> str:
        """Return the context with a table's header on a second line, clipped where needed."""
        if not header:
            return context
        left = self._most - (self._cost(context) if context else 0)
        clipped = self._clipped(header, left) if left > 1 else ""
        return "\n".join(part for part in (context, clipped) if part)

    @staticmethod
    def _joined(parts: Sequence[tuple[int, str]]) -> str:
        return _SEPARATOR.join(title for _, title in parts)

    def _cost(self, context: str) -> int:
        """Return how many tokens the context adds to a body."""
        if not context:
            return 0
        if context not in self._costs:
            with_body, body = self._counter.count_tokens([f"{context}\nx", "x"])
            self._costs[context] = with_body - body
        return self._costs[context]

    def _clipped(self, text: str, most: int) -> str:
        """Return the text, cut to at most ``most`` tokens."""
        text = text.strip()
        while text and self._cost(text) > most:
            spans = self._counter.token_spans(text)
            kept = min(most, len(spans)) - 1
            if kept < 1 or spans[kept][0] < 1 or len(text) < 2:
                return ""
            limit = min(spans[kept][0], len(text) - 1)
            shorter = text[: best_cut(text, 0, limit, "words")].rstrip(_ELLIPSIS + " ")
            if len(shorter) + 1 >= len(text):
                return ""
            text = shorter + _ELLIPSIS if shorter else ""
        return text
