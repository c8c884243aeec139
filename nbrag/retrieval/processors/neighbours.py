"""The stage ``neighbours``: each result with the text around it."""

from __future__ import annotations

import functools
from dataclasses import replace

from pydantic import Field

from nbrag.protocols import Collection, RetrievalResultProcessor
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.types import RetrievalChunk, RetrievalResults, Span

__all__ = ["NeighbourOptions", "NeighbourProcessor"]


class NeighbourOptions(StageOptions):
    """How far a result is widened."""

    before: int = Field(default=1, ge=0, le=50, description="chunks before each result")
    after: int = Field(default=1, ge=0, le=50, description="chunks after each result")
    within: str = Field(
        default="section",
        pattern="^(section|document)$",
        description="section: not beyond the result's heading; document: up to the document's ends",
    )


class NeighbourProcessor(RetrievalResultProcessor):
    """Widens results to the text around them, once the ranking is done.

    Results whose widened texts overlap become one, at the better rank. The text is cut from the
    document, so that it is exact; the record keeps the hits' own spans as ``hit_spans``.

    Parameters
    ----------
    options
        How far.
    """

    name = "neighbours"
    after_cut = True

    def __init__(self, options: NeighbourOptions) -> None:
        self.options = options

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        """Return the widened results."""
        widened: list[RetrievalChunk] = []
        for chunk in results.chunks:
            span = await self._window(chunk, collection)
            if chunk.span is None or span is None:
                widened.append(chunk)
                continue
            hits = [(chunk.span.start, chunk.span.end)]
            record = {**chunk.record, "hit_spans": hits}
            widened = _with(widened, replace(chunk, span=span, record=record))
        ranked = []
        for rank, chunk in enumerate(widened, start=1):
            text = chunk.content
            if chunk.span is not None:
                text = await collection.document_text(chunk.document_id, chunk.span)
            ranked.append(replace(chunk, content=text).ranked(self.name, rank, None))
        return replace(results, chunks=tuple(ranked))

    async def _window(self, chunk: RetrievalChunk, collection: Collection) -> Span | None:
        """Return the stretch around a chunk; None for one that has no place in a document."""
        if chunk.span is None:
            return None
        around = await collection.neighbours(chunk.id, self.options.before, self.options.after)
        if self.options.within == "section":
            around = _same_section(around, chunk)
        spans = [other.span for other in around if other.span is not None] or [chunk.span]
        first = min(spans, key=lambda span: span.start)
        return Span(first.start, max(span.end for span in spans), first.page)


def _same_section(around: list[RetrievalChunk], chunk: RetrievalChunk) -> list[RetrievalChunk]:
    """Return the unbroken run of chunks under the chunk's own headings, itself included."""
    place = next((i for i, other in enumerate(around) if other.id == chunk.id), None)
    if place is None:
        return [chunk]
    begin = end = place
    while begin > 0 and around[begin - 1].heading_path == chunk.heading_path:
        begin -= 1
    while end + 1 < len(around) and around[end + 1].heading_path == chunk.heading_path:
        end += 1
    return around[begin : end + 1]


def _with(widened: list[RetrievalChunk], chunk: RetrievalChunk) -> list[RetrievalChunk]:
    """Return the list with one more chunk, made one with all that it overlaps."""
    touched = [other for other in widened if _overlap(other, chunk)]
    if not touched:
        return [*widened, chunk]
    joined = functools.reduce(_joined, [*touched, chunk])
    gone = {id(other) for other in touched[1:]}
    return [joined if other is touched[0] else other for other in widened if id(other) not in gone]


def _overlap(one: RetrievalChunk, other: RetrievalChunk) -> bool:
    return (
        one.document_id == other.document_id
        and one.span is not None
        and other.span is not None
        and one.span.start < other.span.end
        and other.span.start < one.span.end
    )


def _joined(better: RetrievalChunk, other: RetrievalChunk) -> RetrievalChunk:
    """Return the better chunk, covering the other one's stretch too."""
    spans = [chunk.span for chunk in (better, other) if chunk.span is not None]
    first = min(spans, key=lambda span: span.start)
    whole = Span(first.start, max(span.end for span in spans), first.page)
    hits = [*better.record.get("hit_spans", ()), *other.record.get("hit_spans", ())]
    return replace(better, span=whole, record={**better.record, "hit_spans": hits})


register_stage(
    StageDefinition(
        name="neighbours",
        kind="retrieval",
        role="result",
        options=NeighbourOptions,
        build=lambda options, _context: NeighbourProcessor(options),
        method="use_neighbours",
        summary="Each result with the text around it.",
    )
)
