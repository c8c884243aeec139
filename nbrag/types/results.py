"""What is found: chunks with the ranks they had on the way, best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar

from nbrag.rendering import Cell, Rendering, clip, plain, render_table
from nbrag.types.documents import Span
from nbrag.types.exports import TabularResult
from nbrag.types.queries import RetrievalQuery

__all__ = [
    "HistoryEntry",
    "RetrievalChunk",
    "RetrievalResults",
]

#: Columns of an exported table that are always there; metadata fields follow.
_COLUMNS = {
    "rank": "int64",
    "score": "float64",
    "source": "string",
    "title": "string",
    "heading_path": "list<string>",
    "page": "int64",
    "content": "string",
    "id": "string",
    "document_id": "string",
    "parent_id": "string",
    "start": "int64",
    "end": "int64",
}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one stage made of a chunk: its rank (from 1) and its score there.

    Attributes
    ----------
    stage
        The stage's name.
    rank, score
        What it gave the chunk; no score where it only ordered.
    via
        For a leg of the search, id of the hypothetical question that was hit; None when it was
        the chunk itself.
    """

    stage: str
    rank: int
    score: float | None
    via: str | None = None


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
        The stored row as a mapping: source, title, heading_path, page, metadata fields. Of a
        summary also its level, and ``summary_passages`` and ``summary_children``: how many
        original chunks it was made from, and the ids of what stands right beneath it.
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
        path = self.record.get("heading_path") or ()
        return (path,) if isinstance(path, str) else tuple(str(title) for title in path)

    @property
    def page(self) -> int | None:
        """Page number from 1, where the source has pages."""
        page = self.record.get("page") if self.span is None else self.span.page
        return page if isinstance(page, int) else None

    def __repr__(self) -> str:
        """Show the score, the place and the beginning of the text."""
        source = self.source or str(self.record.get("title") or "")
        place = " > ".join((source, *self.heading_path))
        score = _shown_score(self.score)
        shown = "" if score is None else f"{score:.4f} "
        return (
            f"<RetrievalChunk {shown}{clip(plain(place), 80)}: {clip(plain(self.content), 60)!r}>"
        )


@dataclass(frozen=True, slots=True)
class RetrievalResults(Sequence[RetrievalChunk], TabularResult):
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

    _columns: ClassVar[Mapping[str, str]] = _COLUMNS

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

    def __repr__(self) -> str:
        """Show the question and how many chunks were found."""
        warned = f", {len(self.warnings)} warnings" if self.warnings else ""
        question = clip(plain(self.query.text), 80)
        return f"<RetrievalResults {question!r}: {len(self.chunks)} chunks{warned}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the chunks as a table: text, Markdown and HTML."""
        rows: list[list[Cell]] = [
            [
                rank,
                _shown_score(chunk.score),
                _shown_source(chunk),
                _shown_heading(chunk),
                chunk.page,
                chunk.content,
            ]
            for rank, chunk in enumerate(self.chunks, start=1)
        ]
        notes = [str(warning) for warning in self.warnings]
        if not rows:
            notes.insert(0, "nothing was found")
        return render_table(
            clip(self.query.text, 200),
            ["rank", "score", "source", "heading", "page", "text"],
            rows,
            details=[chunk.content for chunk in self.chunks],
            notes=notes,
            paths=["source"],
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per chunk, best first.

        Rank (from 1), score, source, title, heading path, page, text, ids, the span's offsets,
        then the record's other fields; a field that is named like one of these gets a trailing
        underscore.
        """
        return [_as_dict(rank, chunk) for rank, chunk in enumerate(self.chunks, start=1)]


def _shown_score(score: Any) -> float | None:
    """Return the score as a float, whichever number type a stage gave."""
    return float(score) if isinstance(score, Real) else None


def _shown_source(chunk: RetrievalChunk) -> str:
    """Return the source, and how many others hold the very same text."""
    others = [place for place in chunk.record.get("also_in") or () if place != chunk.source]
    return f"{chunk.source} (and {len(others)} more)" if others else chunk.source


def _shown_heading(chunk: RetrievalChunk) -> str:
    """Return the headings above the chunk; of a summary, how much it sums up."""
    count = chunk.record.get("summary_passages")
    if not isinstance(count, int):
        return " > ".join(chunk.heading_path)
    noun = "passage" if count == 1 else "passages"
    return f"summary of {count} {noun} (level {chunk.record.get('level')})"


def _as_dict(rank: int, chunk: RetrievalChunk) -> dict[str, Any]:
    """Return a chunk as one flat row."""
    row: dict[str, Any] = {
        "rank": rank,
        "score": _shown_score(chunk.score),
        "source": chunk.source,
        "title": str(chunk.record.get("title") or ""),
        "heading_path": list(chunk.heading_path),
        "page": chunk.page,
        "content": chunk.content,
        "id": chunk.id,
        "document_id": chunk.document_id,
        "parent_id": chunk.parent_id,
        "start": None if chunk.span is None else chunk.span.start,
        "end": None if chunk.span is None else chunk.span.end,
    }
    for name, value in chunk.record.items():
        if name in {"source", "title", "heading_path", "page", "context", "embedding"}:
            continue
        free = str(name)
        while free in row:
            free += "_"
        row[free] = value
    return row
