"""What the eval panel does, through the same calls as magics and scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from nbrag.asking import DEFAULT_PIPELINE
from nbrag.errors import (
    CollectionNotFound,
    ConfigurationError,
    JudgementsError,
    NbragError,
    StoreError,
)
from nbrag.evaluation import EvaluationReport, evaluate
from nbrag.evaluation.joining import join_reports
from nbrag.evaluation.metrics import parse_metrics
from nbrag.notebook.panels.messages import error_lines
from nbrag.notebook.panels.searching import search_with
from nbrag.retrieval import RetrievalPipelineBuilder

if TYPE_CHECKING:
    from nbrag.notebook.panels.eval_state import EvalState
    from nbrag.notebook.panels.jobs import Report
    from nbrag.spec import PipelineSpec
    from nbrag.workspace import Workspace

__all__ = ["Measuring", "begin", "look", "measure", "refresh", "set_metrics"]

#: Results of a question that are looked at.
_SHOWN = 10


def refresh(workspace: Workspace, state: EvalState) -> None:
    """Look which collections, pipelines and judgements there are."""
    state.collections = tuple(workspace.collections())
    state.saved = tuple(workspace.pipelines())
    state.kept = tuple(workspace.judgements.names())


def begin(workspace: Workspace, state: EvalState, names: tuple[str, ...], cases: Any) -> None:
    """Begin with pipelines, by default all that there are, and judgements."""
    refresh(workspace, state)
    for name in names:
        workspace.pipeline_spec(name)
    state.chosen = names or state.saved
    state.cases = cases or (state.kept[0] if state.kept else "")


def set_metrics(state: EvalState, text: str) -> None:
    """Take metrics that are written with commas; a name that is none is told at once."""
    names = [word.strip() for word in text.split(",") if word.strip()]
    state.metrics = tuple(metric.name for metric in parse_metrics(names))


class Measuring:
    """One evaluation, pipeline by pipeline, so that a stop or an error keeps the others.

    Attributes
    ----------
    reports
        Those of the pipelines that are done.
    problems
        Per pipeline that could not be measured, the lines that say why.
    shown
        Whether the state has them.
    """

    def __init__(self) -> None:
        self.reports: list[EvaluationReport] = []
        self.problems: dict[str, tuple[str, ...]] = {}
        self.shown = False

    def show(self, state: EvalState) -> None:
        """Give the state what there is, once."""
        if self.shown:
            return
        self.shown = True
        if self.reports:
            state.keep(join_reports(self.reports), self.problems)
        else:
            state.problems = dict(self.problems)


def measure(
    workspace: Workspace, state: EvalState
) -> tuple[Measuring, Callable[[Report], Coroutine[Any, Any, None]], Callable[[None], None]]:
    """Return an evaluation, its work and what takes its end."""
    names = tuple(state.chosen) or (DEFAULT_PIPELINE,)
    if not state.cases:
        raise JudgementsError(
            "no judgements are given.",
            hint="name a .jsonl file, a BEIR folder, or judgements that the search panel kept",
        )
    judgements = workspace.judgements.find(state.cases)
    specs = {name: workspace.pipeline_spec(name) for name in names}
    begun = Measuring()
    collection, metrics = state.collection or None, tuple(state.metrics)

    async def work(report: Report) -> None:
        """Measure the pipelines one after another; one that fails leaves the others."""
        first: NbragError | None = None
        for place, (name, spec) in enumerate(specs.items()):
            try:
                begun.reports.append(await measure_one(name, spec, place, report))
            except (JudgementsError, CollectionNotFound, StoreError):
                # These are no matter of one pipeline.
                raise
            except NbragError as error:
                first = first or error
                begun.problems[name] = error_lines(error)
        if first is not None and not begun.reports:
            raise first

    async def measure_one(
        name: str, spec: PipelineSpec, place: int, report: Report
    ) -> EvaluationReport:
        """Return one pipeline's figures."""
        pipeline, target = await asyncio.to_thread(
            lambda: (
                RetrievalPipelineBuilder(spec, workspace.context).build(),
                workspace.choose_collection(collection, spec),
            )
        )

        def tell(done: int, total: int) -> None:
            """Report a count over all pipelines."""
            report(place * total + done, len(specs) * total, f"{name}: {done} of {total} questions")

        return await evaluate({name: pipeline}, target, judgements, metrics=metrics, progress=tell)

    def done(_: None) -> None:
        begun.show(state)
        state.status = f"{judgements.name}: {len(judgements)} questions were measured."

    return begun, work, done


def look(
    workspace: Workspace, state: EvalState, query: str
) -> tuple[
    Callable[[Report], Coroutine[Any, Any, dict[str, Any]]], Callable[[dict[str, Any]], None]
]:
    """Return the work that asks a question of the compared pipelines, and what takes its end."""
    report: EvaluationReport | None = state.report
    if report is None or query not in report.questions:
        raise ConfigurationError("no question is chosen.", hint="choose one in the list")
    question, collection = report.questions[query], report.collection
    specs = {name: workspace.pipeline_spec(name) for name in state.compared}
    state.query = query

    async def work(_: Report) -> dict[str, Any]:
        """Return what each pipeline finds, or the error that it ends with."""
        found: dict[str, Any] = {}
        for name, spec in specs.items():
            try:
                found[name] = await search_with(
                    workspace, spec, question, collection=collection, top_k=_SHOWN
                )
            except (CollectionNotFound, StoreError):
                raise
            except NbragError as error:
                found[name] = error_lines(error)
        return found

    def done(found: dict[str, Any]) -> None:
        if state.query == query:
            state.looked = found

    return work, done
