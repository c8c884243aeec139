"""The stage ``crag``: results are graded before anything is built on them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nbrag.errors import ChatError, ConfigurationError, NbragError, StageError
from nbrag.protocols import ChatClient, Collection, RetrievalResultProcessor, Retriever
from nbrag.retrieval.distinct import distinct_chunks
from nbrag.retrieval.processors._asking import before, last_moment
from nbrag.retrieval.processors._grading import Graded, grade_passages
from nbrag.retrieval.processors._strips import recomposed, split_strips
from nbrag.spec import ModelStageOptions, StageDefinition, register_stage
from nbrag.types import RetrievalChunk, RetrievalResults

__all__ = ["CragOptions", "CragPath", "CragValidator"]

CragPath = Literal["Correct", "Ambiguous", "Incorrect"]

#: Strips are short: more of them fit into one call than passages.
_STRIPS_PER_CALL = 40


class CragOptions(ModelStageOptions):
    """Which grades decide, and what is done then."""

    upper: int = Field(
        default=4, ge=2, le=5, description="one passage of this grade makes the results correct"
    )
    lower: int = Field(
        default=1, ge=0, le=4, description="passages of this grade and below are of no use"
    )
    refine: bool = Field(default=True, description="keep only the strips of the passages that help")
    strips: int = Field(default=6, ge=1, le=200, description="most strips that are kept, in all")
    on_incorrect: Literal["drop", "keep"] = Field(
        default="drop", description="results of no use: none at all, or kept and marked"
    )
    candidates: int = Field(
        default=10, ge=1, le=200, description="results that are graded; more are left out"
    )
    words: int = Field(
        default=300, ge=10, le=10_000, description="words of each passage that the model sees"
    )
    batch: int = Field(
        default=10, ge=1, le=50, description="passages in one call; 1 grades each by itself"
    )

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if self.lower >= self.upper:
            raise ValueError("lower must be less than upper")
        return self


@dataclass(slots=True)
class _Run:
    """What is fixed for one question, and what has to be said in the end."""

    question: str
    top_k: int
    moment: float
    collected: list[str] = field(default_factory=list)


_Judged = list[tuple[RetrievalChunk, int | None]]


class CragValidator(RetrievalResultProcessor):
    """Grades the results and corrects them: keeps the parts that help, or looks elsewhere.

    Yan et al., "Corrective Retrieval Augmented Generation" (arXiv:2401.15884). Each result gets a
    grade from 1 to 5, and the grades decide about the set, whose score is the best of them:

    - *Correct* when any grade is at least ``upper``: results up to ``lower`` are dropped, the
      others are refined.
    - *Incorrect* when all are at most ``lower``: the ``fallback`` is searched instead. Without
      one, or when it has nothing of use either, there are no results and a plain word that this
      is not in the collection (``on_incorrect="keep"``: the results stay, marked).
    - *Ambiguous* otherwise: as Correct, and with a fallback its results are added. Both are
      graded alike and ordered by grade, own results first; the grade is then the score.

    Refinement: passages are cut into strips of at most three sentences and 50 words (below four
    words: dropped), the strips are graded, and the best ``strips`` of the first ``top_k``
    passages are kept, in the order of the text. ``record["strip_spans"]`` says where in the
    document they stand; passages without a kept strip are dropped.

    The paper grades with a small trained model, one passage at a time. A chat model is paid by
    the call and the prompt, so ``batch`` passages go into one structured call: ten passages cost
    one call instead of ten with ten times the instructions, and batches run at the same time.
    With ``batch=1`` passages can't influence each other's grades, at the price of a call each.

    The metadata tells ``crag_score`` (best grade; 0 without results, None when the model failed),
    ``crag_path``, ``crag_reasoning``, ``low_confidence`` and ``needs_followup``; each record has
    ``crag_grade``, and what comes from the fallback ``retriever: "fallback"``. When the model
    fails, results without a grade are kept with a warning, and nothing is called incorrect.

    Parameters
    ----------
    chat
        The model.
    options
        Thresholds and actions; defaults when None. :func:`nbrag.retrieval.calibration.
        calibrate_crag` finds thresholds from judgements.
    fallback
        Searched when the collection doesn't have it: a web search, another collection's
        retriever, any object with ``retrieve``. It can't be written in a cell, where nothing
        knows of other collections: hand the validator to the builder's ``use``.
    strict
        Whether a failing model or fallback raises.

    Raises
    ------
    ConfigurationError
        When there is no chat client, or the fallback can't retrieve.
    """

    name = "crag"

    def __init__(
        self,
        chat: ChatClient,
        options: CragOptions | None = None,
        *,
        fallback: Retriever | None = None,
        strict: bool = False,
    ) -> None:
        if not isinstance(chat, ChatClient):
            raise ConfigurationError(
                f"a validator needs a chat client, not {chat!r}.",
                hint="give an object with `model` and `complete`",
            )
        if fallback is not None and not isinstance(fallback, Retriever):
            raise ConfigurationError(
                f"the fallback {fallback!r} is no retriever.",
                hint="give an object with `async def retrieve(query, *, top_k, where)`",
            )
        self.options = options or CragOptions()
        self._chat = chat
        self._fallback = fallback
        self._strict = strict

    def candidates_needed(self, top_k: int) -> int:
        """Return how many results there should be to grade."""
        return max(self.options.candidates, top_k)

    async def grade(self, query: str, chunks: Sequence[RetrievalChunk]) -> list[int | None]:
        """Return each chunk's grade from 1 to 5, None where the model gave none.

        Grades that are missing for want of an answer give a Python warning.

        Raises
        ------
        ChatError
            When there is not one grade, or one is missing and the validator is strict.
        """
        run = _Run(query, len(chunks), last_moment(self.options))
        graded = await self._grades(chunks, run)
        if graded.failures and not any(graded.grades):
            raise graded.failures[0][1]
        for warning in run.collected:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)
        return graded.grades

    def path(self, grades: Sequence[int | None]) -> CragPath:
        """Return what a set's grades make of it; without results it is Incorrect."""
        known = [grade for grade in grades if grade is not None]
        if any(grade >= self.options.upper for grade in known):
            return "Correct"
        if len(known) == len(grades) and all(grade <= self.options.lower for grade in known):
            return "Incorrect"
        return "Ambiguous"

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:  # noqa: ARG002
        """Return the results that help, the fallback's, or none."""
        run = _Run(results.query.text, results.query.top_k, last_moment(self.options))
        own = results.chunks[: self.options.candidates]
        graded = await self._grades(own, run)
        path = self.path(graded.grades)
        known = [grade for grade in graded.grades if grade is not None]
        answered = path == "Correct"
        if own and not known:
            # Nothing is known of the results: they go on as they are.
            chunks: Sequence[RetrievalChunk] = results.chunks
        else:
            judged = _marked(own, graded)
            found = await self._elsewhere(own, run) if path != "Correct" else []
            answered = answered or any((grade or 0) >= self.options.upper for _, grade in found)
            kept = self._useful(judged) + self._useful(found)
            if found:
                kept = _by_grade(kept, self.name)
            chunks = [chunk for chunk, _ in kept]
            if kept and self.options.refine:
                chunks = await self._refined(chunks[: run.top_k], run)
        reasoning = " ".join(graded.reasonings)
        if path == "Incorrect" and not chunks:
            nothing = "not in this collection"
            if self._fallback is not None:
                nothing += ", and the fallback found nothing of use"
            run.collected.append(f"stage '{self.name}': {nothing}")
            reasoning = f"{nothing}. {reasoning}".strip()
            if self.options.on_incorrect == "keep":
                chunks = [_with(chunk, low_confidence=True) for chunk, _ in judged]
        metadata = {
            **results.metadata,
            "crag_score": max(known, default=None if own else 0),
            "crag_path": path,
            "crag_reasoning": reasoning,
            "low_confidence": path == "Incorrect" and not answered,
            "needs_followup": path == "Ambiguous" and not answered,
        }
        warned = (*results.warnings, *dict.fromkeys(run.collected))
        return replace(results, chunks=tuple(chunks), metadata=metadata, warnings=warned)

    async def _grades(self, chunks: Sequence[RetrievalChunk], run: _Run) -> Graded:
        options = self.options
        graded = await grade_passages(
            self._chat,
            run.question,
            chunks,
            batch=options.batch,
            words=options.words,
            moment=run.moment,
        )
        for which, error in graded.failures:
            self._failed(f"{which}: {error.message}", error, run)
        return graded

    def _failed(self, what: str, error: Exception, run: _Run) -> None:
        """Note a failure; raise it when the stage is strict."""
        if self._strict:
            if isinstance(error, ChatError | StageError):
                raise error
            raise StageError(self.name, what) from error
        run.collected.append(f"stage '{self.name}': {what}")

    def _useful(self, judged: _Judged) -> _Judged:
        """Return what is not known to be of no use."""
        return [one for one in judged if one[1] is None or one[1] > self.options.lower]

    async def _elsewhere(self, own: Sequence[RetrievalChunk], run: _Run) -> _Judged:
        """Return the fallback's chunks that the results don't have, graded."""
        if self._fallback is None:
            return []
        try:
            answer = await before(
                run.moment, self._fallback.retrieve(run.question, top_k=run.top_k)
            )
            found = [_with(chunk, retriever="fallback") for chunk in answer]
            run.collected += [f"fallback: {warning}" for warning in answer.warnings]
        except Exception as error:
            # What the person has to mend is never passed over.
            if isinstance(error, NbragError) and not isinstance(error, ChatError | StageError):
                raise
            words = getattr(error, "message", f"{type(error).__name__}: {error}")
            self._failed(f"the fallback failed: {words}", error, run)
            return []
        known = {chunk.id for chunk in own}
        new = [chunk for chunk in distinct_chunks([*own, *found]) if chunk.id not in known]
        return _marked(new, await self._grades(new, run))

    async def _refined(
        self, chunks: Sequence[RetrievalChunk], run: _Run
    ) -> Sequence[RetrievalChunk]:
        """Return the chunks cut down to their best strips; whole when the strips get no grades."""
        strips = [
            (number, start, end)
            for number, chunk in enumerate(chunks)
            for start, end in split_strips(chunk.content)
        ]
        graded = await grade_passages(
            self._chat,
            run.question,
            [
                replace(chunks[number], content=chunks[number].content[start:end])
                for number, start, end in strips
            ],
            batch=_STRIPS_PER_CALL,
            words=None,
            moment=run.moment,
        )
        for which, error in graded.failures:
            strip = which.replace("passage", "strip")
            self._failed(f"{strip}: {error.message}", error, run)
        if None in graded.grades:
            run.collected.append(f"stage '{self.name}': passages stay whole")
            return chunks
        useful = [
            (-grade, strip)
            for strip, grade in zip(strips, graded.grades, strict=True)
            if grade is not None and grade > self.options.lower
        ]
        if not useful:
            run.collected.append(
                f"stage '{self.name}': no strip was found to help; passages stay whole"
            )
            return chunks
        kept: dict[int, list[tuple[int, int]]] = {}
        for _, (number, start, end) in sorted(useful)[: self.options.strips]:
            kept.setdefault(number, []).append((start, end))
        return [recomposed(chunks[number], kept[number]) for number in sorted(kept)]


def _with(chunk: RetrievalChunk, **fields: Any) -> RetrievalChunk:
    """Return a chunk with further fields in its record."""
    return replace(chunk, record={**chunk.record, **fields})


def _marked(chunks: Sequence[RetrievalChunk], graded: Graded) -> _Judged:
    return [
        (chunk if grade is None else _with(chunk, crag_grade=grade), grade)
        for chunk, grade in zip(chunks, graded.grades, strict=True)
    ]


def _by_grade(judged: _Judged, stage: str) -> _Judged:
    """Return the chunks best grade first, with the grade as score; ungraded ones last."""
    ordered = sorted(judged, key=lambda one: -(one[1] or 0))
    return [
        (chunk.ranked(stage, rank, float(grade or 0)), grade)
        for rank, (chunk, grade) in enumerate(ordered, start=1)
    ]


register_stage(
    StageDefinition(
        name="crag",
        kind="retrieval",
        role="result",
        options=CragOptions,
        build=lambda options, context: CragValidator(
            context.chat(), options, strict=context.strict
        ),
        method="use_crag",
        summary="Results are graded, refined to what helps, or refused.",
    )
)
