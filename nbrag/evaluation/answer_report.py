"""The report of an evaluation of answers: ways to answer by metrics, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.evaluation.answer_cases import AnswerCases
from nbrag.evaluation.bootstrap import bootstrap_with_gaps
from nbrag.evaluation.paired import Difference, PairedComparison
from nbrag.rendering import Cell, Rendering, render_table
from nbrag.types import Answer
from nbrag.types.exports import TabularResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AnswerReport"]

_TIE = 1e-9
_COLUMNS = {
    "answerer": "string",
    "metric": "string",
    "mean": "float64",
    "low": "float64",
    "high": "float64",
    "questions": "int64",
    "failed": "int64",
    "judge_errors": "int64",
}


@dataclass(frozen=True, slots=True)
class AnswerReport(TabularResult):
    """What answers were worth.

    Attributes
    ----------
    cases
        The questions.
    answerers
        Names in order; the first is the baseline.
    metrics
        Names in order; see :mod:`nbrag.evaluation.answer_metrics`.
    scores
        By answerer, question id and metric; None where a metric has nothing to say. Questions that
        failed are left out.
    answers
        By answerer and question id, failed ones too.
    failures
        Why there was no answer to be measured, by answerer and question id. A refusal is none.
    judge_errors
        Why the judge gave no value, by answerer, question id and metric. They are not scored.
    judge
        The model that judged, empty without one.
    judge_prompts
        Version by name of what the judge was told.
    seconds
        How long each answer took, by answerer and question id.
    notes
        What a reader of the figures must know.
    """

    _columns: ClassVar[Mapping[str, str]] = _COLUMNS

    cases: AnswerCases
    answerers: tuple[str, ...]
    metrics: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    answers: Mapping[str, Mapping[str, Answer]]
    failures: Mapping[str, Mapping[str, str]]
    judge_errors: Mapping[str, Mapping[str, Mapping[str, str]]]
    judge: str = ""
    judge_prompts: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def value(self, answerer: str, metric: str) -> float | None:
        """Return a metric's mean over the questions of which it says something."""
        self._require(answerer, metric)
        known = [v for v in self._series(answerer, metric) if v == v]  # noqa: PLR0124 - no NaN
        return float(sum(known) / len(known)) if known else None

    def summary_rows(self) -> list[dict[str, Any]]:
        """Return one row per answerer and metric.

        ``low`` and ``high`` are the ends of a 95 % bootstrap interval (percentile, 10,000
        resamples of the questions that did not fail); ``questions`` is how many have a value.
        ``mean``, ``low`` and ``high`` are None when none has.
        """
        rows: list[dict[str, Any]] = []
        for answerer in self.answerers:
            for metric in self.metrics:
                values = self._series(answerer, metric)
                interval = bootstrap_with_gaps(values)
                errors = self.judge_errors.get(answerer, {})
                rows.append(
                    {
                        "answerer": answerer,
                        "metric": metric,
                        "mean": self.value(answerer, metric),
                        "low": None if interval is None else interval[0],
                        "high": None if interval is None else interval[1],
                        "questions": int((values == values).sum()),  # noqa: PLR0124 - no NaN
                        "failed": len(self.failures[answerer]),
                        "judge_errors": sum(metric in found for found in errors.values()),
                    }
                )
        return rows

    def question_rows(self) -> list[dict[str, Any]]:
        """Return one row per answerer and question: the answer, its metrics, and any error."""
        rows: list[dict[str, Any]] = []
        for answerer in self.answerers:
            for case in self.cases:
                answer = self.answers[answerer].get(case.id)
                scores = self.scores[answerer].get(case.id, {})
                rows.append(
                    {
                        "answerer": answerer,
                        "id": case.id,
                        "question": case.question,
                        "answerable": case.answerable,
                        "outcome": "failed" if answer is None else answer.outcome,
                        "text": "" if answer is None else answer.text or answer.reason,
                        **{metric: scores.get(metric) for metric in self.metrics},
                        "calls": None if answer is None else answer.usage.calls,
                        "seconds": self.seconds.get(answerer, {}).get(case.id),
                        "error": self.failures[answerer].get(case.id, ""),
                    }
                )
        return rows

    def compare(self, answerer: str, baseline: str | None = None) -> PairedComparison:
        """Compare two ways to answer on the questions that both were measured on.

        Parameters
        ----------
        answerer
            The one in question.
        baseline
            What it is compared with; None for the report's first.

        Returns
        -------
        PairedComparison
            Per metric the difference of the means with a 95 % interval under the same draws of
            questions; wins, ties and losses are on questions of which both have a value.

        Raises
        ------
        ConfigurationError
            When the report has no such answerer.
        """
        other = self.answerers[0] if baseline is None else baseline
        self._require(answerer)
        self._require(other)
        common = [c.id for c in self.cases if c.id in self.scores[answerer]]
        common = [case for case in common if case in self.scores[other]]
        differences = []
        for metric in self.metrics:
            mine = self._series(answerer, metric, common)
            theirs = self._series(other, metric, common)
            interval = bootstrap_with_gaps(mine, theirs)
            if interval is None:
                continue
            pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if a == a and b == b]  # noqa: PLR0124
            differences.append(
                Difference(
                    metric,
                    _mean(mine) - _mean(theirs),
                    *interval,
                    wins=sum(a - b > _TIE for a, b in pairs),
                    ties=sum(abs(a - b) <= _TIE for a, b in pairs),
                    losses=sum(b - a > _TIE for a, b in pairs),
                )
            )
        return PairedComparison(answerer, other, len(common), tuple(differences))

    def _require(self, answerer: str, metric: str | None = None) -> None:
        if answerer not in self.answerers:
            raise ConfigurationError(
                f"the report has no answerer '{answerer}'.",
                hint=did_you_mean(answerer, self.answerers, what="answerers"),
            )
        if metric is not None and metric not in self.metrics:
            raise ConfigurationError(
                f"the report has no metric '{metric}'.",
                hint=did_you_mean(metric, self.metrics, what="metrics"),
            )

    def _series(
        self, answerer: str, metric: str, questions: list[str] | None = None
    ) -> NDArray[np.float64]:
        """Return a metric's values in the cases' order, NaN where there is none."""
        import numpy as np

        scores = self.scores[answerer]
        chosen = [c.id for c in self.cases if c.id in scores] if questions is None else questions
        values = [scores[question].get(metric) for question in chosen]
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    # Showing and exporting ---------------------------------------------------------------

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the means with their intervals: a row per metric, a column per answerer."""
        summary = {(row["answerer"], row["metric"]): row for row in self.summary_rows()}
        rows: list[list[Cell]] = [
            [metric, *(_shown(summary[name, metric]) for name in self.answerers)]
            for metric in self.metrics
        ]
        rows.append(["answered", *(self._count(name, "answered") for name in self.answerers)])
        rows.append(["refused", *(self._count(name, "refused") for name in self.answerers)])
        rows.append(["failed", *(str(len(self.failures[name])) for name in self.answerers)])
        rows.append(["calls", *(str(self._calls(name)) for name in self.answerers)])
        return render_table(
            f"{self.cases.name}: {len(self.cases)} questions, means with 95 % intervals (counts)",
            ["", *self.answerers],
            rows,
            notes=self.notes,
        )

    def _count(self, answerer: str, outcome: str) -> str:
        return str(sum(one.outcome == outcome for one in self.answers[answerer].values()))

    def _calls(self, answerer: str) -> int:
        return sum(answer.usage.calls for answer in self.answers[answerer].values())

    def __repr__(self) -> str:
        """Show what was measured."""
        return f"<AnswerReport {', '.join(self.answerers)}: {len(self.cases)} questions>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows of :meth:`summary_rows`."""
        return self.summary_rows()


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the known values."""
    import numpy as np

    return float(values[~np.isnan(values)].mean())


def _shown(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return "not measured"
    return f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}] ({row['questions']})"
