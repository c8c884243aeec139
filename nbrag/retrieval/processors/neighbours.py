"""The stage ``neighbours``: each result with the text around it."""

from __future__ import annotations

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
            if span is None:
                widened.append(chunk)
                continue
            hits = [(chunk.span.start, chunk.span.end)] if chunk.span else []
            place = _overlapping(widened, chunk.document_id, span)
            if place is None:
                record = {**chunk.record, "hit_spans": hits}
                text = await collection.document_text(chunk.document_id, span)
                widened.append(replace(chunk, content=text, span=span, record=record))
            else:
                widened[place] = await _joined(widened[place], span, hits, collection)
        ranked = [c.ranked(self.name, rank, None) for rank, c in enumerate(widened, start=1)]
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


def _overlapping(widened: list[RetrievalChunk], document_id: str, span: Span) -> int | None:
    for place, other in enumerate(widened):
        if (
            other.document_id == document_id
            and other.span is not None
            and other.span.start < span.end
            and span.start < other.span.end
        ):
            return place
    return None


async def _joined(
    chunk: RetrievalChunk, span: Span, hits: list[tuple[int, int]], collection: Collection
) -> RetrievalChunk:
    """Return a widened chunk that covers another one's stretch too."""
    old = chunk.span or span
    first = min(old, span, key=lambda part: part.start)
    whole = Span(first.start, max(old.end, span.end), first.page)
    record = {**chunk.record, "hit_spans": [*chunk.record.get("hit_spans", []), *hits]}
    text = await collection.document_text(chunk.document_id, whole)
    return replace(chunk, content=text, span=whole, record=record)


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
