"""One question on its way to an answer: its events, its limits, its evidence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nbrag.errors import ChatError, ChatUnavailable
from nbrag.models.chat.managed import ManagedChatClient
from nbrag.orchestration.evidence import Evidence, register_evidence
from nbrag.orchestration.limits import LimitedChatClient
from nbrag.orchestration.reading import CitedText
from nbrag.protocols import Retriever
from nbrag.tracing import Trace, stage_span
from nbrag.types import (
    Answer,
    AnswerEvent,
    EvidenceRegistered,
    RetrievalChunk,
    RetrievalResults,
    StageFinished,
    StageStarted,
    Turn,
)

__all__ = ["AnswerRun"]

_Result = TypeVar("_Result")


@dataclass(slots=True)
class AnswerRun:
    """One question on its way to an answer.

    Attributes
    ----------
    asked
        The question as it was asked.
    question
        The question that is searched and answered: it can be understood without the conversation.
    history
        The conversation before.
    top_k, where
        How many passages, and the filter that they must pass.
    chat
        The chat model, with limits and accounts.
    retriever
        Where passages are looked for.
    moment
        The background loop's time, in seconds, up to which a model may be waited for.
    streams
        Whether somebody listens to the pieces of the text.
    warnings
        What has to be said in the end; append to it.
    trace
        Of the retrieval and of the answer's own stages; a later retrieval's stages are numbered.
    evidence
        The passages that have numbers; see :meth:`register`.
    so_far
        Makes the best answer so far where the time limit ends the work in its midst.
    """

    asked: str
    question: str
    history: tuple[Turn, ...]
    top_k: int
    where: Any
    chat: ManagedChatClient | LimitedChatClient
    retriever: Retriever
    moment: float
    streams: bool
    emit: Callable[[AnswerEvent], None]
    warnings: list[str] = field(default_factory=list)
    trace: Trace = field(default_factory=lambda: Trace("", ""))
    evidence: Evidence = field(default_factory=Evidence)
    so_far: Callable[[ChatError], Answer] | None = None
    _retrievals: int = 0

    def warn(self, warning: str) -> None:
        """Add a warning, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    @contextlib.contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[dict[str, Any]]:
        """Run a stage of the answer: events, a span, its name in the ledger, a line of the trace.

        Yields
        ------
        dict
            Set ``detail`` to what the stage did, and ``chunk_ids`` to what it chose.
        """
        self.emit(StageStarted(name, detail))
        told: dict[str, Any] = {"detail": ""}
        with stage_span(f"nbrag.stage {name}", {"nbrag.stage": name}) as outcome:
            try:
                yield told
            except BaseException as error:
                told["detail"] = told["detail"] or f"ended with {type(error).__name__}"
                raise
            finally:
                self.emit(StageFinished(name, str(told["detail"])))
        self.trace.note(
            name,
            [(chunk_id, None) for chunk_id in told.get("chunk_ids", ())],
            milliseconds=outcome["milliseconds"],
            explanation=str(told["detail"]),
            ranks=False,
        )

    async def in_time(self, answer: Awaitable[_Result]) -> _Result:
        """Return what comes before the run's last moment.

        Raises
        ------
        ChatUnavailable
            When it doesn't come in time.
        """
        try:
            async with asyncio.timeout_at(self.moment) as clock:
                return await answer
        except TimeoutError:
            if not clock.expired():
                raise
            raise ChatUnavailable(
                "there was no answer within the time limit.", hint="raise time_limit="
            ) from None

    async def retrieve(self, query: str, *, top_k: int | None = None) -> RetrievalResults:
        """Retrieve passages in a stage of its own; warnings and trace are kept.

        Parameters
        ----------
        query
            What is searched for: the question, or another one that a loop has come to.
        top_k
            Most passages; None for as many as were asked for.
        """
        with self.stage("retrieve", "") as told:
            results = await self.in_time(
                self.retriever.retrieve(query, top_k=top_k or self.top_k, where=self.where)
            )
            told["detail"] = "1 passage" if len(results) == 1 else f"{len(results)} passages"
            self._retrievals += 1
            if isinstance(results.trace, Trace):
                self._take_over(results.trace)
        for warning in results.warnings:
            self.warn(warning)
        return results

    def _take_over(self, found: Trace) -> None:
        """Add a retrieval's stages to the trace."""
        self.trace.collection = self.trace.collection or found.collection
        self.trace.labels |= found.labels
        for record in found.stages:
            first = self._retrievals == 1
            name = record.stage if first else f"{record.stage} #{self._retrievals}"
            rows = tuple(replace(row, stage=name) for row in record.rows)
            self.trace.stages.append(replace(record, stage=name, rows=rows))

    def register(self, chunks: Sequence[RetrievalChunk], context_tokens: int) -> Evidence:
        """Give new chunks the next numbers, and tell; must come before anything is written."""
        self.evidence = register_evidence(chunks, context_tokens, earlier=self.evidence)
        for warning in self.evidence.warnings:
            self.warn(warning)
        self.emit(EvidenceRegistered(self.evidence.passages))
        return self.evidence

    def answer_of(self, cited: CitedText, **fields: Any) -> Answer:
        """Return the answer that a checked text makes; ``fields`` are further ones of it."""
        for warning in cited.warnings:
            self.warn(warning)
        known = cited.support is not None
        return Answer(
            self.asked,
            cited.text,
            cited.outcome,
            cited.reason,
            citations=cited.citations,
            passages=self.evidence.passages,
            **{
                "support": cited.support,
                "support_basis": "citations" if known else "none",
                **fields,
            },
        )

    def refused(self, reason: str, **fields: Any) -> Answer:
        """Return that the collection does not answer the question."""
        return Answer(self.asked, "", "refused", reason, passages=self.evidence.passages, **fields)

    def failed(self, error: ChatError, **fields: Any) -> Answer:
        """Return what a failed model leaves: no answer, and a warning."""
        self.warn(f"stage 'answer' failed: {error.message}")
        return Answer(
            self.asked, "", "failed", error.message, passages=self.evidence.passages, **fields
        )
