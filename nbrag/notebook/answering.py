"""``%rag_ask``: an answer that is written where it will stand."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbrag.errors import MagicUsageError, QueryError
from nbrag.notebook.progress import Progress, ProgressState
from nbrag.rendering import Rendering, clip, clip_start, plain

if TYPE_CHECKING:
    from nbrag.notebook.adapter import Call
    from nbrag.notebook.session import NotebookSession
    from nbrag.types import Answer, AnswerEvent

__all__ = ["AnswerProgress", "AnswerState", "ask"]

_WIDTH = 60
_STYLE = "white-space:pre-wrap;max-width:60em;margin:0.3em 0"


class AnswerState(ProgressState):
    """An answer that is not finished.

    Parameters
    ----------
    question
        The question.
    stage
        What is being done.
    answer
        The answer's words so far.
    """

    def __init__(self, question: str, stage: str, answer: str) -> None:
        end = f": {clip_start(plain(answer), _WIDTH)}" if answer else ""
        super().__init__(f"{clip(question, _WIDTH)} ({stage}){end}", 0, None)
        self.head = f"{clip(plain(question), 200)} ({stage})"
        self.answer = plain(answer)

    def __hash__(self) -> int:
        """Return a hash of what is shown."""
        return hash((self.head, self.answer))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the stage and the words so far, escaped."""
        head = html.escape(self.head, quote=True)
        words = html.escape(self.answer, quote=True)
        return {
            "text/plain": "\n".join(filter(None, (self.head, self.answer))),
            "text/html": f'<div role="status"><progress aria-label="{head}"></progress> '
            f"{head}</div>"
            f'<div dir="auto" style="{_STYLE}">{words}</div>',
        }


class AnswerProgress:
    """What is known of an answer from its events.

    Parameters
    ----------
    question
        The question.
    """

    def __init__(self, question: str) -> None:
        self._question = question
        self._running: dict[str, str] = {}
        self._done = ""
        self._text = ""

    def add(self, events: Sequence[AnswerEvent]) -> None:
        """Take events in."""
        from nbrag.types import StageFinished, StageStarted, TextPiece

        for event in events:
            if isinstance(event, StageStarted):
                self._running[event.stage] = _named(event.stage, event.detail)
            elif isinstance(event, StageFinished):
                self._running.pop(event.stage, None)
                self._done = _named(event.stage, event.detail)
            elif isinstance(event, TextPiece):
                self._text = event.text

    @property
    def state(self) -> AnswerState:
        """What is to be shown now."""
        stage = ", ".join(self._running.values()) or self._done or "begins"
        return AnswerState(self._question, stage, self._text)


def _named(stage: str, detail: str) -> str:
    return f"{stage}: {clip(plain(detail), 80)}" if detail else stage


def ask(session: NotebookSession, shell: Any, call: Call) -> Answer:
    """Answer the question of a call, and show how it comes about.

    Raises
    ------
    QueryError
        When there is no question.
    MagicUsageError
        When there is no answer to go on from.
    """
    options, workspace = call.options, session.workspace
    if not call.text:
        raise QueryError("the question is empty.", hint="%rag_ask How long are backups kept?")
    before = session.last_answer if options.follow_up else None
    if options.follow_up and before is None:
        raise MagicUsageError(
            "%rag_ask: there is no answer yet that --follow-up could go on from.",
            hint="ask the first question without it",
        )
    settings = session.configuration.resolve()
    pipeline = options.pipeline or settings["pipeline"].value
    spec = workspace.pipeline_spec(pipeline)
    stage = spec.answer_stage()
    own = None if stage is None else getattr(stage.options, "passages", None)
    question = call.text
    shown = AnswerProgress(question)
    with Progress(shell) as progress:

        def show(events: Sequence[AnswerEvent]) -> None:
            shown.add(events)
            progress.show(shown.state)

        answer = workspace.ask(
            question,
            pipeline=pipeline,
            collection=options.collection or spec.collection or settings["collection"].value,
            top_k=options.top_k or (settings["top_k"].value if own is None else None),
            where=options.where,
            after=() if before is None else before,
            chat=options.model,
            progress=show,
            **({"citations": False} if options.no_citations else {}),
        )
        summary = f"{clip(plain(question), _WIDTH)}: {answer.outcome}"
        progress.finish(answer, summary=summary if options.quiet else None)
    session.last_results = session.last_answer = answer
    return answer
