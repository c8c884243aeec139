"""Two pipelines on the same questions, and the questions that one does worst."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbrag.rendering import Rendering, render_table

__all__ = ["Difference", "PairedComparison", "PoorQuestion", "PoorQuestions"]

_SHOWN_FOUND = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric's difference between two pipelines, question by question.

    Attributes
    ----------
    metric
        Its name.
    mean, low, high
        Mean difference and the ends of its 95 % interval; positive where the first is better.
    wins, ties, losses
        On how many questions the first is better, equal, worse.
    """

    metric: str
    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class PairedComparison(Sequence[Difference]):
    """How one pipeline differs from another on the questions that both answered.

    Attributes
    ----------
    pipeline, baseline
        Their names; differences are pipeline minus baseline.
    questions
        How many questions both answered.
    differences
        One per metric; none when there was no common question.
    """

    pipeline: str
    baseline: str
    questions: int
    differences: tuple[Difference, ...]

    def __len__(self) -> int:
        """Return how many metrics there are."""
        return len(self.differences)

    def __getitem__(self, index: Any) -> Any:
        """Return a metric's difference by position or by name."""
        if isinstance(index, str):
            for difference in self.differences:
                if difference.metric == index:
                    return difference
            raise KeyError(index)
        return self.differences[index]

    def __iter__(self) -> Iterator[Difference]:
        """Go through the metrics."""
        return iter(self.differences)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per metric."""
        names = {"pipeline": self.pipeline, "baseline": self.baseline}
        return [{**names, **asdict(difference)} for difference in self.differences]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return a row per metric."""
        return render_table(
            f"{self.pipeline} minus {self.baseline}: {self.questions} questions, "
            "mean difference and 95 % interval",
            ["metric", "difference", "interval", "wins", "ties", "losses"],
            [
                [d.metric, f"{d.mean:+.3f}", _interval(d.low, d.high), d.wins, d.ties, d.losses]
                for d in self.differences
            ],
            notes=[] if self.differences else ["no question was answered by both"],
        )

    def __repr__(self) -> str:
        """Show the mean differences."""
        shown = ", ".join(f"{d.metric} {d.mean:+.3f}" for d in self.differences)
        return f"<PairedComparison {self.pipeline} minus {self.baseline}: {shown}>"


@dataclass(frozen=True, slots=True)
class PoorQuestion:
    """A question with what was found and what was wanted.

    Attributes
    ----------
    query_id, question
        Which question.
    metric, value
        What it was judged by.
    found
        Documents in the pipeline's order, as deep as the metrics look.
    wanted
        Relevant documents, the best grade first.
    """

    query_id: str
    question: str
    metric: str
    value: float
    found: tuple[str, ...]
    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoorQuestions(Sequence[PoorQuestion]):
    """The questions with a pipeline's lowest values, lowest first."""

    pipeline: str
    metric: str
    rows: tuple[PoorQuestion, ...]

    def __len__(self) -> int:
        """Return how many questions there are."""
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        """Return a question, or a tuple of questions for a slice."""
        return self.rows[index]

    def __iter__(self) -> Iterator[PoorQuestion]:
        """Go through the questions."""
        return iter(self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per question."""
        return [asdict(row) for row in self.rows]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return a row per question; wanted documents carry the rank at which they came.

        Folders that all documents share are left out.
        """
        shared = _shared_folders([d for row in self.rows for d in (*row.found, *row.wanted)])
        return render_table(
            f"{self.pipeline}: questions with the lowest {self.metric}",
            ["id", self.metric, "question", "wanted", "found"],
            [
                [
                    row.query_id,
                    row.value,
                    row.question,
                    ", ".join(_ranked(document, row.found)[shared:] for document in row.wanted),
                    ", ".join(d[shared:] for d in row.found[:_SHOWN_FOUND]) or "nothing",
                ]
                for row in self.rows
            ],
            details=[_details(row) for row in self.rows],
        )

    def __repr__(self) -> str:
        """Show the pipeline and the count."""
        return f"<PoorQuestions {self.pipeline}: {len(self.rows)} by {self.metric}>"


def _interval(low: float, high: float) -> str:
    """Return an interval with signs, for display."""
    return f"[{low:+.3f}, {high:+.3f}]"


def _shared_folders(documents: Sequence[str]) -> int:
    """Return how many characters of folders all URIs begin with."""
    common = os.path.commonprefix(list(documents))  # noqa: RUF071 - URLs are no paths
    return common.rfind("/") + 1


def _ranked(document: str, found: Sequence[str]) -> str:
    rank = f"rank {found.index(document) + 1}" if document in found else "not found"
    return f"{document} ({rank})"


def _details(row: PoorQuestion) -> str:
    """Return the whole list of found documents, wanted ones marked."""
    wanted = set(row.wanted)
    lines = [
        f"{rank}. {document}{'  <- wanted' if document in wanted else ''}"
        for rank, document in enumerate(row.found, start=1)
    ]
    return "\n".join(lines) or "nothing was found"
