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

__all__ = ["Draft", "checked_limits", "fitting", "to_chunks", "with_overlap"]

#: Less than this leaves no room for a text beside the special tokens and the context.
_SMALLEST_LIMIT = 16


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
    core_start
        Where it began before the overlap was added; None when none was.
    """

    start: int
    end: int
    context: str
    heading_path: tuple[str, ...]
    kind: CutKind
    run: int
    core_start: int | None = None

    def embedding_text(self, text: str) -> str:
        """Return the text whose tokens count."""
        content = text[self.start : self.end]
        return f"{self.context}\n{content}" if self.context else content


def checked_limits(max_tokens: int, overlap_tokens: int) -> None:
    """Refuse limits that leave no room.

    Raises
    ------
    ConfigurationError
        When ``max_tokens`` is below 16, or the overlap is negative or over half of it.
    """
    if max_tokens < _SMALLEST_LIMIT:
        raise ConfigurationError(
            f"max_tokens={max_tokens} leaves no room for text.",
            hint=f"at least {_SMALLEST_LIMIT}; 128 to 512 are usual",
        )
    if not 0 <= overlap_tokens <= max_tokens // 2:
        raise ConfigurationError(
            f"overlap_tokens={overlap_tokens} does not fit max_tokens={max_tokens}.",
            hint=f"between 0 and half of max_tokens ({max_tokens // 2})",
        )


def with_overlap(
    drafts: Sequence[Draft],
    text: str,
    tokens: TokenMap,
    overlap_tokens: int,
    room: Callable[[str], int],
) -> list[Draft]:
    """Let each draft begin with the last tokens of the one before, from a word's beginning on.

    Parameters
    ----------
    drafts, text, tokens
        The drafts in order, the whole text, and where its tokens stand.
    overlap_tokens
        How many tokens are wanted; fewer where the draft leaves no room for them.
    room
        Gives the tokens that a context leaves to the content.
    """
    extended: list[Draft] = []
    for index, draft in enumerate(drafts):
        before = drafts[index - 1] if index else None
        free = room(draft.context) - tokens.count(draft.start, draft.end)
        wanted = min(overlap_tokens, free)
        if before is not None and before.run == draft.run and wanted > 0:
            earliest = max(before.start, tokens.back(draft.start, wanted))
            start = _word_start(text, earliest, draft.start, before.start)
            extended.append(replace(draft, start=start, core_start=draft.start))
        else:
            extended.append(draft)
    return extended


def _word_start(text: str, earliest: int, latest: int, before: int) -> int:
    """Return the first beginning of a word from ``earliest`` on, splitting no cluster."""
    if earliest > before and not text[earliest - 1].isspace():
        near = range(earliest, (earliest + latest + 1) // 2)
        blank = next((i for i in near if text[i].isspace()), None)
        # A script without spaces, or one long word: a border between clusters will do.
        earliest = cluster_border(text, before, earliest) if blank is None else blank
    return trim(text, earliest, latest)[0] if text[earliest:latest].strip() else latest


def fitting(
    drafts: Sequence[Draft],
    text: str,
    tokens: TokenMap,
    counter: TokenCounter,
    *,
    max_tokens: int,
    max_characters: int,
) -> list[tuple[Draft, int]]:
    """Return the drafts with their exact token counts, none over ``max_tokens``.

    A tokenizer may count a stretch on its own differently than within the whole text; a draft
    that turns out too long loses its overlap, then is cut again with a smaller budget.

    Raises
    ------
    ConfigurationError
        When a single character with its context is over the limit.
    """
    done: list[tuple[Draft, int]] = []
    pending = [draft for draft in drafts if has_text(text[draft.start : draft.end])]
    while pending:
        counts = counter.count_tokens([draft.embedding_text(text) for draft in pending])
        again: list[Draft] = []
        for draft, count in zip(pending, counts, strict=True):
            if count <= max_tokens and draft.end - draft.start <= max_characters:
                done.append((draft, count))
            else:
                again += _smaller(draft, text, tokens, max(1, count - max_tokens), max_characters)
        pending = [draft for draft in again if has_text(text[draft.start : draft.end])]
    return sorted(done, key=lambda pair: (pair[0].core_start or pair[0].start, pair[0].end))


def _smaller(
    draft: Draft, text: str, tokens: TokenMap, excess: int, max_characters: int
) -> list[Draft]:
    if draft.core_start is not None:
        return [replace(draft, start=draft.core_start, core_start=None)]
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
        max_characters=max_characters,
    )
    if len(pieces) == 1:
        # A single cluster, or token positions that don't tell where to cut: halve it.
        cut = best_cut(text, start, start + (end - start) // 2, draft.kind)
        pieces = [trim(text, start, cut), trim(text, cut, end)]
    return [replace(draft, start=first, end=last) for first, last in pieces if first < last]


def to_chunks(document: Document, fitted: Sequence[tuple[Draft, int]]) -> list[Chunk]:
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
