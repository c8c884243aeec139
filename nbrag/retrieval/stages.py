"""Runs the stages of a pipeline: spans, trace, history, and what happens when one fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from nbrag.errors import ChatError, NbragError, StageError
from nbrag.protocols import Collection, RetrievalQueryProcessor, RetrievalResultProcessor
from nbrag.tracing import Trace, stage_span
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults

__all__ = ["StageRunner"]

#: Longest value of the metadata that a trace's explanation repeats.
_SHORT = 40
_Answer = TypeVar("_Answer")
_Data = TypeVar("_Data", RetrievalQuery, RetrievalResults)


class StageRunner:
    """Runs processors one after the other, for one question.

    A stage that fails, or takes longer than its option ``time_limit``, is passed over: its input
    goes on unchanged with a warning. Errors that the person has to mend (a missing package, a
    wrong filter, a locked file: every :class:`nbrag.errors.NbragError` but
    :class:`nbrag.errors.StageError` and :class:`nbrag.errors.ChatError`) are always raised.

    Parameters
    ----------
    collection
        What is searched.
    trace
        Where the stages are written down.
    strict
        Whether a failing stage raises :class:`nbrag.errors.StageError` instead.
    """

    def __init__(self, collection: Collection, trace: Trace, *, strict: bool) -> None:
        self._collection = collection
        self._trace = trace
        self._strict = strict

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[dict[str, Any]]:
        """Run something in the span of a stage; see :func:`nbrag.tracing.stage_span`."""
        with stage_span(f"nbrag.stage {name}", {"nbrag.stage": name}) as outcome:
            yield outcome

    async def change_query(
        self, processor: RetrievalQueryProcessor, query: RetrievalQuery
    ) -> RetrievalQuery:
        """Return the query after a stage; its text stays as it was asked."""
        changed = query
        with self.span(processor.name) as outcome:
            try:
                answer = await _in_time(processor, processor.process(query, self._collection))
                changed = _checked(processor.name, answer, query)
                changed = replace(changed, text=query.text)
            except Exception as error:  # noqa: BLE001 - degraded or raised by _passed_over
                changed = query.with_warning(self._passed_over(processor.name, error, outcome))
        explanation = outcome.get("nbrag.failure") or _difference(query, changed)
        self._trace.note(
            processor.name,
            (),
            milliseconds=outcome["milliseconds"],
            explanation=explanation,
            ranks=False,
        )
        return changed

    async def change_results(
        self, processor: RetrievalResultProcessor, results: RetrievalResults
    ) -> RetrievalResults:
        """Return the results after a stage, each chunk with its history entry."""
        changed = results
        with self.span(processor.name) as outcome:
            try:
                answer = await _in_time(processor, processor.process(results, self._collection))
                changed = _checked(processor.name, answer, results)
                changed = _with_history(processor.name, results, changed)
            except Exception as error:  # noqa: BLE001 - degraded or raised by _passed_over
                changed = results.with_warning(self._passed_over(processor.name, error, outcome))
            outcome["nbrag.results"] = len(changed)
        self._trace.note_chunks(
            processor.name,
            changed.chunks,
            milliseconds=outcome["milliseconds"],
            explanation=outcome.get("nbrag.failure") or _news(results.metadata, changed.metadata),
        )
        return changed

    def _passed_over(self, stage: str, error: Exception, outcome: dict[str, Any]) -> str:
        """Return the warning for a failed stage; raise when nothing may be passed over."""
        if isinstance(error, NbragError) and not isinstance(error, StageError | ChatError):
            raise error
        if isinstance(error, ChatError):
            reason = error.message
            if self._strict:
                raise StageError(stage, reason, hint=error.hint) from error
        elif isinstance(error, StageError):
            if self._strict:
                raise error
            reason = error.message.removeprefix(f"stage '{stage}': ")
        else:
            reason = f"{type(error).__name__}: {error}"
            if self._strict:
                raise StageError(stage, reason) from error
        outcome["error.type"] = type(error).__name__
        outcome["nbrag.failure"] = "failed and was passed over"
        return f"stage '{stage}' failed and was passed over: {reason}"


async def _in_time(processor: Any, answer: Awaitable[_Answer]) -> _Answer:
    """Return a processor's answer; a StageError when it takes longer than its options allow."""
    limit = getattr(getattr(processor, "options", None), "time_limit", None)
    if limit is None:
        return await answer
    try:
        async with asyncio.timeout(limit) as clock:
            return await answer
    except TimeoutError:
        if not clock.expired():
            raise
        raise StageError(
            processor.name,
            f"it took longer than {limit:g} seconds.",
            hint="raise time_limit=, or see whether the model answers at all",
        ) from None


def _checked(stage: str, answer: Any, before: _Data) -> _Data:
    """Return a processor's answer with all earlier warnings; refuse what is no answer at all."""
    if not isinstance(answer, type(before)):
        wanted = type(before).__name__
        raise StageError(stage, f"it returned {type(answer).__name__}, not {wanted}.")
    answered: _Data = answer
    warnings = tuple(dict.fromkeys((*before.warnings, *answered.warnings)))
    return replace(answered, warnings=warnings)


def _with_history(
    stage: str, before: RetrievalResults, after: RetrievalResults
) -> RetrievalResults:
    """Return the results, each chunk with an entry of the stage, also where it wrote none."""
    entries = {chunk.id: len(chunk.history) for chunk in before.chunks}
    scores = {chunk.id: chunk.score for chunk in before.chunks}

    def complete(rank: int, chunk: RetrievalChunk) -> RetrievalChunk:
        if len(chunk.history) > entries.get(chunk.id, 0):
            return chunk
        new_score = None if scores.get(chunk.id) == chunk.score else chunk.score
        return chunk.ranked(stage, rank, new_score)

    chunks = tuple(complete(rank, chunk) for rank, chunk in enumerate(after.chunks, start=1))
    return replace(after, chunks=chunks)


def _difference(before: RetrievalQuery, after: RetrievalQuery) -> str:
    """Return what a stage did to the query, in words."""
    parts = []
    if after.variants is not before.variants:
        count = len(after.effective_variants)
        parts.append("1 variant" if count == 1 else f"{count} variants")
    if after.filter is not before.filter:
        parts.append(f"filter {after.filter}")
    if after.strategy is not before.strategy:
        parts.append(f"strategy {after.strategy}")
    parts += filter(None, [_news(before.metadata, after.metadata)])
    return ", ".join(parts) or "the query stays as it is"


def _news(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what a stage said about the whole set, where it is short enough for a line."""
    return ", ".join(
        f"{name} {value}"
        for name, value in after.items()
        if isinstance(value, str | int | float)
        and before.get(name) != value
        and len(str(value)) <= _SHORT
    )
