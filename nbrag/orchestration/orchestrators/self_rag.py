"""The stage ``self_rag``: draft, check each claim, search for what is not borne out, again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from nbrag.errors import ChatError, ReplyInvalid
from nbrag.models.chat.claims import CLAIMS_PROMPT, CLAIMS_VERSION, check_claims
from nbrag.orchestration.base import Orchestrator, OrchestratorOptions
from nbrag.orchestration.limits import CallLimit, LimitedChatClient
from nbrag.orchestration.prompts import ANSWER_PROMPT, Prompt
from nbrag.orchestration.reading import CitedText
from nbrag.orchestration.refining import (
    REFINE_PROMPT,
    missing_claims,
    normalised,
    refined_query,
    searchable,
)
from nbrag.orchestration.running import AnswerRun
from nbrag.orchestration.writing import write_answer
from nbrag.spec import StageDefinition, register_stage
from nbrag.types import Answer, AnswerRound, Claim, support_of

__all__ = ["SelfRagOptions", "SelfRagOrchestrator"]

#: Tokens of a judgement at the least: it repeats the answer, with a quote for each claim.
_CHECK_TOKENS = 2_048
_CHECK = Prompt("claims", CLAIMS_VERSION, CLAIMS_PROMPT)
#: What an answer counts when it is compared: unchecked, more than a refusal; checked and not
#: borne out in any claim, less.
_UNCHECKED, _BARE = 1e-6, -1.0


class SelfRagOptions(OrchestratorOptions):
    """How long an answer is worked on."""

    rounds: int = Field(default=3, ge=1, le=10, description="rounds of retrieving and drafting")
    threshold: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="support at which a draft is good enough: claims count 1, partly 0.5, not 0",
    )
    calls: int = Field(
        default=20, ge=1, le=200, description="requests to the model for one answer, at most"
    )


@dataclass(slots=True)
class _Loop:
    """What the rounds have brought so far."""

    rounds: list[AnswerRound] = field(default_factory=list)
    drafts: dict[int, CitedText] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ended: str = ""

    def note(self, note: str, **changes: Any) -> None:
        """Change the last round, and add to its note: the last note tells what ended the loop."""
        self.ended = note
        last = self.rounds[-1]
        together = "; ".join(filter(None, (last.note, note)))
        self.rounds[-1] = replace(last, note=together, **changes)

    @property
    def best(self) -> int | None:
        """The number of the round with the best draft, the earliest of equals."""
        worth = {number: self._worth(number) for number in self.drafts}
        return max(worth, key=lambda number: (worth[number], -number)) if worth else None

    def _worth(self, number: int) -> float:
        support = self.rounds[number - 1].support
        if self.drafts[number].outcome == "refused":
            return 0.0
        return _UNCHECKED if support is None else support or _BARE


class SelfRagOrchestrator(Orchestrator[SelfRagOptions]):
    """Answers in rounds: retrieve, draft, check every claim, search for what is missing.

    The idea of judging one's own answer is that of Asai et al., "Self-RAG: Learning to Retrieve,
    Generate, and Critique through Self-Reflection" (2023, arXiv:2310.11511), and this is not their
    method. There, a model is *trained* to write reflection tokens between its sentences: whether
    to retrieve, whether a passage is relevant, whether it supports the sentence, how useful the
    answer is. The probabilities of these tokens steer the decoding (a beam of 2 over sentences,
    one continuation for each passage, weights 1.0, 1.0 and 0.5, retrieval above 0.2). Here any
    chat model is *prompted*, in whole rounds, and its verdicts are words instead of probabilities;
    it always retrieves. In return each claim gets a verdict of its own, and one that should be
    supported counts only with words that really stand in a passage.

    A round retrieves with its query, adds new passages to the evidence (numbers never change),
    drafts a cited answer from all of it, and has the draft's claims judged. Claims without support,
    or what a refusal names as missing, become the next round's query. It ends when the support
    reaches ``threshold``, after ``rounds`` rounds, when a query was searched already, when a search
    finds nothing new, and when calls, budget or time are used up. The answer is the draft with the
    highest support, the earliest of equals; ``metadata["self_rag"]`` says which round that was and
    what ended the loop. A draft that could not be checked counts less than any support, and one
    without a single claim borne out less than a refusal.

    The evidence of all rounds shares ``context_tokens``. A model that checks itself is lenient;
    and each round costs up to three calls, six where replies must be asked for again.

    Parameters
    ----------
    retriever, chat, strict
        As in :class:`nbrag.orchestration.base.Orchestrator`.
    options
        A :class:`SelfRagOptions`; defaults when None.

    Examples
    --------
    >>> orchestrator = SelfRagOrchestrator(pipeline.as_retriever(collection), workspace.chat)
    >>> answer = await orchestrator.answer("How long are backups kept, and who restores them?")
    >>> answer.support, len(answer.rounds)
    (1.0, 2)
    """

    name = "self_rag"
    options_type = SelfRagOptions

    def _prompts(self) -> Sequence[Prompt]:
        return (ANSWER_PROMPT, _CHECK, REFINE_PROMPT)

    async def _answer(self, run: AnswerRun) -> Answer:
        run.chat = LimitedChatClient(self.chat, CallLimit(self.options.calls))
        loop = _Loop()
        run.so_far = lambda error: self._ended(run, loop, error)
        query: str | None = run.question
        try:
            while query is not None:
                loop.queries.append(query)
                query = await self._round(run, loop, query)
        except ChatError as error:
            return self._ended(run, loop, error)
        return _best_answer(run, loop, self.options.threshold)

    def _ended(self, run: AnswerRun, loop: _Loop, error: ChatError) -> Answer:
        """Return the best answer that there is when an error ends the loop."""
        if loop.rounds:
            loop.note(error.message.rstrip("."))
        if self.strict or loop.best is None:
            return self._failed(run, error, rounds=tuple(loop.rounds))
        run.warn(f"stage 'self_rag' ended early, with the best answer so far: {error.message}")
        return _best_answer(run, loop, self.options.threshold)

    async def _round(self, run: AnswerRun, loop: _Loop, query: str) -> str | None:
        """Run one round; return the next one's query, None when there is to be none."""
        loop.rounds.append(AnswerRound(len(loop.rounds) + 1, query))
        number = len(loop.rounds)
        if not await self._found_new(run, loop, query):
            return None
        with run.stage("draft", f"round {number}") as told:
            cited = await write_answer(
                run, ANSWER_PROMPT, run.evidence, max_tokens=self.options.max_tokens
            )
            told["detail"] = f"round {number}: {cited.outcome}"
            told["chunk_ids"] = dict.fromkeys(c.chunk_id for c in cited.citations)
        if cited.outcome == "failed":
            loop.note(cited.reason)
            for warning in cited.warnings:
                run.warn(warning)
            return None
        loop.drafts[number] = cited
        if cited.outcome == "refused":
            loop.note(f"refused: {cited.reason.rstrip('.')}")
            return await self._next_query(run, loop, [cited.reason])
        loop.rounds[-1] = replace(loop.rounds[-1], text=cited.text)
        claims = await self._checked(run, loop, cited)
        support = support_of(claims)
        if support is None:
            return None
        loop.rounds[-1] = replace(loop.rounds[-1], support=support, claims=claims)
        if support >= self.options.threshold:
            loop.note("the support is high enough")
            return None
        return await self._next_query(run, loop, missing_claims(claims))

    async def _found_new(self, run: AnswerRun, loop: _Loop, query: str) -> bool:
        """Retrieve, and say whether there is anything new to draft from."""
        results = await run.retrieve(query)
        loop.metadata = loop.metadata or results.metadata
        before = len(run.evidence)
        known = {passage.chunk_id for passage in run.evidence.passages}
        unknown = [chunk for chunk in results.chunks if chunk.id not in known]
        run.register(unknown, self.options.context_tokens)
        new = len(run.evidence) - before
        loop.rounds[-1] = replace(loop.rounds[-1], new_passages=new)
        if not new:
            full = f"no room for new passages in context_tokens={self.options.context_tokens}"
            loop.note(full if unknown else "no new passages")
        return bool(new)

    async def _checked(self, run: AnswerRun, loop: _Loop, cited: CitedText) -> tuple[Claim, ...]:
        """Return the draft's claims with their verdicts; none when the check fails."""
        with run.stage("check", f"round {len(loop.rounds)}") as told:
            try:
                claims = await run.in_time(
                    check_claims(
                        run.chat,
                        run.question,
                        cited.text,
                        run.evidence.passages,
                        max_tokens=max(_CHECK_TOKENS, self.options.max_tokens),
                    )
                )
            except ChatError as error:
                if self.strict:
                    raise
                run.warn(f"stage 'check' failed and was passed over: {error.message}")
                loop.note("not checked")
                return ()
            good = sum(claim.verdict == "supported" for claim in claims)
            told["detail"] = f"round {len(loop.rounds)}: {good} of {len(claims)} claims supported"
        if not claims:
            run.warn("stage 'check': the draft has no claim that could be checked")
            loop.note("not checked")
        return claims

    async def _next_query(self, run: AnswerRun, loop: _Loop, missing: Sequence[str]) -> str | None:
        """Return a query for what is missing; None when it is no new one, or there are no rounds.

        What is missing is searched for in its own words where the model gives no query.
        """
        if len(loop.rounds) >= self.options.rounds:
            loop.note("the last round")
            return None
        with run.stage("refine", f"round {len(loop.rounds)}") as told:
            try:
                query = await run.in_time(
                    refined_query(run.chat, run.question, loop.queries, missing)
                )
            except ReplyInvalid as error:
                if self.strict:
                    raise
                run.warn(
                    f"stage 'refine' failed and was passed over: {error.message} What is missing "
                    "was searched for in its own words"
                )
                query = searchable(missing[0])
            told["detail"] = query
        if normalised(query) in map(normalised, loop.queries):
            loop.note("the next query is one that was searched already")
            return None
        return query


def _best_answer(run: AnswerRun, loop: _Loop, threshold: float) -> Answer:
    """Return the answer of the best round, with what is to be said about it."""
    best, ended = loop.best, loop.ended
    if best is None:
        fields: dict[str, Any] = {"rounds": tuple(loop.rounds), "metadata": dict(loop.metadata)}
        if not run.evidence:
            return run.refused("nothing was found that could answer it", **fields)
        return Answer(run.asked, "", "failed", ended, passages=run.evidence.passages, **fields)
    chosen = loop.rounds[best - 1]
    rounds = [
        replace(one, note=f"{one.note}; chosen" if one.note else "chosen") if one is chosen else one
        for one in loop.rounds
    ]
    fields = {
        "rounds": tuple(rounds),
        "metadata": {**loop.metadata, "self_rag": {"best_round": best, "ended": ended}},
    }
    if chosen.support is not None:
        fields |= {"support": chosen.support, "support_basis": "claims", "claims": chosen.claims}
        if chosen.support < threshold:
            poor = len(missing_claims(chosen.claims))
            run.warn(
                f"{poor} of {len(chosen.claims)} claims are not fully borne out by the passages "
                f"after {len(rounds)} round{'s' if len(rounds) > 1 else ''} ({ended})"
            )
    return run.answer_of(loop.drafts[best], **fields)


def _build(options: SelfRagOptions, context: Any) -> Any:
    return lambda retriever: SelfRagOrchestrator(
        retriever, context.chat(), options, strict=context.strict
    )


register_stage(
    StageDefinition(
        name="self_rag",
        kind="retrieval",
        role="answer",
        options=SelfRagOptions,
        build=_build,
        method="use_self_rag",
        summary="Answers in rounds: claims that no passage bears out are searched for again.",
        single=True,
    )
)
