"""Reports of the same questions, one pipeline each, as one; and questions ordered by both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.evaluation.comparison import EvaluationReport

__all__ = ["QuestionPair", "join_reports", "worst_differences"]


def join_reports(reports: Sequence[EvaluationReport]) -> EvaluationReport:
    """Return one report over the pipelines of all of them.

    Parameters
    ----------
    reports
        At least one; each over the same judgements, collection and metrics, and of other
        pipelines. The first one's first pipeline is the baseline.

    Raises
    ------
    ConfigurationError
        When there is none, they measured different things, or a pipeline stands in two of them.
    """
    if not reports:
        raise ConfigurationError("there is no report to be joined.")
    first = reports[0]
    names = [name for report in reports for name in report.pipelines]
    for report in reports[1:]:
        if (report.collection, report.metrics, dict(report.questions)) != (
            first.collection,
            first.metrics,
            dict(first.questions),
        ):
            raise ConfigurationError(
                "reports of different questions, collections or metrics can't be joined.",
                hint="measure all pipelines on the same judgements",
            )
    if len(set(names)) != len(names):
        raise ConfigurationError("a pipeline stands in two of the reports.")
    return replace(
        first,
        pipelines=tuple(names),
        scores={name: report.scores[name] for report in reports for name in report.pipelines},
        failures={name: report.failures[name] for report in reports for name in report.pipelines},
        found={name: report.found[name] for report in reports for name in report.pipelines},
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
    )


@dataclass(frozen=True, slots=True)
class QuestionPair:
    """One question in two pipelines.

    Attributes
    ----------
    query_id, question
        Which.
    value, baseline
        A metric's value in the one and in the other; None where the question failed.
    """

    query_id: str
    question: str
    value: float | None
    baseline: float | None

    @property
    def difference(self) -> float | None:
        """Value minus baseline; None where either failed."""
        if self.value is None or self.baseline is None:
            return None
        return self.value - self.baseline


def worst_differences(
    report: EvaluationReport, pipeline: str, baseline: str, metric: str
) -> list[QuestionPair]:
    """Return all questions, those first at which a pipeline does worst beside another.

    Questions that failed stand before all others; equal differences are ordered by the
    pipeline's own value, then as the judgements are. A pipeline beside itself is ordered by its
    value.

    Parameters
    ----------
    report
        What was measured.
    pipeline, baseline
        Two of its pipelines.
    metric
        One of its metrics.

    Raises
    ------
    ConfigurationError
        When the report has no such pipeline or metric.
    """
    for name, known, what in (
        (pipeline, report.pipelines, "pipeline"),
        (baseline, report.pipelines, "pipeline"),
        (metric, report.metrics, "metric"),
    ):
        if name not in known:
            raise ConfigurationError(
                f"the report has no {what} '{name}'.", hint=did_you_mean(name, known)
            )

    def value(name: str, query: str) -> float | None:
        scores = report.scores[name].get(query)
        return None if scores is None else scores[metric]

    pairs = [
        QuestionPair(query, text, value(pipeline, query), value(baseline, query))
        for query, text in report.questions.items()
    ]

    def order(pair: QuestionPair) -> tuple[float, float]:
        if pair.difference is None or pair.value is None:
            return (-2.0, 0.0)
        return (pair.difference, pair.value)

    return sorted(pairs, key=order)
