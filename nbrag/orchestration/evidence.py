"""Passages with their numbers, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nbrag.models.chat.budget import estimated_tokens
from nbrag.models.chat.passages import clip_words, passage_block
from nbrag.models.chat.quoting import QuotableText
from nbrag.retrieval.processors._strips import GAP
from nbrag.types import Citation, Passage, RetrievalChunk, Span

__all__ = ["Evidence", "quote_place", "register_evidence"]

#: Tokens of a passage's line besides its text: id, quotation marks, title and headings.
_PER_PASSAGE = 40
#: Words per token, cautiously, for the passage that has to be cut.
_WORDS_PER_TOKEN = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the model is given, each piece under a number that is bound to a chunk.

    Attributes
    ----------
    passages
        In order; numbers from 1.
    warnings
        What was left out.
    """

    passages: tuple[Passage, ...] = ()
    warnings: tuple[str, ...] = ()
    _texts: dict[int, QuotableText] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        """Return how many passages there are."""
        return len(self.passages)

    def __contains__(self, number: object) -> bool:
        """Return whether a passage has this number."""
        return any(passage.number == number for passage in self.passages)

    def passage(self, number: int) -> Passage:
        """Return the passage of a number; a ``LookupError`` when there is none."""
        for passage in self.passages:
            if passage.number == number:
                return passage
        raise LookupError(f"there is no passage {number}")

    def only(self, numbers: Sequence[int]) -> Evidence:
        """Return the evidence of some passages alone, in the order given, numbers unchanged."""
        return Evidence(tuple(self.passage(number) for number in numbers))

    def block(self, numbers: Sequence[int] | None = None) -> str:
        """Return the passages, or some of them under their own numbers, as a block of data."""
        chosen = self.passages if numbers is None else [self.passage(number) for number in numbers]
        return passage_block(
            [passage.chunk for passage in chosen], numbers=[passage.number for passage in chosen]
        )

    def quotes(self, number: int, quote: str) -> list[Citation]:
        """Return where a quote stands in a passage: one citation for each of its parts.

        The citations hold the passage's own words. The list is empty when the quote, or one of
        the parts that ``...`` divides, does not occur there.
        """
        passage = self.passage(number)
        text = self._texts.setdefault(number, QuotableText(passage.content))
        return [
            Citation.of(
                passage,
                quote=passage.content[start:end],
                chunk_start=start,
                chunk_end=end,
                quote_span=quote_place(passage.chunk, start, end),
            )
            for start, end in text.find_all(quote)
        ]

    def numbers_with(self, quote: str) -> list[int]:
        """Return the numbers of all passages in which a quote occurs."""
        return [passage.number for passage in self.passages if self.quotes(passage.number, quote)]


def register_evidence(
    chunks: Sequence[RetrievalChunk], context_tokens: int, *, earlier: Evidence | None = None
) -> Evidence:
    """Give chunks their numbers, as many as fit into a prompt.

    Parameters
    ----------
    chunks
        Best first, or in whatever order the model shall read them.
    context_tokens
        Tokens that all passages together may take, estimated cautiously. The first passage that
        does not fit ends the list; of a first passage that is too long by itself, the beginning
        is taken.
    earlier
        Evidence of an earlier round: it keeps its numbers, new chunks get the next ones, and a
        chunk that is there already is not taken again.
    """
    before = () if earlier is None else earlier.passages
    known = {passage.chunk_id for passage in before}
    chunks = [chunk for chunk in chunks if chunk.id not in known]
    kept: list[RetrievalChunk] = []
    warnings: list[str] = []
    left = context_tokens - sum(
        estimated_tokens(passage.content) + _PER_PASSAGE for passage in before
    )
    for chunk in chunks:
        tokens = estimated_tokens(chunk.content) + _PER_PASSAGE
        if tokens > left:
            break
        kept.append(chunk)
        left -= tokens
    if chunks and not kept and not before:
        cut = clip_words(chunks[0].content, max(int(context_tokens * _WORDS_PER_TOKEN), 1))
        # Long words would pass the limit of words.
        cut = cut[: max(context_tokens, 1)]
        kept.append(replace(chunks[0], content=cut, span=_shortened(chunks[0], cut)))
        warnings.append(
            f"the first passage is longer than context_tokens={context_tokens}: it was cut"
        )
    if len(kept) < len(chunks):
        warnings.append(
            f"{len(chunks) - len(kept)} of {len(chunks)} passages did not fit into "
            f"context_tokens={context_tokens} and were left out"
        )
    first = len(before) + 1
    numbered = tuple(Passage(number, chunk) for number, chunk in enumerate(kept, start=first))
    return Evidence((*before, *numbered), tuple(warnings))


def _shortened(chunk: RetrievalChunk, cut: str) -> Span | None:
    """Return the span of a chunk's beginning."""
    place = quote_place(chunk, 0, len(cut))
    return chunk.span if place is None or chunk.span is None else place


def quote_place(chunk: RetrievalChunk, start: int, end: int) -> Span | None:
    """Return where a stretch of a chunk's text stands in the document; None if it can't be told.

    A chunk that holds only some strips of its stretch says in ``record["strip_spans"]`` where
    these stand.
    """
    span = chunk.span
    if span is None:
        return None
    strips = chunk.record.get("strip_spans")
    if not strips:
        if span.end - span.start != len(chunk.content):
            return None
        return Span(span.start + start, span.start + end, span.page)
    offset = 0
    remaining = [(int(first), int(last)) for first, last in strips]
    for run in chunk.content.split(GAP):
        begin, last = remaining[0][0] if remaining else None, None
        while remaining and begin is not None and remaining[0][1] <= begin + len(run):
            last = remaining.pop(0)[1]
        if begin is None or last != begin + len(run):
            return None
        if offset <= start and end <= offset + len(run):
            return Span(begin + start - offset, begin + end - offset, span.page)
        offset += len(run) + len(GAP)
    return None
