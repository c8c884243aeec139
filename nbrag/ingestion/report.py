"""What an ingestion did: one row per document, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nbrag.rendering import Rendering, render_table

__all__ = ["DocumentOutcome", "IngestReport", "IngestionProgress", "Outcome"]

Outcome = Literal["added", "changed", "unchanged", "duplicate", "removed", "failed"]

_ORDER: tuple[Outcome, ...] = (
    "added",
    "changed",
    "unchanged",
    "duplicate",
    "removed",
    "failed",
)
#: Rows shown of an outcome that needs no attention.
_SHOWN_ROWS = 12


@dataclass(frozen=True, slots=True)
class IngestionProgress:
    """How far an ingestion is.

    Attributes
    ----------
    stage
        What is being done: ``reading``, ``embedding``, ``writing``, ``finalizing``, ``done``.
    documents_done
        Documents that have their outcome.
    documents_total
        How many there are; None while the sources are still being listed.
    chunks_embedded
        Chunks whose vectors were computed in this run.
    current
        URI of the document at hand.
    stages
        What has left each stage of the pipeline: documents from ``reading`` and ``writing``,
        chunks from ``cutting``, from each chunk processor by its name, and from ``embedding``
        (those whose vectors had to be computed).
    """

    stage: str
    documents_done: int
    documents_total: int | None
    chunks_embedded: int
    current: str
    stages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """What became of one document.

    Attributes
    ----------
    uri
        The document.
    outcome
        ``added``, ``changed``, ``unchanged`` (skipped before anything was embedded),
        ``duplicate`` (named twice in this run), ``removed`` (vanished from the sources) or
        ``failed``.
    chunks
        Chunks that it has in the collection now.
    embedded
        Chunks whose vectors had to be computed.
    reason
        Why it failed, or what was noticed while it was read.
    error
        Name of the error's class, empty when there was none.
    """

    uri: str
    outcome: Outcome
    chunks: int = 0
    embedded: int = 0
    reason: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class IngestReport(Sequence[DocumentOutcome]):
    """The outcome of every document of one ingestion.

    Attributes
    ----------
    collection
        Name of the collection.
    rows
        One per document, in the order in which the sources gave them; removed ones last.
    warnings
        What concerns the whole run.
    notes
        What corpus-level stages did, one line each.
    """

    collection: str
    rows: tuple[DocumentOutcome, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return how many documents there were."""
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        """Return a row, or a tuple of rows for a slice."""
        return self.rows[index]

    def __iter__(self) -> Iterator[DocumentOutcome]:
        """Go through the rows."""
        return iter(self.rows)

    @property
    def counts(self) -> dict[str, int]:
        """How many documents had each outcome; outcomes that did not occur are left out."""
        found = Counter(row.outcome for row in self.rows)
        return {name: found[name] for name in _ORDER if found[name]}

    @property
    def failed(self) -> tuple[DocumentOutcome, ...]:
        """The documents that could not be ingested."""
        return tuple(row for row in self.rows if row.outcome == "failed")

    @property
    def chunks(self) -> int:
        """Chunks that the run's documents have in the collection now."""
        return sum(row.chunks for row in self.rows)

    @property
    def embedded(self) -> int:
        """Chunks whose vectors were computed."""
        return sum(row.embedded for row in self.rows)

    @property
    def summary(self) -> str:
        """One line: outcomes, chunks, what was embedded."""
        outcomes = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return (
            f"{self.collection}: {outcomes or 'no documents'}; {self.chunks} chunks, "
            f"{self.embedded} embedded"
        )

    def _shown(self) -> tuple[list[DocumentOutcome], list[str]]:
        """Return the rows worth showing, those that need attention first, and what is left out."""
        attention = [row for row in self.rows if row.outcome == "failed" or row.reason]
        quiet = [row for row in self.rows if not (row.outcome == "failed" or row.reason)]
        hidden = len(quiet) - _SHOWN_ROWS
        notes = [*self.warnings, *self.notes]
        if hidden > 0:
            notes.append(f"{hidden} more documents without remarks are not shown")
        return attention + quiet[:_SHOWN_ROWS], notes

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the report as a table."""
        rows, notes = self._shown()
        return render_table(
            self.summary,
            ["document", "outcome", "chunks", "embedded", "reason"],
            [[row.uri, row.outcome, row.chunks, row.embedded, row.reason] for row in rows],
            notes=notes,
            width=80,
        )

    def __repr__(self) -> str:
        """Return the summary."""
        return f"<IngestReport {self.summary}>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries."""
        names = ("uri", "outcome", "chunks", "embedded", "reason", "error")
        return [{name: getattr(row, name) for name in names} for row in self.rows]

    def to_arrow(self) -> Any:
        """Return all rows as a pyarrow Table."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.to_dicts())

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            from nbrag.errors import MissingDependency

            raise MissingDependency("a pandas data frame", "pandas") from None
        return pd.DataFrame(self.to_dicts())
