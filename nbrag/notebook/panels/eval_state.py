"""The state of the eval panel: what is measured, the figures, and the question looked at."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from traitlets import Any as AnyValue
from traitlets import Dict, Int, Tuple, Unicode

from nbrag.evaluation import EvaluationReport
from nbrag.evaluation.joining import QuestionPair, worst_differences
from nbrag.evaluation.metrics import DEFAULT_METRICS
from nbrag.notebook.panels.state import PanelState
from nbrag.rendering import Cell, Rendering, clip, plain, render_table
from nbrag.types import RetrievalChunk, RetrievalResults

__all__ = ["PAGE", "EvalState", "found_list", "question_label"]

#: Questions in the list at one time.
PAGE = 100
#: Characters of one result.
_LONGEST = 5_000


class EvalState(PanelState):
    """An evaluation and what is looked at in it.

    Attributes
    ----------
    collections, saved, kept
        Names of collections, of pipelines, and of judgements kept in the file.
    collection, chosen, cases
        What is searched, which pipelines are measured, and on which judgements: a file, a
        folder, a name, or the judgements themselves.
    metrics
        Names.
    report
        The figures; None before the first evaluation.
    problems
        Per pipeline that could not be measured, the lines that say why.
    pipeline, baseline, metric
        What the list of questions is ordered by.
    page
        Which part of that list is shown, from 0.
    query
        Id of the question that is looked at; empty for none.
    looked
        What the two pipelines find for it: results, or the lines of an error.
    """

    collections: Any = Tuple()
    saved: Any = Tuple()
    kept: Any = Tuple()
    collection = Unicode()
    chosen: Any = Tuple()
    cases: Any = AnyValue("")
    metrics: Any = Tuple(DEFAULT_METRICS)
    report: Any = AnyValue(None, allow_none=True)
    problems: Any = Dict()
    pipeline = Unicode()
    baseline = Unicode()
    metric = Unicode()
    page = Int(0)
    query = Unicode()
    looked: Any = Dict()

    def keep(self, report: EvaluationReport, problems: Mapping[str, tuple[str, ...]]) -> None:
        """Take figures; what is compared stays where it can."""
        names = report.pipelines
        with self.hold_trait_notifications():
            self.problems = dict(problems)
            self.baseline = self.baseline if self.baseline in names else names[0]
            if self.pipeline not in names or self.pipeline == self.baseline:
                others = [name for name in names if name != self.baseline]
                self.pipeline = others[0] if others else self.baseline
            preferred = next((m for m in report.metrics if m.startswith("nDCG")), report.metrics[0])
            self.metric = self.metric if self.metric in report.metrics else preferred
            self.page = 0
            self.query, self.looked = "", {}
            self.report = report

    @property
    def compared(self) -> tuple[str, ...]:
        """The pipelines that are shown beside each other: one or two."""
        return tuple(dict.fromkeys((self.baseline, self.pipeline)))

    def pairs(self) -> list[QuestionPair]:
        """Return all questions, the worst first."""
        if self.report is None:
            return []
        return worst_differences(self.report, self.pipeline, self.baseline, self.metric)

    @property
    def pages(self) -> int:
        """How many pages of questions there are."""
        count = 0 if self.report is None else len(self.report.questions)
        return max(-(-count // PAGE), 1)


def question_label(pair: QuestionPair, *, alone: bool) -> str:
    """Return a question's line in the list."""
    if alone:
        shown = "failed" if pair.value is None else f"{pair.value:.3f}"
        return f"{shown}  {pair.question}"
    if pair.difference is None:
        return f"failed  {pair.question}"
    return f"{pair.difference:+.3f} ({pair.value:.3f} - {pair.baseline:.3f})  {pair.question}"


def found_list(caption: str, results: RetrievalResults, wanted: Mapping[str, int]) -> Rendering:
    """Return what a pipeline finds as a list, with the judged grade of each result."""
    rows: list[list[Cell]] = []
    items = []
    for place, chunk in enumerate(results, start=1):
        grade = _grade(chunk, wanted)
        judged = "" if grade is None else ("relevant" if grade >= 1 else "not relevant")
        where = " > ".join((chunk.source, *chunk.heading_path))
        rows.append([place, judged, where, chunk.content])
        items.append(_item(judged, where, chunk.content))
    notes = [str(warning) for warning in results.warnings]
    if not rows:
        notes.insert(0, "nothing was found")
    seen = {str(each) for chunk in results for each in _names(chunk)}
    gone = [name for name, grade in wanted.items() if grade >= 1 and name not in seen]
    if gone:
        notes.append(f"relevant, and not among these: {', '.join(gone)}")
    columns = ["rank", "judged", "place", "text"]
    table = render_table(caption, columns, rows, notes=notes, paths=["place"])
    said = render_table("", [], [], notes=notes)["text/html"] if notes else ""
    words = html.escape(plain(caption), quote=True)
    listed = f'<ol style="margin:0.3em 0;padding-left:2em">{"".join(items)}</ol>' if items else ""
    shown = f'<div style="font-weight:600;overflow-wrap:anywhere">{words}</div>{listed}{said}'
    return {"text/plain": table["text/plain"], "text/html": shown}


def _item(judged: str, where: str, content: str) -> str:
    """Return one result: what it was judged, its place, and its text, folded."""
    mark = f"<b>{judged}</b> " if judged else ""
    place = html.escape(plain(where), quote=True)
    start = html.escape(clip(plain(content), 140), quote=True)
    text = html.escape(plain(content[:_LONGEST]), quote=True)
    return (
        f'<li style="margin:0.35em 0;overflow-wrap:anywhere">{mark}{place}<details>'
        f'<summary dir="auto" style="opacity:0.8">{start}</summary>'
        f'<div dir="auto" style="white-space:pre-wrap">{text}</div></details></li>'
    )


def _names(chunk: RetrievalChunk) -> list[Any]:
    """Return all that a judgement may call a result by."""
    return [chunk.id, chunk.source, *(v for v in chunk.record.values() if isinstance(v, str | int))]


def _grade(chunk: RetrievalChunk, wanted: Mapping[str, int]) -> int | None:
    return next((wanted[str(n)] for n in _names(chunk) if str(n) in wanted), None)
