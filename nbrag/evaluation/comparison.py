"""The report of an evaluation: pipelines by metrics, with intervals and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.evaluation.bootstrap import bootstrap_intervals
from nbrag.evaluation.paired import Difference, PairedComparison, PoorQuestion, PoorQuestions
from nbrag.rendering import Cell, Rendering, render_table
from nbrag.types.exports import TabularResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EvaluationReport"]

#: Two values nearer than this are a tie.
_TIE = 1e-9
_COLUMNS = {
    "pipeline": "string",
    "metric": "string",
    "mean": "float64",
    "low": "float64",
    "high": "float64",
    "questions": "int64",
    "failed": "int64",
}


@dataclass(frozen=True, slots=True)
class EvaluationReport(TabularResult):
    """What was measured; everything in it is the same from run to run.

    Attributes
    ----------
    collection, judgements
        What was searched, and where the questions come from.
    pipelines
        Names in order; the first is the baseline.
    metrics
        Names in order.
    scores
        By pipeline, query id and metric; questions that failed are left out.
    failures
        The error in words, by pipeline and query id.
    questions
        Text by query id.
    found
        Ranked documents by pipeline and query id.
    wanted
        Grades by query id and document.
    notes
        What a reader of the figures must know.
    """

    _columns: ClassVar[Mapping[str, str]] = _COLUMNS

    collection: str
    judgements: str
    pipelines: tuple[str, ...]
    metrics: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Mapping[str, float]]]
    failures: Mapping[str, Mapping[str, str]]
    questions: Mapping[str, str]
    found: Mapping[str, Mapping[str, Sequence[str]]]
    wanted: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

    def summary_rows(self) -> list[dict[str, Any]]:
        """Return one row per pipeline and metric: pipeline, metric, mean, low, high.

        ``low`` and ``high`` are the ends of a 95 % bootstrap interval (percentile, 10,000
        resamples of the questions); all three are None when every question failed.
        """
        rows = []
        for pipeline in self.pipelines:
            values = self._values(pipeline)
            answered = len(values) > 0
            intervals = bootstrap_intervals(values) if answered else []
            for column, metric in enumerate(self.metrics):
                low, high = intervals[column] if answered else (None, None)
                mean = float(values[:, column].mean()) if answered else None
                rows.append(
                    {"pipeline": pipeline, "metric": metric, "mean": mean, "low": low, "high": high}
                )
        return rows

    def question_rows(self) -> list[dict[str, Any]]:
        """Return one row per pipeline and question: its metrics, or the error when it failed."""
        return [
            {
                "pipeline": pipeline,
                "query_id": query,
                "question": text,
                **{
                    metric: self.scores[pipeline].get(query, {}).get(metric)
                    for metric in self.metrics
                },
                "found": list(self.found[pipeline].get(query, ())),
                "wanted": [d for d, grade in self.wanted[query].items() if grade >= 1],
                "error": self.failures[pipeline].get(query, ""),
            }
            for pipeline in self.pipelines
            for query, text in self.questions.items()
        ]

    def compare(self, pipeline: str, baseline: str | None = None) -> PairedComparison:
        """Compare two pipelines on the questions that both answered.

        Parameters
        ----------
        pipeline
            The one in question.
        baseline
            What it is compared with; None for the report's first pipeline.

        Returns
        -------
        PairedComparison
            Per metric the mean difference with a 95 % paired bootstrap interval, and how many
            questions were won, tied and lost.

        Raises
        ------
        ConfigurationError
            When the report has no such pipeline.
        """
        other = self.pipelines[0] if baseline is None else baseline
        for name in (pipeline, other):
            self._require(name)
        common = [q for q in self._answered(pipeline) if q in self.scores[other]]
        if not common:
            return PairedComparison(pipeline, other, 0, ())
        deltas = self._values(pipeline, common) - self._values(other, common)
        differences = tuple(
            Difference(
                metric,
                float(column.mean()),
                low,
                high,
                wins=int((column > _TIE).sum()),
                ties=int((abs(column) <= _TIE).sum()),
                losses=int((column < -_TIE).sum()),
            )
            for metric, column, (low, high) in zip(
                self.metrics, deltas.T, bootstrap_intervals(deltas), strict=True
            )
        )
        return PairedComparison(pipeline, other, len(common), differences)

    def worst(self, pipeline: str | None = None, n: int = 5) -> PoorQuestions:
        """Return the questions with a pipeline's lowest nDCG (or first metric), lowest first.

        Parameters
        ----------
        pipeline
            Which one; None for the report's first.
        n
            How many questions; ties keep the order of the judgements.

        Raises
        ------
        ConfigurationError
            When the report has no such pipeline.
        """
        name = self.pipelines[0] if pipeline is None else pipeline
        self._require(name)
        metric = next((m for m in self.metrics if m.startswith("nDCG")), self.metrics[0])
        scores = self.scores[name]
        lowest = sorted(self._answered(name), key=lambda query: scores[query][metric])[: max(n, 0)]
        rows = tuple(
            PoorQuestion(
                query,
                self.questions[query],
                metric,
                scores[query][metric],
                tuple(self.found[name].get(query, ())),
                _relevant(self.wanted[query]),
            )
            for query in lowest
        )
        return PoorQuestions(name, metric, rows)

    def _require(self, pipeline: str) -> None:
        if pipeline not in self.pipelines:
            raise ConfigurationError(
                f"the report has no pipeline '{pipeline}'.",
                hint=did_you_mean(pipeline, self.pipelines, what="pipelines"),
            )

    def _answered(self, pipeline: str) -> list[str]:
        """Return the questions that did not fail, in the judgements' order."""
        return [query for query in self.questions if query in self.scores[pipeline]]

    def _values(self, pipeline: str, queries: Sequence[str] | None = None) -> NDArray[np.float64]:
        """Return float64 of shape (questions, metrics)."""
        import numpy as np

        chosen = self._answered(pipeline) if queries is None else queries
        scores = self.scores[pipeline]
        values = [[scores[query][metric] for metric in self.metrics] for query in chosen]
        return np.array(values, dtype=np.float64).reshape(len(chosen), len(self.metrics))

    # Showing and exporting ---------------------------------------------------------------

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the table of means, and one of the differences to the first pipeline."""
        tables = [self._means_table()]
        if len(self.pipelines) > 1:
            tables.append(self._differences_table())
        # Of two paragraphs, two Markdown blocks, two HTML tables.
        return {kind: "\n\n".join(table[kind] for table in tables) for kind in tables[0]}

    def _means_table(self) -> Rendering:
        summary = {(row["pipeline"], row["metric"]): row for row in self.summary_rows()}
        rows: list[list[Cell]] = [
            [
                pipeline,
                len(self.scores[pipeline]),
                len(self.failures[pipeline]),
                *(_mean(summary[pipeline, metric]) for metric in self.metrics),
            ]
            for pipeline in self.pipelines
        ]
        return render_table(
            f"{self.judgements} on {self.collection}: means with 95 % intervals",
            ["pipeline", "questions", "failed", *self.metrics],
            rows,
            notes=self.notes,
        )

    def _differences_table(self) -> Rendering:
        rows: list[list[Cell]] = []
        for pipeline in self.pipelines[1:]:
            comparison = self.compare(pipeline)
            rows += [
                [
                    pipeline,
                    d.metric,
                    f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]",
                    d.wins,
                    d.ties,
                    d.losses,
                ]
                for d in comparison
            ]
        return render_table(
            f"Difference to {self.pipelines[0]}, question by question",
            ["pipeline", "metric", "difference", "wins", "ties", "losses"],
            rows,
            notes=[] if rows else ["no question was answered by two pipelines"],
        )

    def __repr__(self) -> str:
        """Show what was measured."""
        return (
            f"<EvaluationReport {', '.join(self.pipelines)}: {len(self.questions)} questions of "
            f"{self.judgements} on {self.collection}>"
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows of :meth:`summary_rows` with counts: questions answered, and failed."""
        return [
            {
                **row,
                "questions": len(self.scores[row["pipeline"]]),
                "failed": len(self.failures[row["pipeline"]]),
            }
            for row in self.summary_rows()
        ]


def _relevant(grades: Mapping[str, int]) -> tuple[str, ...]:
    """Return the relevant documents, the best grade first."""
    positive = [document for document, grade in grades.items() if grade >= 1]
    return tuple(sorted(positive, key=lambda document: -grades[document]))


def _mean(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return "not measured"
    return f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
