"""What a workspace does with questions: searches that leave a trace, and answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nbrag.background import run_with_progress
from nbrag.chat_models import ChatModels
from nbrag.errors import StoreError
from nbrag.types import Answer, AnswerEvent, RetrievalResults, Turn

if TYPE_CHECKING:
    from nbrag.evaluation import AnswerCases, AnswerReport
    from nbrag.protocols import ChatClient, Collection, Orchestrator
    from nbrag.spec import BuildContext, PipelineSpec
    from nbrag.stores.duckdb import DuckDBDatabase

__all__ = ["DEFAULT_PIPELINE", "AskingWorkspace"]

#: The pipeline that always exists: hybrid search with default options.
DEFAULT_PIPELINE = "default"
_Found = TypeVar("_Found", RetrievalResults, Answer)


class AskingWorkspace:
    """The part of a :class:`nbrag.workspace.Workspace` that answers questions."""

    read_only: bool
    database: DuckDBDatabase
    models: ChatModels

    @property
    @abstractmethod
    def context(self) -> BuildContext:
        """What stages are built with."""

    @abstractmethod
    def choose_collection(self, name: str | None, spec: PipelineSpec | None = None) -> Collection:
        """Return the collection that is meant."""

    @abstractmethod
    def pipeline_spec(self, name: str) -> PipelineSpec:
        """Return the specification of a kept pipeline."""

    def answerer(
        self,
        *,
        collection: str | None = None,
        pipeline: str = DEFAULT_PIPELINE,
        chat: ChatClient | str | None = None,
        strict: bool = False,
        **options: Any,
    ) -> Orchestrator:
        """Return what answers questions about a collection.

        Parameters
        ----------
        collection
            Which collection; see :meth:`choose_collection`.
        pipeline
            Name of the pipeline; its last stage says how it answers: ``answer`` and the like, the
            former where there is none.
        chat
            Another chat model than the workspace's, for the answer alone.
        strict
            Whether stages and a model that fail raise instead of giving a warning.
        options
            Options of the stage that answers, instead of the pipeline's.

        Raises
        ------
        ConfigurationError
            When there is no chat model.
        """
        from dataclasses import replace

        from nbrag.retrieval import RetrievalPipelineBuilder
        from nbrag.spec import stage_definition
        from nbrag.spec.pipeline import make_stage

        spec = self.pipeline_spec(pipeline)
        target = self.choose_collection(collection, spec)
        stage = spec.answer_stage()
        name = "answer" if stage is None else stage.name
        given = {} if stage is None else stage.changed_options()
        changed = make_stage("retrieval", name, {**given, **options})
        others = tuple(one for one in spec.stages if one is not stage)
        spec = replace(spec, stages=(*others, changed))
        context = replace(self.context, strict=strict)
        retriever = RetrievalPipelineBuilder(spec, context).build().as_retriever(target)
        if chat is not None:
            model = self.models.other(chat)
            context = replace(context, chat=lambda: model)
        make = stage_definition("retrieval", name).build(changed.options, context)
        made: Orchestrator = make(retriever)
        return made

    def ask(
        self,
        question: str,
        *,
        collection: str | None = None,
        pipeline: str = DEFAULT_PIPELINE,
        top_k: int | None = None,
        where: Any = None,
        after: Answer | Sequence[Turn] = (),
        chat: ChatClient | str | None = None,
        progress: Callable[[Sequence[AnswerEvent]], None] | None = None,
        **options: Any,
    ) -> Answer:
        """Answer a question from a collection, with citations that were checked.

        Parameters
        ----------
        question
            The question.
        collection, pipeline, chat, options
            As in :meth:`answerer`.
        top_k
            Passages that are retrieved; None for the stage's option ``passages``, or 5.
        where
            A filter that the passages must pass.
        after
            The answer, or the turns, that the question follows: it is put so that it can be
            understood without them, with one more call.
        progress
            Called in the calling thread, about ten times a second, with the events since the
            last time; the text then comes piece by piece.
        """
        orchestrator = self.answerer(collection=collection, pipeline=pipeline, chat=chat, **options)
        history = after.turns if isinstance(after, Answer) else tuple(after)
        events: list[AnswerEvent] = []
        told = 0

        def tell(_: int) -> None:
            nonlocal told
            new = events[told:]
            told += len(new)
            if progress is not None and new:
                progress(new)

        def start(keep: Callable[[int], None]) -> Any:
            def note(event: AnswerEvent) -> None:
                events.append(event)
                keep(len(events))

            return orchestrator.answer(
                question,
                top_k=top_k,
                where=where,
                history=history,
                on_event=None if progress is None else note,
            )

        answer: Answer = run_with_progress(start, tell)
        return self._with_recorded_trace(answer, pipeline)

    def evaluate_answers(
        self,
        pipelines: Sequence[str],
        cases: AnswerCases | str | Path,
        *,
        collection: str | None = None,
        judge: ChatClient | str | None = None,
        metrics: Iterable[str] | None = None,
        top_k: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> AnswerReport:
        """Measure the answers of kept pipelines on questions of which the answers are known.

        Parameters
        ----------
        pipelines
            Names; the first is what the others are compared with.
        cases
            Cases, or a BEIR folder or JSON Lines file to load them from.
        collection
            Which collection; see :meth:`choose_collection`.
        judge
            A chat model, or its name, that judges claims and citations; None measures only what
            needs no judge. Better not the model that answers.
        metrics
            Names as in :func:`nbrag.evaluation.answer_metrics.answer_metrics`; None for all.
        top_k
            Passages for each answer; None leaves it to the pipelines.
        progress
            Called in the calling thread with answers done and answers in all.
        """
        from nbrag.evaluation import AnswerCases, evaluate_answers

        names = list(pipelines) or [DEFAULT_PIPELINE]
        loaded = cases if isinstance(cases, AnswerCases) else AnswerCases.load(cases)
        target = collection or self.pipeline_spec(names[0]).collection
        answerers = {name: self.answerer(collection=target, pipeline=name) for name in names}
        model = None if judge is None else self.models.other(judge)

        def start(keep: Callable[[tuple[int, int]], None]) -> Any:
            return evaluate_answers(
                answerers,
                loaded,
                judge=model,
                metrics=metrics,
                top_k=top_k,
                progress=lambda done, total: keep((done, total)),
            )

        tell = None if progress is None else lambda state: progress(*state)
        report: AnswerReport = run_with_progress(start, tell)
        return report

    def _with_recorded_trace(self, found: _Found, pipeline: str) -> _Found:
        """Keep the run in the table ``nbrag.trace``; a failure to do so is only a warning."""
        from dataclasses import replace

        from nbrag.stores.duckdb import record_trace

        if self.read_only or found.trace is None:
            return found
        try:
            record_trace(
                self.database,
                found.trace.rows(),
                question=found.trace.question,
                collection=found.trace.collection,
                pipeline=pipeline,
            )
        except StoreError as error:
            warning = f"the trace was not kept: {error.message}"
            return replace(found, warnings=(*found.warnings, warning))
        return found
