"""What a run did, stage by stage: spans for OpenTelemetry, log lines, and a table of candidates.

Spans follow OpenTelemetry's names for generative AI: one ``retrieval`` span per run with
``gen_ai.operation.name`` and ``gen_ai.data_source.id``, and a child per stage. Only the API is
used, so nothing happens unless the person sets up an SDK. No content is captured: ids, ranks,
scores and counts only.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbrag.rendering import Rendering, clip, render_table
from nbrag.types import RankedList, RetrievalChunk

__all__ = [
    "StageChange",
    "StageRecord",
    "Trace",
    "TraceRow",
    "current_stage",
    "leg_name",
    "stage_span",
]

_log = logging.getLogger("nbrag.retrieval")
_stage: contextvars.ContextVar[str] = contextvars.ContextVar("nbrag_stage", default="")
#: Candidates per stage that a rendering shows.
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One candidate as one stage saw it."""

    stage: str
    chunk_id: str
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage of a run.

    Attributes
    ----------
    stage
        Its name; the legs of a search are ``vector`` and ``keyword``, numbered where the question
        had several variants.
    milliseconds
        How long it took; for a leg, None: both run at the same time, within ``search``.
    explanation
        What it did, e.g. ``exact over 812 rows``.
    rows
        Its candidates after it, best first.
    ranks
        Whether it ranks candidates; a query processor runs before there are any.
    """

    stage: str
    milliseconds: float | None
    explanation: str
    rows: tuple[TraceRow, ...]
    ranks: bool = True


@dataclass(frozen=True, slots=True)
class StageChange:
    """What a stage did to the candidates of the one before it, as chunk ids.

    Attributes
    ----------
    stage
        Its name.
    added, dropped
        Candidates that only one of the two has.
    lifted
        Candidates that stand higher among those that both have.
    """

    stage: str
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    lifted: tuple[str, ...]


@dataclass(slots=True)
class Trace:
    """All stages of one run, in order.

    Attributes
    ----------
    question, collection
        What was asked, and of which collection.
    stages
        What each stage did.
    labels
        Where each chunk stands, for people: source and heading path by chunk id.
    """

    question: str
    collection: str
    stages: list[StageRecord] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)

    def note_lists(self, lists: Sequence[RankedList]) -> None:
        """Add one record per list of a search."""
        for ranked in lists:
            rows = [(item.chunk_id, item.score) for item in ranked.items]
            self.note(leg_name(ranked, lists), rows, explanation=ranked.explanation)

    def note_chunks(
        self,
        stage: str,
        chunks: Sequence[RetrievalChunk],
        *,
        milliseconds: float | None = None,
        explanation: str = "",
    ) -> None:
        """Add a record of a stage that left these chunks."""
        for chunk in chunks:
            place = " > ".join(chunk.heading_path)
            source = chunk.source or str(chunk.record.get("title") or "")
            self.labels[chunk.id] = f"{source} {place}".strip()
        self.note(
            stage,
            [(chunk.id, chunk.score) for chunk in chunks],
            milliseconds=milliseconds,
            explanation=explanation,
        )

    def note(
        self,
        stage: str,
        rows: Sequence[tuple[str, float | None]],
        *,
        milliseconds: float | None = None,
        explanation: str = "",
        ranks: bool = True,
    ) -> None:
        """Add a record of a stage."""
        ranked = tuple(
            TraceRow(stage, chunk_id, rank, score)
            for rank, (chunk_id, score) in enumerate(rows, start=1)
        )
        self.stages.append(StageRecord(stage, milliseconds, explanation, ranked, ranks))

    def rows(self) -> list[dict[str, Any]]:
        """Return every candidate of every stage, for a table."""
        return [
            {
                "position": position,
                "stage": record.stage,
                "chunk_id": row.chunk_id,
                "rank": row.rank,
                "score": row.score,
                "milliseconds": record.milliseconds,
                "explanation": record.explanation,
            }
            for position, record in enumerate(self.stages)
            for row in record.rows
        ]

    def stage(self, name: str) -> StageRecord:
        """Return the last record of a stage.

        Raises
        ------
        LookupError
            When the run had no such stage.
        """
        for record in reversed(self.stages):
            if record.stage == name:
                return record
        known = ", ".join(dict.fromkeys(record.stage for record in self.stages))
        raise LookupError(f"the run had no stage '{name}'; it had: {known}")

    def ranks(self) -> Mapping[str, dict[str, int]]:
        """Return each chunk's rank per stage, by chunk id."""
        found: dict[str, dict[str, int]] = {}
        for record in self.stages:
            for row in record.rows:
                found.setdefault(row.chunk_id, {})[record.stage] = row.rank
        return found

    def changes(self) -> list[StageChange]:
        """Return what each stage after the search added, dropped and lifted, in order."""
        ranked = [record for record in self._steps() if record.ranks]
        return [_change(before, after) for before, after in itertools.pairwise(ranked)]

    def _steps(self) -> list[StageRecord]:
        """Return the records from the search on; its legs are not steps of one ranking."""
        names = [record.stage for record in self.stages]
        return self.stages[names.index("search") if "search" in names else 0 :]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return a table: the final chunks and those that fell out late, a column per stage."""
        names = list(dict.fromkeys(record.stage for record in self.stages if record.ranks))
        ranks = self.ranks()
        last = names[-1] if names else ""
        shown = sorted(
            (chunk for chunk in ranks if chunk in self.labels),
            key=lambda chunk: [ranks[chunk].get(name, 1_000_000) for name in reversed(names)],
        )
        kept = [chunk for chunk in shown if last in ranks[chunk]]
        dropped = [chunk for chunk in shown if last not in ranks[chunk]]
        table = (kept + dropped)[: max(_SHOWN, len(kept))]
        return render_table(
            f"Rank after each stage: {clip(self.question, 200)}",
            ["chunk", *names],
            [[self.labels[chunk], *(ranks[chunk].get(name) for name in names)] for chunk in table],
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        """Return one line per stage: what it did, how many candidates it left, what changed."""
        later = [record for record in self._steps() if record.ranks][1:]
        changed = {
            id(record): _words(change) for record, change in zip(later, self.changes(), strict=True)
        }
        notes = []
        for record in self.stages:
            parts = [record.explanation] if record.explanation else []
            if record.ranks:
                parts += [f"{len(record.rows)} candidates", *changed.get(id(record), ())]
            notes.append(f"{record.stage}: {'; '.join(parts)}")
        return notes

    def __repr__(self) -> str:
        """Name the stages."""
        return f"<Trace {' -> '.join(record.stage for record in self.stages)}>"


def _change(before: StageRecord, after: StageRecord) -> StageChange:
    """Compare two rankings."""
    old = [row.chunk_id for row in before.rows]
    new = [row.chunk_id for row in after.rows]
    in_both = set(old) & set(new)
    places = {chunk: i for i, chunk in enumerate(chunk for chunk in old if chunk in in_both)}
    stayed = (chunk for chunk in new if chunk in in_both)
    return StageChange(
        after.stage,
        added=tuple(chunk for chunk in new if chunk not in in_both),
        dropped=tuple(chunk for chunk in old if chunk not in in_both),
        lifted=tuple(chunk for place, chunk in enumerate(stayed) if place < places[chunk]),
    )


def _words(change: StageChange) -> list[str]:
    """Return how many candidates changed in each way, where any did."""
    counts = {"added": change.added, "dropped": change.dropped, "lifted": change.lifted}
    return [f"{len(chunks)} {what}" for what, chunks in counts.items() if chunks]


def leg_name(ranked: RankedList, lists: Sequence[RankedList]) -> str:
    """Return a leg's name, numbered from 1 where the question had several variants."""
    several = sum(other.leg == ranked.leg for other in lists) > 1
    return f"{ranked.leg} {ranked.variant + 1}" if several else ranked.leg


def current_stage() -> str:
    """Return the stage that runs here, for whoever keeps accounts of it; empty outside of one."""
    return _stage.get()


@contextlib.contextmanager
def stage_span(name: str, attributes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Run a stage in a span, and write one log line when it ends.

    Parameters
    ----------
    name
        The span's name, e.g. ``nbrag.stage mmr``.
    attributes
        The span's attributes.

    Yields
    ------
    dict
        For further attributes; ``milliseconds`` is set at the end, and ``error.type`` when the
        stage raises, or by the caller when it was passed over: the span's status is then an
        error, and the log line of level INFO instead of DEBUG.
    """
    from opentelemetry import trace

    outcome: dict[str, Any] = {}
    before = _stage.set(str(attributes.get("nbrag.stage", "")) or _stage.get())
    started = time.perf_counter()
    # An exception's message may quote a passage: only its type is told.
    with trace.get_tracer("nbrag").start_as_current_span(
        name,
        attributes=dict(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield outcome
        except BaseException as error:
            outcome["error.type"] = type(error).__name__
            raise
        finally:
            _stage.reset(before)
            outcome["milliseconds"] = (time.perf_counter() - started) * 1000
            span.set_attributes(
                {
                    key: value
                    for key, value in outcome.items()
                    if isinstance(value, str | int | float)
                }
            )
            level = logging.DEBUG
            if "error.type" in outcome:
                span.set_status(trace.StatusCode.ERROR)
                level = logging.INFO
            _log.log(level, "%s", name, extra={"nbrag": {**attributes, **outcome}})
