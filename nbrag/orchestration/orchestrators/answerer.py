"""The stage ``answer``: one retrieval, one answer, every citation checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from nbrag.orchestration.base import Orchestrator, OrchestratorOptions
from nbrag.orchestration.prompts import ANSWER_PROMPT, PLAIN_ANSWER_PROMPT, Prompt
from nbrag.orchestration.reading import CitedText
from nbrag.orchestration.running import AnswerRun
from nbrag.orchestration.writing import write_answer
from nbrag.spec import StageDefinition, register_stage
from nbrag.types import Answer

__all__ = ["AnswerOptions", "Answerer"]

#: Why there is no answer without passages.
_NOTHING_FOUND = "nothing was found that could answer it"


class AnswerOptions(OrchestratorOptions):
    """How an answer is written."""

    citations: bool = Field(
        default=True, description="whether the answer cites passages, and citations are checked"
    )


class Answerer(Orchestrator[AnswerOptions]):
    """Answers from one retrieval.

    The passages get their numbers first, each bound to a chunk and its place in a document. The
    model names its evidence, as exact words of passages, before it writes the answer, whose
    sentences cite the passages' numbers. Then everything is checked: a number that was not sent is
    removed; quoted words must occur in the passage, and are kept as the passage has them, with
    their offsets in chunk and document. What was removed, or stands without evidence, is a
    warning, and the answer's ``support`` is the share of its sentences that are borne out.

    That the collection does not answer a question is an answer too (``outcome="refused"``).
    Without passages it is the answer at once, and no model is asked.

    Parameters
    ----------
    retriever, chat, strict
        As in :class:`nbrag.orchestration.base.Orchestrator`.
    options
        An :class:`AnswerOptions`; defaults when None.

    Examples
    --------
    >>> answerer = Answerer(pipeline.as_retriever(workspace["docs"]), workspace.chat)
    >>> answer = await answerer.answer("How long are backups kept in the EU region?")
    >>> answer.text, answer.citations[0].quote
    ('They are kept for 35 days [1].', 'Backups are kept for 35 days in the EU region')
    """

    name = "answer"
    options_type = AnswerOptions

    def _prompts(self) -> Sequence[Prompt]:
        return (ANSWER_PROMPT,) if self.options.citations else (PLAIN_ANSWER_PROMPT,)

    async def _answer(self, run: AnswerRun) -> Answer:
        results = await run.retrieve(run.question)
        if not results.chunks:
            return run.refused(_NOTHING_FOUND, metadata=dict(results.metadata))
        evidence = run.register(results.chunks, self.options.context_tokens)
        with run.stage("answer", f"from {len(evidence)} passages") as told:
            cited = await write_answer(
                run,
                self._prompts()[0],
                evidence,
                cited=self.options.citations,
                max_tokens=self.options.max_tokens,
            )
            told["detail"] = _summary(cited)
            told["chunk_ids"] = dict.fromkeys(c.chunk_id for c in cited.citations)
        return run.answer_of(cited, metadata=dict(results.metadata))


def _summary(cited: CitedText) -> str:
    """Return what came of an answer, in a few words for a trace."""
    if cited.outcome != "answered":
        return cited.outcome
    count = len(cited.citations)
    found = sum(citation.verified for citation in cited.citations)
    return f"{count} citations, {found} with words found" if count else "no citations"


def _build(options: AnswerOptions, context: Any) -> Any:
    return lambda retriever: Answerer(retriever, context.chat(), options, strict=context.strict)


register_stage(
    StageDefinition(
        name="answer",
        kind="retrieval",
        role="answer",
        options=AnswerOptions,
        build=_build,
        method="use_answer",
        summary="One answer from the results, with citations that were checked.",
        single=True,
    )
)
