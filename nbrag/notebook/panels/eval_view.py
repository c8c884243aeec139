"""The eval panel: pipelines by metrics, and the questions behind the figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbrag.evaluation import EvaluationReport
from nbrag.notebook.panels import eval_actions as actions
from nbrag.notebook.panels.base import Panel
from nbrag.notebook.panels.controls import (
    button,
    choice,
    column,
    listing,
    markup,
    row,
    several,
    text_line,
)
from nbrag.notebook.panels.eval_state import PAGE, EvalState, found_list, question_label
from nbrag.notebook.panels.messages import shown_database, without_private
from nbrag.notebook.panels.snapshots import alert_html, facts, part, rendered
from nbrag.rendering import Rendering, plain

if TYPE_CHECKING:
    from nbrag.workspace import Workspace

__all__ = ["EvalPanel"]

_ANY = ("whichever is chosen", "")
_FIRST = "Those to be measured; the first is what the others are compared with"
_PICTURED = 10


class EvalPanel(Panel):
    """Measures pipelines on judged questions, and shows where they differ.

    Parameters
    ----------
    workspace
        Where the collection and the pipelines are.
    names
        Pipelines; the first is what the others are compared with. None for all.
    collection
        What is searched.
    cases
        Judgements, a file or folder, or the name of judgements that the file keeps.
    """

    heading = "Evaluation"
    state: EvalState

    def __init__(
        self,
        workspace: Workspace | Callable[[], Workspace],
        *names: str,
        collection: str | None = None,
        cases: Any = None,
    ) -> None:
        state = EvalState()
        super().__init__(workspace, state)
        state.collection = collection or ""
        self._measuring: actions.Measuring | None = None
        self._make_controls()
        self._tie()
        self.act(lambda: actions.begin(self.workspace, state, names, cases))

    def _make_controls(self) -> None:
        self._collection = choice("Collection", [_ANY], "", width="24em")
        self._cases = text_line(
            "Judgements",
            suggestions=(),
            placeholder="cases.jsonl, a BEIR folder, or a name",
            width="30em",
        )
        self._pipelines = several("Pipelines", width="24em", help_text=_FIRST)
        self._metrics = text_line("Metrics", width="30em", help_text="recall@5, MRR, nDCG@10, P@3")
        self._measure = button("Measure", kind="primary")
        self._reload = button(
            "Look again", help_text="See which pipelines and judgements there are"
        )
        self._table, self._problems = markup(), markup()
        self._baseline = choice("Baseline", [], width="19em")
        self._compared = choice("Compared", [], width="19em")
        self._metric = choice("Order by", [], width="19em")
        self._questions = listing("Questions", rows=10)
        self._place = markup()
        self._place.layout.width = "auto"
        self._earlier, self._later = button("Previous questions"), button("Next questions")
        self._left, self._right = markup(), markup()
        left, right = column(self._left, grow=True), column(self._right, grow=True)
        left.layout.padding = "0 1.5em 0 0"
        beside = row(left, right)
        beside.layout.align_items = "flex-start"
        measured = column(self._cases, self._metrics, width="auto")
        what = row(column(self._collection, self._pipelines, width="auto"), measured)
        what.layout.align_items = "flex-start"
        self.lay_out(
            what,
            row(self._measure, self._reload),
            self._problems,
            self._table,
            row(self._baseline, self._compared, self._metric),
            self._questions,
            row(self._earlier, self._later, self._place),
            beside,
        )

    def _tie(self) -> None:
        state = self.state
        self.on_change(self._collection, lambda value: state.set_trait("collection", value))
        self.on_change(self._cases, lambda value: state.set_trait("cases", value.strip()))
        self.on_change(self._pipelines, lambda value: state.set_trait("chosen", tuple(value)))
        self.on_change(self._metrics, lambda value: actions.set_metrics(state, value))
        self.on_change(self._baseline, lambda value: self._compare("baseline", value))
        self.on_change(self._compared, lambda value: self._compare("pipeline", value))
        self.on_change(self._metric, lambda value: self._compare("metric", value))
        self.on_change(self._questions, self.look)
        self.on_click(self._measure, self.measure)
        self.on_click(self._reload, lambda: actions.refresh(self.workspace, state))
        self.on_click(self._earlier, lambda: state.set_trait("page", max(state.page - 1, 0)))
        self.on_click(
            self._later, lambda: state.set_trait("page", min(state.page + 1, state.pages - 1))
        )
        self.follow(["collection", "collections", "saved", "chosen"], self._redraw_names)
        self.follow(["cases", "kept", "metrics"], self._redraw_cases)
        self.follow(["report", "problems"], self._redraw_figures)
        self.follow(["busy"], self._redraw_busy)
        ordered = ["report", "pipeline", "baseline", "metric", "page", "query"]
        self.follow(ordered, self._redraw_questions)
        self.follow(["looked", "report", "pipeline", "baseline", "metric"], self._redraw_found)

    # Actions -----------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure the chosen pipelines."""
        self._measuring, work, done = actions.measure(self.workspace, self.state)
        self.start(work, done, label="Evaluation")

    def look(self, query: str | None) -> None:
        """Show what the compared pipelines find for a question."""
        if query:
            work, done = actions.look(self.workspace, self.state, query)
            self.start(work, done, key="look", label="Asking both")

    def _compare(self, trait: str, value: str | None) -> None:
        if value is not None:
            self.state.set_trait(trait, value)
            if self.state.query and set(self.state.compared) - set(self.state.looked):
                self.look(self.state.query)

    # Drawing -----------------------------------------------------------------------------

    def _redraw_busy(self) -> None:
        self._measure.disabled = self.state.busy
        if not self.state.busy and self._measuring is not None:
            # After a stop or an error, too: what was measured is kept.
            self._measuring.show(self.state)

    def _redraw_names(self) -> None:
        state = self.state
        known = list(dict.fromkeys((*state.collections, state.collection)))
        self._collection.options = [_ANY, *((name, name) for name in known if name)]
        self._collection.value = state.collection
        # The first chosen one is the baseline, so the chosen ones come first.
        names = tuple(dict.fromkeys((*state.chosen, *state.saved)))
        self._pipelines.options = names
        self._pipelines.value = tuple(state.chosen)

    def _redraw_cases(self) -> None:
        state = self.state
        self._cases.options = state.kept
        self._cases.value = _named(state.cases)
        self._metrics.value = ", ".join(state.metrics)

    def _redraw_figures(self) -> None:
        state = self.state
        self._table.value = "" if state.report is None else rendered(state.report)["text/html"]
        self._problems.value = _problems_html(state.problems)

    def _redraw_questions(self) -> None:
        state = self.state
        names = () if state.report is None else state.report.pipelines
        for control, value in ((self._baseline, state.baseline), (self._compared, state.pipeline)):
            control.options = names
            control.value = value or None
        self._metric.options = () if state.report is None else state.report.metrics
        self._metric.value = state.metric or None
        pairs = state.pairs()
        shown = pairs[state.page * PAGE : (state.page + 1) * PAGE]
        alone = len(state.compared) == 1
        self._questions.options = [
            (plain(question_label(pair, alone=alone)), pair.query_id) for pair in shown
        ]
        here = [pair.query_id for pair in shown]
        self._questions.value = state.query if state.query in here else None
        self._earlier.disabled = state.page == 0
        self._later.disabled = state.page >= state.pages - 1
        first = state.page * PAGE + 1
        self._place.value = (
            f"{first} to {first + len(shown) - 1} of {len(pairs)}, the worst first" if shown else ""
        )

    def _redraw_found(self) -> None:
        shown = [self._found(name)["text/html"] for name in self.state.compared]
        for box, value in zip((self._left, self._right), [*shown, ""], strict=False):
            box.value = value

    def _found(self, name: str) -> Rendering:
        """Return one side: a pipeline's results for the question, or its error."""
        state = self.state
        report: EvaluationReport | None = state.report
        found = state.looked.get(name)
        if report is None or found is None or state.query not in report.wanted:
            return part("", "<span></span>")
        if isinstance(found, tuple):
            return part("\n".join(found), alert_html((f"{name}:", *found)))
        value = report.scores[name].get(state.query, {}).get(state.metric)
        reached = "" if value is None else f" ({state.metric} {value:.3f})"
        caption = f"{name}{reached}: {report.questions[state.query]}"
        return rendered(found_list(caption, found, report.wanted[state.query]))

    def snapshot_parts(self) -> list[Rendering]:
        """Return the figures, the worst questions, and what was looked at."""
        state = self.state
        rows = [
            ("collection", state.collection),
            ("pipelines", ", ".join(state.chosen)),
            ("judgements", _named(state.cases)),
        ]
        parts = [facts("Settings", rows)]
        if state.problems:
            lines = "\n".join(" ".join((f"{n}:", *said)) for n, said in state.problems.items())
            parts.append(part(lines, _problems_html(state.problems)))
        if state.report is not None:
            alone = len(state.compared) == 1
            worst = [question_label(pair, alone=alone) for pair in state.pairs()[:_PICTURED]]
            parts.append(rendered(state.report))
            what = state.pipeline if alone else f"{state.pipeline} minus {state.baseline}"
            parts.append(part("\n".join((f"{state.metric} of {what}, the worst first", *worst))))
            parts += [self._found(name) for name in state.compared if name in state.looked]
        return parts


def _problems_html(problems: dict[str, tuple[str, ...]]) -> str:
    return "".join(
        alert_html((f"{name}: {lines[0]}", *lines[1:])) for name, lines in problems.items()
    )


def _named(cases: Any) -> str:
    """Return what judgements are called, without folders of this machine."""
    if isinstance(cases, str):
        return without_private(cases)
    return str(getattr(cases, "name", None) or shown_database(str(cases)))
