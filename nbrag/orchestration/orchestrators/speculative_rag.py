"""The stage ``speculative_rag``: drafts from different passages, of which the best is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from nbrag.errors import ChatError, ChatUnavailable
from nbrag.models.chat.resolve import resolve_chat
from nbrag.orchestration.base import Orchestrator, OrchestratorOptions, managed
from nbrag.orchestration.clustering import clusters, subsets
from nbrag.orchestration.drafting import DRAFT_PROMPT, Draft, write_draft
from nbrag.orchestration.limits import CallLimit, LimitedChatClient
from nbrag.orchestration.passage_vectors import passage_vectors
from nbrag.orchestration.prompts import Prompt
from nbrag.orchestration.reading import CitedText
from nbrag.orchestration.running import AnswerRun
from nbrag.orchestration.verifying import (
    CONSISTENCY_PROMPT,
    REFLECTION_PROMPT,
    RUBRIC_PROMPT,
    remember_probabilities,
    without_probabilities,
)
from nbrag.orchestration.weighing import (
    Weights,
    shared_evidence,
    together,
    weights_by_probabilities,
    weights_by_rubric,
)
from nbrag.protocols import ChatClient, Embedder, Retriever
from nbrag.spec import StageDefinition, register_stage
from nbrag.types import Answer, AnswerDraft, CitationFound, TextPiece

__all__ = ["SpeculativeRagOptions", "SpeculativeRagOrchestrator"]

#: Share of the time that drafts get: a slow one must not take the others along.
_DRAFT_SHARE = 0.7
#: Calls that are kept for weighing the drafts: a rubric and its second try.
_KEPT_CALLS = 2


class SpeculativeRagOptions(OrchestratorOptions):
    """How many drafts there are, of what, and who weighs them."""

    passages: int | None = Field(
        default=10, ge=1, le=200, description="passages that are retrieved; none: as asked, or 5"
    )
    context_tokens: int = Field(
        default=8_000,
        ge=50,
        le=1_000_000,
        description="tokens of all passages together; what does not fit is left out",
    )
    drafts: int = Field(default=5, ge=1, le=20, description="drafts at the most")
    subset: int = Field(
        default=2, ge=1, le=20, description="passages of one draft, and clusters, at the most"
    )
    draft_model: str | None = Field(
        default=None, min_length=1, description="model that drafts; none: the one that answers"
    )
    verify_model: str | None = Field(
        default=None, min_length=1, description="model that weighs; none: the one that answers"
    )
    scoring: Literal["auto", "probabilities", "rubric"] = Field(
        default="auto",
        description="auto: probabilities of tokens where the models give them, a rubric elsewhere",
    )
    minimum: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="weight (rubric 1-5 as 0-1, or the chance of yes) that an answer must have",
    )
    seed: int = Field(
        default=13, ge=0, le=2**31 - 1, description="of the clusters and the order of weighing"
    )
    calls: int = Field(
        default=40, ge=1, le=200, description="requests to all models for one answer, at most"
    )


class SpeculativeRagOrchestrator(Orchestrator[SpeculativeRagOptions]):
    """Drafts answers from different passages at the same time, and takes the best.

    After Wang et al., "Speculative RAG: Enhancing Retrieval Augmented Generation through Drafting"
    (2024, arXiv:2407.08223). The passages are divided into as many clusters as a draft gets
    passages (k-means over their vectors), and each draft gets one passage of each cluster, so that
    it sees different sides, and sees little. A drafting model, small and quick if you name one,
    writes all drafts side by side, each with quotes, a rationale and an answer. A verifying model
    weighs them by rationale and quotes; it never sees the passages. The paper's numbers: 5 drafts
    with 2 of 10 passages each, 10 drafts with 6 of 15 for questions over several documents.

    Weights are, as in the paper, a product of three: the probability of the draft by the model
    that wrote it, self-consistency, and self-reflection (the probability that the verifier says
    yes when asked whether the rationale supports the answer). Two things differ. Providers do not
    tell how likely a *given* text is, so self-consistency is asked for as a yes or no as well; and
    yes is taken in proportion to no. A draft's probability is the geometric mean over its tokens,
    so that long ones don't lose. Where the probabilities of tokens are not to be had, which is
    found out by asking, a rubric from 1 to 5 stands in: all drafts in one request, whole, in an
    order shuffled by ``seed``, because models favour places in a list.

    Equal weights are decided by shared evidence (how often other drafts cite the same passages),
    then by the order of the drafts. A draft that fails or is late is left out with a warning;
    refusals are left out where others answer. An answer whose weight is below ``minimum`` is a
    refusal: one of many drafts is easily wrong. The answer's ``support`` is, as for a single
    answer, the share of its sentences that cite words which occur in the passages.

    Parameters
    ----------
    retriever, chat, strict
        As in :class:`nbrag.orchestration.base.Orchestrator`.
    options
        A :class:`SpeculativeRagOptions`; defaults when None.
    draft_chat, verify_chat
        The models; None for those that the options name, else ``chat``.
    embedder
        Gives what embeds passages that have no stored vector; without it, such passages are told
        apart by their words.

    Examples
    --------
    >>> orchestrator = SpeculativeRagOrchestrator(retriever, large, draft_chat=small)
    >>> answer = await orchestrator.answer("How long are backups kept?")
    >>> [(draft.number, draft.passages, draft.score, draft.chosen) for draft in answer.drafts]
    [(1, (1, 2), 1.0, True), (2, (1, 3), 0.25, False)]
    """

    name = "speculative_rag"
    options_type = SpeculativeRagOptions

    def __init__(
        self,
        retriever: Retriever,
        chat: ChatClient,
        options: SpeculativeRagOptions | None = None,
        *,
        strict: bool = False,
        draft_chat: ChatClient | None = None,
        verify_chat: ChatClient | None = None,
        embedder: Callable[[], Embedder] | None = None,
    ) -> None:
        super().__init__(retriever, chat, options, strict=strict)
        named = (self.options.draft_model, self.options.verify_model)
        self.draft_chat, self.verify_chat = (
            managed(resolve_chat(name))
            if given is None and name is not None
            else self.chat
            if given is None
            else managed(given)
            for given, name in zip((draft_chat, verify_chat), named, strict=True)
        )
        self._embedder = embedder

    def _prompts(self) -> Sequence[Prompt]:
        asked = () if self.options.scoring == "rubric" else (CONSISTENCY_PROMPT, REFLECTION_PROMPT)
        return (DRAFT_PROMPT, *asked, RUBRIC_PROMPT)

    async def _answer(self, run: AnswerRun) -> Answer:
        limit = CallLimit(self.options.calls)
        results = await run.retrieve(run.question)
        if not results.chunks:
            return run.refused(
                "nothing was found that could answer it", metadata=dict(results.metadata)
            )
        run.register(results.chunks, self.options.context_tokens)
        chosen, about = await self._subsets(run)
        drafts = await self._drafts(run, chosen, limit)
        weights = await self._weighed(run, [draft for draft in drafts if draft.answered], limit)
        about |= {"scoring": weights.how, "draft_model": self.draft_chat.model}
        about |= {"verify_model": self.verify_chat.model}
        metadata = {**results.metadata, "speculative_rag": about}
        return self._chosen(run, drafts, weights, metadata)

    async def _subsets(self, run: AnswerRun) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
        """Return the numbers of each draft's passages, and what is to be told of the clusters."""
        passages = run.evidence.passages
        with run.stage("cluster") as told:
            vectors, origin = await run.in_time(
                passage_vectors(
                    self.retriever, [passage.chunk for passage in passages], self._embedder
                )
            )
            labels = await asyncio.to_thread(
                clusters, vectors, self.options.subset, seed=self.options.seed
            )
            most = self.options.drafts
            affordable = max(self.options.calls - _KEPT_CALLS, 1)
            if affordable < most:
                most = affordable
                run.warn(f"calls={self.options.calls} leaves no more than {most} drafts")
            found = subsets(labels, most)
            told["detail"] = (
                f"{len(set(labels))} clusters by vectors of the {origin}, {len(found)} subsets"
                if origin != "words"
                else f"{len(set(labels))} clusters by words, {len(found)} subsets"
            )
        numbers = [tuple(passages[place].number for place in subset) for subset in found]
        groups = [
            [one.number for one, label in zip(passages, labels, strict=True) if label == cluster]
            for cluster in range(len(set(labels)))
        ]
        return numbers, {"clusters": groups, "vectors": origin}

    async def _drafts(
        self, run: AnswerRun, chosen: Sequence[tuple[int, ...]], limit: CallLimit
    ) -> list[Draft]:
        """Return the drafts, all written at the same time; what fails is told and left out."""
        chat = LimitedChatClient(self.draft_chat, limit)
        now = asyncio.get_running_loop().time()
        moment = now + _DRAFT_SHARE * (run.moment - now)

        async def draft(number: int, passages: tuple[int, ...]) -> Draft:
            evidence = run.evidence.only(passages)
            try:
                async with asyncio.timeout_at(moment) as clock:
                    return await write_draft(
                        chat,
                        run.question,
                        number,
                        evidence,
                        max_tokens=self.options.max_tokens,
                        probabilities=self.options.scoring != "rubric",
                    )
            except TimeoutError:
                if not clock.expired():
                    raise
                problem: ChatError = ChatUnavailable("it took too long.", hint="raise time_limit=")
            except ChatError as error:
                problem = error
            if self.strict:
                raise problem
            return Draft(number, passages, CitedText("", "failed"), problem=problem.message)

        with run.stage("draft", f"{len(chosen)} drafts side by side") as told:
            drafts = await together(
                [draft(number, passages) for number, passages in enumerate(chosen, start=1)]
            )
            good = sum(one.answered for one in drafts)
            told["detail"] = f"{good} of {len(drafts)} drafts answer"
        for one in drafts:
            if one.problem:
                run.warn(f"draft {one.number} failed and was left out: {one.problem}")
        return drafts

    async def _weighed(self, run: AnswerRun, drafts: Sequence[Draft], limit: CallLimit) -> Weights:
        """Return the drafts' weights: by probabilities, by the rubric, or none."""
        if not drafts:
            return Weights()
        import numpy as np

        order = np.random.default_rng(self.options.seed).permutation(len(drafts))
        shuffled = [drafts[int(place)] for place in order]
        chat = LimitedChatClient(self.verify_chat, limit)
        if self.options.scoring != "rubric" and self.draft_chat is self.verify_chat:
            # The drafts have shown it already.
            tokens = [draft.number for draft in drafts if draft.probability is not None]
            remember_probabilities(self.verify_chat, tokens)
        with run.stage("verify", f"{len(drafts)} drafts") as told:
            weights: Weights | None = None
            try:
                if self.options.scoring != "rubric" and not without_probabilities(self.verify_chat):
                    weights = await run.in_time(
                        weights_by_probabilities(chat, run.question, shuffled)
                    )
                if weights is None:
                    if self.options.scoring == "probabilities":
                        run.warn(
                            f"{self.verify_chat.model} does not tell how likely its words are: "
                            "the drafts were weighed by a rubric"
                        )
                    weights = await run.in_time(weights_by_rubric(chat, run.question, shuffled))
            except ChatError as error:
                if self.strict:
                    raise
                weights = Weights()
                run.warn(
                    f"stage 'verify' failed and was passed over: {error.message} The choice went "
                    "by shared evidence"
                )
            told["detail"] = f"by {weights.how}" if weights.scores else "not weighed"
        return weights

    def _chosen(
        self, run: AnswerRun, drafts: Sequence[Draft], weights: Weights, metadata: dict[str, Any]
    ) -> Answer:
        """Return the best draft as the answer, or why there is none."""
        answered = [draft for draft in drafts if draft.answered]
        shared = {draft.number: shared_evidence(draft, answered) for draft in answered}

        def rank(draft: Draft) -> tuple[float, int, int]:
            score = weights.score(draft.number)
            # Products of probabilities that differ by rounding alone are equal.
            weight = -1.0 if score is None else round(score, 6)
            return weight, shared[draft.number], -draft.number

        best = max(answered, key=rank) if answered else None
        gate = None if best is None else weights.borne_out(best.number)
        poor = gate is not None and gate < self.options.minimum
        shown = tuple(
            _shown(draft, weights, shared, chosen=draft is best and not poor) for draft in drafts
        )
        fields: dict[str, Any] = {"drafts": shown, "metadata": metadata}
        if best is None:
            refusals = [draft for draft in drafts if draft.cited.outcome == "refused"]
            if refusals:
                return run.refused(refusals[0].cited.reason, **fields)
            problems = "; ".join(dict.fromkeys(draft.problem.rstrip(".") for draft in drafts))
            return run.failed(ChatError(f"no draft came about: {problems}."), **fields)
        if poor:
            run.warn(
                f"the best draft has the weight {gate:.2f}, less than minimum="
                f"{self.options.minimum:g}: '{best.cited.text}'"
            )
            return run.refused("no draft is borne out by its evidence", **fields)
        if run.streams:
            for citation in best.cited.citations:
                run.emit(CitationFound(citation))
            run.emit(TextPiece(best.cited.text, best.cited.text))
        return run.answer_of(best.cited, **fields)


def _shown(draft: Draft, weights: Weights, shared: dict[int, int], *, chosen: bool) -> AnswerDraft:
    """Return a draft as it stands in the answer."""
    scores = dict(weights.scores.get(draft.number, {}))
    if draft.number in shared:
        scores["shared"] = float(shared[draft.number])
    refused = draft.cited.outcome == "refused"
    note = f"refused: {draft.cited.reason}" if refused else weights.notes.get(draft.number, "")
    return AnswerDraft(
        draft.number,
        draft.cited.text,
        draft.rationale,
        draft.passages,
        weights.score(draft.number),
        scores,
        chosen,
        f"failed: {draft.problem}" if draft.problem else note,
    )


def _build(options: SpeculativeRagOptions, context: Any) -> Any:
    named = context.other_chat or resolve_chat

    def make(retriever: Retriever) -> SpeculativeRagOrchestrator:
        return SpeculativeRagOrchestrator(
            retriever,
            context.chat(),
            options,
            strict=context.strict,
            draft_chat=None if options.draft_model is None else named(options.draft_model),
            verify_chat=None if options.verify_model is None else named(options.verify_model),
            embedder=context.embedder,
        )

    return make


register_stage(
    StageDefinition(
        name="speculative_rag",
        kind="retrieval",
        role="answer",
        options=SpeculativeRagOptions,
        build=_build,
        method="use_speculative",
        summary="Drafts from different passages side by side; the best-founded one is the answer.",
        single=True,
    )
)
