"""The default chunker: by headings, then blocks, then paragraphs, sentences and words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from nbrag.errors import ConfigurationError
from nbrag.ingestion.chunkers.context import ContextBuilder, SectionContext
from nbrag.ingestion.chunkers.cutting import (
    CutKind,
    TokenMap,
    cut_stretch,
    trim,
)
from nbrag.ingestion.chunkers.drafts import (
    Draft,
    Limits,
    fitting,
    to_chunks,
    with_overlap,
)
from nbrag.ingestion.readers.text import paragraph_blocks
from nbrag.protocols import TokenCounter
from nbrag.types import Block, Chunk, Document

__all__ = ["StructureChunker"]

_CUTS: dict[str, CutKind] = {"code": "lines", "table": "lines", "list": "lines", "row": "rows"}


@dataclass(slots=True)
class _Section:
    """A heading and the blocks up to the next one."""

    path: tuple[tuple[int, str], ...] = ()
    heading: Block | None = None
    body: list[Block] = field(default_factory=list)
    context: SectionContext = field(default_factory=SectionContext)


class StructureChunker:
    """Packs the blocks under one heading into chunks up to a number of tokens.

    A block that is too long is cut at the end of a paragraph, else of a sentence, else of a
    line, else of a word, else between grapheme clusters; code, lists and tables are cut between
    lines first, and each later piece of a table carries the table's header in its context. The
    document's title and the heading path are the context of each chunk; a heading's own line is
    content only where no chunk has it in its context. A record of a table file stands alone
    unless it is tiny. Nothing of the text is lost, and every chunk is a stretch of it.

    Parameters
    ----------
    counter
        The embedder's tokenizer.
    max_tokens
        Most tokens of a chunk: special tokens, context and content. At least 16.
    overlap_tokens
        Tokens repeated from the chunk before within a section, at most half of ``max_tokens``.
    min_tokens
        A last piece with fewer is joined to the one before it where it fits; None means an
        eighth of ``max_tokens``, 32 at most.
    include_context
        Whether title and heading path are embedded; without them headings are content.

    Raises
    ------
    ConfigurationError
        When the limits leave no room for text.
    """

    def __init__(
        self,
        counter: TokenCounter,
        max_tokens: int = 256,
        overlap_tokens: int = 0,
        *,
        min_tokens: int | None = None,
        include_context: bool = True,
    ) -> None:
        self._limits = Limits(max_tokens, overlap_tokens)
        least = min(32, max_tokens // 8) if min_tokens is None else min_tokens
        if not 0 <= least <= max_tokens // 4:
            raise ConfigurationError(
                f"min_tokens={least} does not fit max_tokens={max_tokens}.",
                hint=f"between 0 and a quarter of max_tokens ({max_tokens // 4})",
            )
        self._counter = counter
        self._min_tokens = least
        self._include_context = include_context

    @property
    def settings(self) -> dict[str, int | bool]:
        """What decides about the chunks, for telling whether a document must be cut again."""
        return {
            "max_tokens": self._limits.max_tokens,
            "overlap_tokens": self._limits.overlap_tokens,
            "min_tokens": self._min_tokens,
            "include_context": self._include_context,
        }

    def chunk(self, document: Document) -> list[Chunk]:
        """Return the chunks in order; a document without visible text has none."""
        if not document.blocks:
            document = replace(document, blocks=tuple(paragraph_blocks(document.text)))
        tokens = TokenMap(self._counter, document.text)
        contexts = ContextBuilder(self._counter, self._limits.max_tokens, document.title)
        sections = self._sections(document, contexts)
        packer = _Packer(document.text, tokens, contexts, self._limits, self._min_tokens)
        drafts = [draft for section in sections for draft in packer.pack(section)]
        fitted = fitting(drafts, document.text, tokens, self._counter, self._limits)
        overlapping = with_overlap(
            fitted, document.text, tokens, self._counter, self._limits, room=contexts.room
        )
        return to_chunks(document, overlapping)

    def _sections(self, document: Document, contexts: ContextBuilder) -> list[_Section]:
        """Return the sections; headings that no context shows are put into the bodies."""
        sections = list(_split(document.blocks))
        shown: set[int] = set()
        for section in sections:
            if self._include_context:
                section.context = contexts.section(section.path)
            if section.body:
                shown |= section.context.shown
        for section in sections:
            if section.heading is not None and section.path[-1][0] not in shown:
                section.body.insert(0, section.heading)
        return sections


def _split(blocks: Sequence[Block]) -> Iterator[_Section]:
    section = _Section()
    levels: list[int] = []
    for number, block in enumerate(blocks):
        if block.kind != "heading":
            section.body.append(block)
            continue
        yield section
        while levels and levels[-1] >= block.level:
            levels.pop()
        path = (*section.path[: len(levels)], (number, block.title))
        levels.append(block.level)
        section = _Section(path, block)
    yield section


class _Packer:
    """Joins and cuts the blocks of one section after the other."""

    def __init__(
        self,
        text: str,
        tokens: TokenMap,
        contexts: ContextBuilder,
        limits: Limits,
        min_tokens: int,
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._contexts = contexts
        self._limits = limits
        self._min_tokens = min_tokens
        self._run = 0

    def pack(self, section: _Section) -> list[Draft]:
        """Return the drafts of a section."""
        drafts: list[Draft] = []
        self._run += 1
        for block in section.body:
            start, end = trim(self._text, block.start, block.end)
            if start == end:
                continue
            last = drafts[-1] if drafts else None
            if last is not None and self._text[last.end : start].strip():
                # Something that is no text stands between (a comment, a script).
                self._run += 1
            first = Draft(
                start,
                end,
                section.context.text,
                tuple(title for _, title in section.path if title),
                _CUTS.get(block.kind, "prose"),
                self._run,
            )
            if last is not None and self._joins(last, first):
                drafts[-1] = replace(last, end=end)
                continue
            if self._fits(first):
                drafts.append(first)
                continue
            leads = last is not None and last.run == first.run and first.kind != "rows"
            if leads and self._is_tiny(drafts[-1]):
                # A line that leads to a long block goes with its beginning.
                first = replace(first, start=drafts.pop().start)
            drafts += self._cut(first, block.header)
        return self._without_tiny_end(drafts)

    def _room(self, context: str) -> int:
        room = self._contexts.room(context)
        return room - min(self._limits.overlap_tokens, room // 2)

    def _fits(self, draft: Draft) -> bool:
        return draft.end - draft.start <= self._limits.max_characters and self._tokens.count(
            draft.start, draft.end
        ) <= self._room(draft.context)

    def _is_tiny(self, draft: Draft) -> bool:
        return self._tokens.count(draft.start, draft.end) < self._min_tokens

    def _joins(self, last: Draft, following: Draft) -> bool:
        """Tell whether a block goes into the draft before it; a record only if both are tiny."""
        if last.run != following.run:
            return False
        if following.kind == "rows" and not (self._is_tiny(last) and self._is_tiny(following)):
            return False
        return self._fits(replace(last, end=following.end))

    def _cut(self, draft: Draft, header: str) -> list[Draft]:
        later = self._contexts.with_header(draft.context, header)
        pieces = cut_stretch(
            self._text,
            draft.start,
            draft.end,
            self._tokens,
            kind=draft.kind,
            budgets=(self._room(draft.context), self._room(later)),
            max_characters=self._limits.max_characters,
            min_tokens=self._min_tokens,
        )
        return [
            replace(draft, start=start, end=end, context=later if index else draft.context)
            for index, (start, end) in enumerate(pieces)
        ]

    def _without_tiny_end(self, drafts: list[Draft]) -> list[Draft]:
        if len(drafts) > 1 and drafts[-1].kind != "rows" and self._is_tiny(drafts[-1]):
            before, last = drafts[-2:]
            joined = replace(before, end=last.end)
            if before.run == last.run and self._fits(joined):
                return [*drafts[:-2], joined]
        return drafts
