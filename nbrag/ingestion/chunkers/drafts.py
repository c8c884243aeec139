"""Stretches that are to become chunks: exact token counts, overlap, identities."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nbrag.errors import ConfigurationError
from nbrag.ingestion.chunkers.cutting import (
    CutKind,
    TokenMap,
    best_cut,
    cluster_border,
    cut_stretch,
    trim,
)
from nbrag.ingestion.readers.assembly import has_text
from nbrag.protocols import TokenCounter
from nbrag.types import Block, Chunk, Document, Span, stable_hash

__all__ = ["Draft", "Fitted", "Limits", "fitting", "to_chunks", "with_overlap"]

#: Less than this leaves no room for a text beside the special tokens and the context.
_SMALLEST_LIMIT = 16
#: Characters that a chunk may have for each token of its limit. English has about 4.5; only text
#: that a tokenizer swallows whole (a "word" of 200,000 letters is one unknown token) meets it.
_CHARACTERS_PER_TOKEN = 12


@dataclass(frozen=True, slots=True)
class Draft:
    """A stretch of a document that is to become a chunk.

    Attributes
    ----------
    start, end
        Its borders.
    context
        Text embedded with it.
    heading_path
        Titles of the headings above it.
    kind
        Where it is cut when it turns out too long.
    run
        Drafts of the same number follow each other without a gap; overlap stays within.
    """

    start: int
    end: int
    context: str
    heading_path: tuple[str, ...]
    kind: CutKind
    run: int

    def embedding_text(self, text: str) -> str:
        """Return the text whose tokens count."""
        content = text[self.start : self.end]
        return f"{self.context}\n{content}" if self.context else content


Fitted = tuple[Draft, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long chunks may be.

    Attributes
    ----------
    max_tokens
        Most tokens of a chunk: special tokens, context and content.
    overlap_tokens
        Tokens to repeat from the chunk before.

    Raises
    ------
    ConfigurationError
        When ``max_tokens`` is below 16, or the overlap is negative or over half of it.
    """

    max_tokens: int
    overlap_tokens: int

    def __post_init__(self) -> None:
        """Refuse limits that leave no room."""
        if self.max_tokens < _SMALLEST_LIMIT:
            raise ConfigurationError(
                f"max_tokens={self.max_tokens} leaves no room for text.",
                hint=f"at least {_SMALLEST_LIMIT}; 128 to 512 are usual",
            )
        if not 0 <= self.overlap_tokens <= self.max_tokens // 2:
            raise ConfigurationError(
                f"overlap_tokens={self.overlap_tokens} does not fit max_tokens={self.max_tokens}.",
                hint=f"between 0 and half of max_tokens ({self.max_tokens // 2})",
            )

    @property
    def max_characters(self) -> int:
        """Most characters of a chunk, whatever its tokens are."""
        return self.max_tokens * _CHARACTERS_PER_TOKEN

    def hold(self, draft: Draft, count: int) -> bool:
        """Tell whether a draft of ``count`` tokens is within the limits."""
        return count <= self.max_tokens and draft.end - draft.start <= self.max_characters


def fitting(
    drafts: Sequence[Draft],
    text: str,
    tokens: TokenMap,
    counter: TokenCounter,
    limits: Limits,
) -> list[Fitted]:
    """Return the drafts with their exact token counts, in order, none over the limits.

    A tokenizer may count a stretch on its own differently than within the whole text; a draft
    that turns out too long is cut again with a smaller budget.

    Raises
    ------
    ConfigurationError
        When a single character with its context is over the limit.
    """
    done: list[Fitted] = []
    pending = list(drafts)
    while pending := [d for d in pending if has_text(text[d.start : d.end])]:
        counts = counter.count_tokens([draft.embedding_text(text) for draft in pending])
        again: list[Draft] = []
        for draft, count in zip(pending, counts, strict=True):
            if limits.hold(draft, count):
                done.append((draft, count))
            else:
                excess = max(1, count - limits.max_tokens)
                again += _smaller(draft, text, tokens, excess, limits)
        pending = again
    return sorted(done, key=lambda pair: pair[0].start)


def _smaller(draft: Draft, text: str, tokens: TokenMap, excess: int, limits: Limits) -> list[Draft]:
    start, end = draft.start, draft.end
    if end - start == 1:
        raise ConfigurationError(
            f"{text[start:end]!r} with its context has {excess} tokens too many.",
            hint="raise max_tokens",
        )
    counted = tokens.count(start, end)
    budget = max(counted - excess, counted // 2)
    pieces = cut_stretch(
        text,
        start,
        end,
        tokens,
        kind=draft.kind,
        budgets=(budget, budget),
        max_characters=limits.max_characters,
    )
    if len(pieces) == 1:
        # A single cluster, or token positions that don't tell where to cut: halve it.
        cut = best_cut(text, start, start + (end - start) // 2, draft.kind)
        pieces = [trim(text, start, cut), trim(text, cut, end)]
    return [replace(draft, start=first, end=last) for first, last in pieces if first < last]


def with_overlap(
    fitted: Sequence[Fitted],
    text: str,
    tokens: TokenMap,
    counter: TokenCounter,
    limits: Limits,
    *,
    room: Callable[[str], int],
) -> list[Fitted]:
    """Let each draft begin with the last tokens of the one before, from a word's beginning on.

    Parameters
    ----------
    fitted, text, tokens
        The drafts in order, the whole text, and where its tokens stand.
    counter
        Counts the longer drafts exactly; one that would be too long keeps its old beginning.
    limits
        How many tokens are wanted; fewer where the draft leaves no room for them.
    room
        Gives the tokens that a context leaves to the content.
    """
    if not limits.overlap_tokens:
        return list(fitted)
    longer: dict[int, Draft] = {}
    for index in range(1, len(fitted)):
        before, draft = fitted[index - 1][0], fitted[index][0]
        free = room(draft.context) - tokens.count(draft.start, draft.end)
        wanted = min(limits.overlap_tokens, free)
        if before.run == draft.run and wanted > 0:
            earliest = max(before.start, tokens.back(draft.start, wanted))
            start = _word_start(text, earliest, draft.start, before.start)
            longer[index] = replace(draft, start=start)
    counts = counter.count_tokens([draft.embedding_text(text) for draft in longer.values()])
    result = list(fitted)
    for (index, draft), count in zip(longer.items(), counts, strict=True):
        if limits.hold(draft, count):
            result[index] = (draft, count)
    return result


def _word_start(text: str, earliest: int, latest: int, before: int) -> int:
    """Return the first beginning of a word from ``earliest`` on, splitting no cluster."""
    if earliest > before and not text[earliest - 1].isspace():
        near = range(earliest, (earliest + latest + 1) // 2)
        # In a script without spaces, or within one long word, any border will do.
        earliest = next((i for i in near if text[i].isspace()), earliest)
    earliest = cluster_border(text, before, earliest)
    return trim(text, earliest, latest)[0] if text[earliest:latest].strip() else latest


def to_chunks(document: Document, fitted: Sequence[Fitted]) -> list[Chunk]:
    """Return the chunks with their identities.

    An id is a hash of the URI, the embedded text and a number among equal ones, so that it does
    not change when another part of the document does.
    """
    seen: Counter[str] = Counter()
    starts = [block.start for block in document.blocks]
    chunks = []
    for ordinal, (draft, count) in enumerate(fitted):
        embedded = draft.embedding_text(document.text)
        occurrence = seen[embedded]
        seen[embedded] += 1
        chunks.append(
            Chunk(
                id=stable_hash(document.uri, embedded, str(occurrence)),
                document_id=document.id,
                content=document.text[draft.start : draft.end],
                ordinal=ordinal,
                span=Span(draft.start, draft.end, _page(document.blocks, starts, draft.start)),
                heading_path=draft.heading_path,
                context=draft.context,
                token_count=count,
            )
        )
    return chunks


def _page(blocks: Sequence[Block], starts: Sequence[int], offset: int) -> int | None:
    """Return the page of the block that the offset lies in (or that begins right behind it)."""
    index = max(0, bisect_right(starts, offset) - 1)
    return blocks[index].page if blocks else None
