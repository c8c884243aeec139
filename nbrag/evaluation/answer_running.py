"""Asks questions of ways to answer, and measures what they say."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nbrag.background import on_loop
from nbrag.errors import ChatError, ConfigurationError, NbragError, ReplayMissing, StageError
from nbrag.evaluation.answer_cases import AnswerCase, AnswerCases
from nbrag.evaluation.answer_metrics import (
    JUDGED_METRICS,
    alce_citations,
    answer_metrics,
    claim_support,
    plain_values,
)
from nbrag.evaluation.answer_report import AnswerReport
from nbrag.evaluation.running import _at_most
from nbrag.models.chat.claims import CLAIMS_VERSION, SUPPORT_VERSION
from nbrag.protocols import ChatClient, Orchestrator
from nbrag.tracing import stage_span
from nbrag.types import Answer

__all__ = ["evaluate_answers"]

_Judged = TypeVar("_Judged")


@dataclass(slots=True)
class _Measured:
    """What one way to answer made of the questions."""

    scores: dict[str, dict[str, float | None]] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, Exception | str] = field(default_factory=dict)
    judge_errors: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


async def evaluate_answers(
    answerers: Mapping[str, Orchestrator],
    cases: AnswerCases,
    *,
    judge: ChatClient | None = None,
    metrics: Iterable[str] | None = None,
    top_k: int | None = None,
    only_cited: bool = True,
    progress: Callable[[int, int], None] | None = None,
    concurrency: int = 4,
) -> AnswerReport:
    """Measure ways to answer on questions of which the answers are known.

    A question that fails is counted with its error and never scored; nor is one that the judge
    could not judge, for the metrics of the judge. A refusal is an answer like any other.

    Parameters
    ----------
    answerers
        Orchestrators by name; the first is what the others are compared with.
    cases
        The questions.
    judge
        The chat model that judges; better not the one that answers. Its name is in the report.
    metrics
        Names as in :func:`nbrag.evaluation.answer_metrics.answer_metrics`; None for all that can
        be had with or without a judge.
    top_k
        Passages for each answer; None leaves it to the orchestrators.
    only_cited
        Whether claims are held against the cited passages alone.
    progress
        Called on the background loop's thread with answers done and answers in all.
    concurrency
        How many questions are under way at the same time.

    Raises
    ------
    ConfigurationError
        When there is no answerer, or a metric is unknown or needs a judge.
    NbragError
        The first question's error, when every question failed in every way.
    ReplayMissing
        When recorded replies are replayed and one is missing.
    """
    if not answerers:
        raise ConfigurationError("nothing that answers is given.", hint="name one or more")
    if concurrency < 1:
        raise ConfigurationError(f"a concurrency of {concurrency}.", hint="use 1 or more")
    chosen = answer_metrics(metrics, judge=judge is not None)
    run = _Run(dict(answerers), cases, judge, chosen, top_k, only_cited)
    measured = await on_loop(run.run(concurrency, progress))
    judged = judge is not None and any(name in JUDGED_METRICS for name in chosen)
    return AnswerReport(
        cases=cases,
        answerers=tuple(answerers),
        metrics=chosen,
        scores={name: found.scores for name, found in measured.items()},
        answers={name: found.answers for name, found in measured.items()},
        failures={
            name: {question: _words(error) for question, error in found.failures.items()}
            for name, found in measured.items()
        },
        judge_errors={name: found.judge_errors for name, found in measured.items()},
        judge=judge.model if judge is not None and judged else "",
        judge_prompts={"claims": CLAIMS_VERSION, "support": SUPPORT_VERSION} if judged else {},
        seconds={name: found.seconds for name, found in measured.items()},
        notes=tuple(_notes(measured, judge if judged else None)),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One evaluation, on the background loop."""

    answerers: dict[str, Orchestrator]
    cases: AnswerCases
    judge: ChatClient | None
    metrics: tuple[str, ...]
    top_k: int | None
    only_cited: bool

    async def run(
        self, concurrency: int, progress: Callable[[int, int], None] | None
    ) -> dict[str, _Measured]:
        """Return what each way to answer came to."""
        measured = {name: _Measured() for name in self.answerers}
        total = len(self.cases) * len(measured)
        done = 0

        async def measure(name: str, case: AnswerCase) -> None:
            nonlocal done
            await self._measure(name, case, measured[name])
            done += 1
            if progress is not None:
                progress(done, total)

        await _at_most(concurrency, (measure(n, case) for case in self.cases for n in measured))
        failures = [error for found in measured.values() for error in found.failures.values()]
        if len(failures) == total:
            first = failures[0]
            if isinstance(first, NbragError):
                raise first
            raise StageError("evaluation", f"every question failed, the first with {first}")
        return measured

    async def _measure(self, name: str, case: AnswerCase, found: _Measured) -> None:
        started = time.perf_counter()
        try:
            answer = await self.answerers[name].answer(case.question, top_k=self.top_k)
        except ReplayMissing:
            # Figures over the questions that happen to be recorded would be those of another run.
            raise
        except Exception as error:  # noqa: BLE001 - counted, and shown with its reason
            found.failures[case.id] = error
            return
        found.seconds[case.id] = time.perf_counter() - started
        found.answers[case.id] = answer
        if answer.outcome == "failed":
            found.failures[case.id] = answer.reason
            return
        values = plain_values(answer, case)
        if self.judge is not None:
            values |= await self._judged(self.judge, answer, case.id, found)
        found.scores[case.id] = {metric: values.get(metric) for metric in self.metrics}

    async def _judged(
        self, judge: ChatClient, answer: Answer, question: str, found: _Measured
    ) -> dict[str, float | None]:
        """Return the judge's values; what it could not judge is noted and has none."""
        values: dict[str, float | None] = {}
        errors: dict[str, str] = {}

        async def tried(call: Awaitable[_Judged], *names: str) -> _Judged | None:
            try:
                with stage_span("nbrag.stage judge", {"nbrag.stage": "judge"}):
                    return await call
            except ReplayMissing:
                raise
            except ChatError as error:
                errors.update(dict.fromkeys(names, _words(error)))
                return None

        if "claim support" in self.metrics:
            supported = await tried(
                claim_support(judge, answer, only_cited=self.only_cited), "claim support"
            )
            values["claim support"] = None if supported is None else supported[0]
        names = [n for n in ("citation precision", "citation recall") if n in self.metrics]
        if names:
            pair = await tried(alce_citations(judge, answer), *names)
            values["citation precision"], values["citation recall"] = pair or (None, None)
        if errors:
            found.judge_errors[question] = errors
        return values


def _words(error: Any) -> str:
    if isinstance(error, str):
        return error
    return f"{type(error).__name__}: {getattr(error, 'message', None) or error}"


def _notes(measured: Mapping[str, _Measured], judge: ChatClient | None) -> Iterator[str]:
    """Yield what a reader of the figures must know."""
    if judge is not None:
        yield f"judged by {judge.model}"
    for name, found in measured.items():
        models = {answer.model for answer in found.answers.values()}
        if judge is not None and judge.model in models:
            yield f"{name}: the judge is the model that answered: figures may flatter it"
        if found.failures:
            question, reason = next(iter(sorted(found.failures.items(), key=lambda one: one[0])))
            count = len(found.failures)
            yield f"{name}: {count} questions failed, e.g. {question}: {_words(reason)}"
        if found.judge_errors:
            question, errors = next(iter(sorted(found.judge_errors.items())))
            reason = next(iter(errors.values()))
            yield (
                f"{name}: {len(found.judge_errors)} questions could not be judged, e.g. "
                f"{question}: {reason}"
            )
