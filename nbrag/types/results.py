"""What is found: chunks with the ranks they had on the way, best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbrag.types.documents import Span
from nbrag.types.queries import RetrievalQuery

__all__ = [
    "HistoryEntry",
    "RetrievalChunk",
    "RetrievalResults",
]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one stage made of a chunk: its rank (from 1) and its score there."""

    stage: str
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class RetrievalChunk:
    """A chunk that was found.

    Attributes
    ----------
    id, document_id, parent_id
        Identities; fusion, citations, evaluation and caches use them, never the text.
    content
        The text (or the field named by ``content`` when the pipeline was called with one).
    score
        The score by the last stage that ranked; higher is better.
    record
        The stored row as a mapping: source, title, heading_path, page, metadata fields.
    span
        Where the text stands in its document.
    history
        One entry per stage, in order.
    """

    id: str
    document_id: str
    content: str
    score: float
    record: Mapping[str, Any] = field(default_factory=dict)
    parent_id: str | None = None
    span: Span | None = None
    history: tuple[HistoryEntry, ...] = ()

    def ranked(self, stage: str, rank: int, score: float | None) -> RetrievalChunk:
        """Return a copy with one more history entry, and the score where the stage gave one."""
        entry = HistoryEntry(stage, rank, score)
        kept = self.score if score is None else score
        return replace(self, score=kept, history=(*self.history, entry))

    @property
    def source(self) -> str:
        """The document's URI."""
        return str(self.record.get("source", ""))

    @property
    def heading_path(self) -> tuple[str, ...]:
        """Titles of the headings above the chunk, outermost first."""
        return tuple(self.record.get("heading_path") or ())

    @property
    def page(self) -> int | None:
        """Page number from 1, where the source has pages."""
        return None if self.span is None else self.span.page


@dataclass(frozen=True, slots=True)
class RetrievalResults(Sequence[RetrievalChunk]):
    """What a pipeline found, best first.

    Attributes
    ----------
    query
        The query as the search saw it.
    chunks
        The chunks, best first, at most ``query.top_k`` once the pipeline is through.
    metadata
        What stages have to say about the whole set.
    warnings
        What went wrong and what was done instead.
    trace
        The run's :class:`nbrag.tracing.Trace`, or None.
    """

    query: RetrievalQuery
    chunks: tuple[RetrievalChunk, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    trace: Any = None

    def __len__(self) -> int:
        """Return how many chunks there are."""
        return len(self.chunks)

    def __getitem__(self, index: Any) -> Any:
        """Return a chunk, or a tuple of chunks for a slice."""
        return self.chunks[index]

    def __iter__(self) -> Iterator[RetrievalChunk]:
        """Go through the chunks, best first."""
        return iter(self.chunks)

    def with_warning(self, warning: str) -> RetrievalResults:
        """Return a copy that carries one more warning."""
        return replace(self, warnings=(*self.warnings, warning))
