"""Runs judged questions through pipelines and measures what they find."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nbrag.background import on_loop
from nbrag.errors import ConfigurationError, NbragError, ReplayMissing, StageError
from nbrag.evaluation.comparison import EvaluationReport
from nbrag.evaluation.judgements import Judgements
from nbrag.evaluation.matching import Matching, match_judgements, nothing_matches
from nbrag.evaluation.metrics import DEFAULT_METRICS, metric_values, parse_metrics
from nbrag.protocols import Collection
from nbrag.types import RetrievalResults

__all__ = ["MeasurablePipeline", "evaluate"]

#: Most chunks per document that the first search of a question allows for.
_MOST_CHUNKS_PER_DOCUMENT = 4
_SHOWN = 3


class MeasurablePipeline(Protocol):
    """What can be measured: a :class:`nbrag.retrieval.pipeline.RetrievalPipeline`, or the like."""

    async def process(
        self, collection: Any, query: Any, top_k: int = 5, *, where: Any = None
    ) -> RetrievalResults:
        """Return at most ``top_k`` chunks, best first."""
        ...


@dataclass(slots=True)
class _Outcomes:
    """What one pipeline made of the questions."""

    rankings: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)


async def evaluate(
    pipelines: Mapping[str, MeasurablePipeline],
    collection: Collection,
    judgements: Judgements,
    *,
    metrics: Iterable[str] = DEFAULT_METRICS,
    progress: Callable[[int, int], None] | None = None,
    concurrency: int = 4,
    use_filters: bool = False,
) -> EvaluationReport:
    """Measure pipelines on judged questions.

    Documents are ranked by their best chunk. A pipeline is asked for more chunks until the
    metrics' depth in distinct documents is reached or there are no more. A question that fails
    is counted with its error and never scored as 0.

    Parameters
    ----------
    pipelines
        Pipelines by name; the first is what the others are compared with.
    collection
        What is searched.
    judgements
        The questions and their relevant documents.
    metrics
        Names such as ``nDCG@10``, ``recall@5``, ``MRR``, ``P@3``, ``MAP``; see
        :mod:`nbrag.evaluation.metrics`.
    progress
        Called on the background loop's thread with questions done and questions in all, over
        all pipelines.
    concurrency
        How many questions are under way at the same time.
    use_filters
        Whether ``where`` in a query's metadata is applied as its filter.

    Raises
    ------
    ConfigurationError
        When there is no pipeline, no metric, or one that is unknown.
    JudgementsError
        When the judgements name nothing that the collection has.
    NbragError
        The first question's error, when every question failed in every pipeline.
    """
    if not pipelines:
        raise ConfigurationError("no pipeline is given.", hint="name one or more to be measured")
    if concurrency < 1:
        raise ConfigurationError(f"a concurrency of {concurrency}.", hint="use 1 or more")
    parsed = parse_metrics(metrics)
    run = _Run(
        dict(pipelines),
        collection,
        judgements,
        depth=max(metric.depth for metric in parsed),
        use_filters=use_filters,
    )
    matching, outcomes = await on_loop(run.run(concurrency, progress))
    scores = {
        name: metric_values(parsed, matching.qrels, found.rankings)
        for name, found in outcomes.items()
    }
    return EvaluationReport(
        collection=collection.name,
        judgements=judgements.name,
        pipelines=tuple(pipelines),
        metrics=tuple(metric.name for metric in parsed),
        scores=scores,
        failures={name: _failures(found) for name, found in outcomes.items()},
        questions=judgements.queries,
        found={name: found.rankings for name, found in outcomes.items()},
        wanted=matching.qrels,
        notes=tuple(_notes(judgements, matching, outcomes)),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One evaluation, on the background loop."""

    pipelines: dict[str, MeasurablePipeline]
    collection: Collection
    judgements: Judgements
    depth: int
    use_filters: bool

    async def run(
        self, concurrency: int, progress: Callable[[int, int], None] | None
    ) -> tuple[Matching, dict[str, _Outcomes]]:
        """Return how documents are named, and what each pipeline found."""
        matching = await match_judgements(self.judgements, self.collection)
        documents, chunks = await self.collection.count()
        per_document = 1
        if matching.unit != "chunk" and documents:
            per_document = min(math.ceil(chunks / documents), _MOST_CHUNKS_PER_DOCUMENT)
        first = self.depth * max(per_document, 1)
        outcomes = {name: _Outcomes() for name in self.pipelines}
        total = len(self.judgements) * len(self.pipelines)
        done = 0

        async def measure(name: str, query: str) -> None:
            nonlocal done
            await self._ask(name, query, matching, outcomes[name], first=first, most=chunks)
            done += 1
            if progress is not None:
                progress(done, total)

        jobs = (measure(name, query) for query in self.judgements.queries for name in outcomes)
        await _at_most(concurrency, jobs)
        self._require_sense(matching, outcomes)
        return matching, outcomes

    async def _ask(
        self,
        name: str,
        query: str,
        matching: Matching,
        outcomes: _Outcomes,
        *,
        first: int,
        most: int,
    ) -> None:
        """Ask one question, for ever more chunks until enough documents are ranked."""
        where = self.judgements.metadata.get(query, {}).get("where") if self.use_filters else None
        text = self.judgements.queries[query]
        top_k = first
        try:
            while True:
                results = await self.pipelines[name].process(
                    self.collection, text, top_k=top_k, where=where
                )
                ranking = matching.ranking(results)
                if len(ranking) >= self.depth or len(results) < top_k or top_k >= most:
                    break
                top_k *= 2
        except ReplayMissing:
            # Figures over the questions that happen to be recorded would be those of another run.
            raise
        except Exception as error:  # noqa: BLE001 - counted, and shown with its reason
            outcomes.errors[query] = error
            return
        outcomes.rankings[query] = ranking[: self.depth]
        if results.warnings:
            outcomes.warnings[query] = results.warnings[0]

    def _require_sense(self, matching: Matching, outcomes: Mapping[str, _Outcomes]) -> None:
        """Raise when all questions failed, or when nothing found was ever judged."""
        errors = [error for found in outcomes.values() for error in found.errors.values()]
        if len(errors) == len(outcomes) * len(self.judgements):
            if isinstance(errors[0], NbragError):
                raise errors[0]
            raise StageError(
                "evaluation",
                f"every question failed, the first with {type(errors[0]).__name__}: {errors[0]}",
            ) from errors[0]
        if matching.unit == "field":
            judged = {name for grades in matching.qrels.values() for name in grades}
            rankings = [r for found in outcomes.values() for r in found.rankings.values()]
            seen = {name for ranking in rankings for name in ranking}
            if not seen & judged:
                raise nothing_matches(self.judgements, self.collection, seen)


async def _at_most(limit: int, jobs: Iterator[Coroutine[Any, Any, None]]) -> None:
    """Run jobs, at most ``limit`` at the same time, in order; a failing one stops the rest."""

    async def work() -> None:
        for job in jobs:
            await job

    workers = [asyncio.create_task(work()) for _ in range(limit)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _failures(found: _Outcomes) -> dict[str, str]:
    """Return each failed question's error in words."""
    return {
        query: f"{type(error).__name__}: {getattr(error, 'message', None) or error}"
        for query, error in found.errors.items()
    }


def _notes(
    judgements: Judgements, matching: Matching, outcomes: Mapping[str, _Outcomes]
) -> Iterator[str]:
    """Yield what a reader of the figures must know."""
    if judgements.left_out:
        yield f"{judgements.left_out} queries without a relevant document are left out"
    if matching.missing:
        shown = ", ".join(matching.missing[:_SHOWN])
        more = ", ..." if len(matching.missing) > _SHOWN else ""
        yield (
            f"{len(matching.missing)} judged {matching.unit}s are not in the collection and count "
            f"as not found: {shown}{more}"
        )
    for name, found in outcomes.items():
        failures = _failures(found)
        if failures:
            query, reason = next(iter(sorted(failures.items())))
            yield f"{name}: {len(failures)} questions failed, e.g. {query}: {reason}"
        if found.warnings:
            query, warning = next(iter(sorted(found.warnings.items())))
            yield f"{name}: {len(found.warnings)} questions with warnings, e.g. {query}: {warning}"
