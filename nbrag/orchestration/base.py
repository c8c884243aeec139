"""What all ways to an answer share: one question's run, its events, its limits, its accounts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field

from nbrag.background import on_loop
from nbrag.errors import ChatError, ChatUnavailable, ConfigurationError, QueryError, StageError
from nbrag.models.chat.ledger import noted_calls
from nbrag.models.chat.managed import ManagedChatClient
from nbrag.orchestration.conversation import standalone_question
from nbrag.orchestration.prompts import CONDENSE_PROMPT, Prompt
from nbrag.orchestration.running import AnswerRun
from nbrag.orchestration.streaming import AnswerStream, answer_events
from nbrag.protocols import ChatClient, Retriever
from nbrag.spec import ModelStageOptions
from nbrag.types import Answer, AnswerDone, AnswerEvent, AnswerUsage, Turn

__all__ = ["DEFAULT_PASSAGES", "Orchestrator", "OrchestratorOptions", "managed"]

DEFAULT_PASSAGES = 5
#: Share of the time limit after which an answer waits no longer for a model: the rest is for
#: handing on what is known by then.
_SHARE = 0.9
_Options = TypeVar("_Options", bound="OrchestratorOptions")


class OrchestratorOptions(ModelStageOptions):
    """What every way to an answer has to choose."""

    time_limit: float = Field(
        default=120.0, gt=0, le=3_600, description="seconds after which there is no answer"
    )
    passages: int | None = Field(
        default=None, ge=1, le=200, description="passages that are retrieved; none: as asked, or 5"
    )
    context_tokens: int = Field(
        default=4_000,
        ge=50,
        le=1_000_000,
        description="tokens of all passages in one prompt; what does not fit is left out",
    )
    max_tokens: int = Field(
        default=1_024, ge=1, le=100_000, description="tokens of one reply of the model"
    )


class Orchestrator(ABC, Generic[_Options]):
    """A way from a question to an answer, over any retriever and any chat model.

    A subclass says what happens in :meth:`_answer`; questions that follow a conversation, the time
    limit, events, accounts and failures are seen to here.

    Parameters
    ----------
    retriever
        Finds the passages: an object with ``async def retrieve(query, *, top_k, where)``.
    chat
        The chat model. One without retries and time limits gets them.
    options
        The options; defaults when None.
    strict
        Whether a failing model raises instead of giving an answer with ``outcome="failed"``.

    Raises
    ------
    ConfigurationError
        When there is no retriever or no chat client.
    """

    #: Name of the stage in cells.
    name: ClassVar[str] = "orchestrator"
    #: The model of the options.
    options_type: ClassVar[type[OrchestratorOptions]] = OrchestratorOptions

    options: _Options

    def __init__(
        self,
        retriever: Retriever,
        chat: ChatClient,
        options: _Options | None = None,
        *,
        strict: bool = False,
    ) -> None:
        if not isinstance(retriever, Retriever):
            raise ConfigurationError(
                f"an answer needs a retriever, not {retriever!r}.",
                hint="give pipeline.as_retriever(collection), or an object with "
                "`async def retrieve(query, *, top_k, where)`",
            )
        self.retriever = retriever
        self.chat = managed(chat)
        self.options = self.options_type() if options is None else options  # type: ignore[assignment]
        self.strict = strict

    @property
    def prompts(self) -> dict[str, Prompt]:
        """What the model is told, by name: text and version."""
        return {prompt.name: prompt for prompt in (*self._prompts(), CONDENSE_PROMPT)}

    @abstractmethod
    def _prompts(self) -> Sequence[Prompt]:
        """Return the prompts that an answer uses, without the one that condenses."""

    @abstractmethod
    async def _answer(self, run: AnswerRun) -> Answer:
        """Return the answer to ``run.question``.

        Runs on the background loop. Make it with ``run.answer_of``, ``run.refused`` or
        ``run.failed``; warnings, usage, trace, model and prompts are filled in afterwards. A
        :class:`nbrag.errors.ChatError` that comes out of it becomes ``run.failed``.
        """

    async def answer(
        self,
        question: str,
        *,
        top_k: int | None = None,
        where: Any = None,
        history: Sequence[Turn] = (),
        on_event: Callable[[AnswerEvent], None] | None = None,
    ) -> Answer:
        """Answer a question.

        Parameters
        ----------
        question
            The question.
        top_k
            Passages that are retrieved; None for the option ``passages``, or 5.
        where
            A filter that the passages must pass.
        history
            The conversation before, ``earlier.turns`` for that of an earlier answer: the question
            is first put so that it can be understood without it.
        on_event
            Called on the background loop's thread with each event as it happens: stages, the
            evidence, pieces of the text, citations, and :class:`nbrag.types.AnswerDone`.

        Raises
        ------
        QueryError
            When the question is empty.
        ModelError, NbragError
            What a person has to mend: a wrong key, a filter that can't be read.
        StageError
            When the model fails and the orchestrator is strict.
        """
        return await on_loop(self._run(question, top_k, where, tuple(history), on_event))

    def stream(
        self,
        question: str,
        *,
        top_k: int | None = None,
        where: Any = None,
        history: Sequence[Turn] = (),
    ) -> AnswerStream:
        """Answer a question, and tell what happens; parameters and errors as in :meth:`answer`.

        Leaving the loop over it, or cancelling it, ends the calls in flight.

        Examples
        --------
        >>> async for event in answerer.stream("How long are backups kept?"):
        ...     if isinstance(event, TextPiece):
        ...         print(event.piece, end="")
        """
        return AnswerStream(
            answer_events(
                lambda emit: self.answer(
                    question, top_k=top_k, where=where, history=history, on_event=emit
                )
            )
        )

    async def _run(
        self,
        question: str,
        top_k: int | None,
        where: Any,
        history: tuple[Turn, ...],
        on_event: Callable[[AnswerEvent], None] | None,
    ) -> Answer:
        if not question.strip():
            raise QueryError("the question is empty.", hint="write what you want to know")
        loop = asyncio.get_running_loop()
        run = AnswerRun(
            question,
            question,
            history,
            top_k or self.options.passages or DEFAULT_PASSAGES,
            where,
            self.chat,
            self.retriever,
            loop.time() + _SHARE * self.options.time_limit,
            on_event is not None,
            on_event or _nobody,
        )
        run.trace.question = question
        prompts = {prompt.name: prompt.version for prompt in self._prompts()}
        with noted_calls() as calls:
            if history:
                prompts[CONDENSE_PROMPT.name] = CONDENSE_PROMPT.version
                run.question = await self._standalone(run)
            try:
                async with asyncio.timeout(self.options.time_limit) as clock:
                    answer = await self._answer(run)
            except TimeoutError:
                if not clock.expired():
                    raise
                late = ChatUnavailable(
                    f"there was no answer within {self.options.time_limit:g} seconds.",
                    hint="raise time_limit=",
                )
                answer = self._failed(run, late) if run.so_far is None else run.so_far(late)
            except ChatError as error:
                answer = self._failed(run, error)
        answer = replace(
            answer,
            standalone_question=run.question,
            history=history,
            warnings=tuple(dict.fromkeys((*run.warnings, *answer.warnings))),
            prompts={**prompts, **answer.prompts},
            model=self.chat.model,
            usage=AnswerUsage.of(calls),
            trace=run.trace,
        )
        run.emit(AnswerDone(answer))
        return answer

    async def _standalone(self, run: AnswerRun) -> str:
        """Return the question without need of the conversation; as it is when that fails."""
        with run.stage("condense") as told:
            try:
                found = await run.in_time(standalone_question(run.chat, run.asked, run.history))
            except ChatError as error:
                if self.strict:
                    raise StageError("condense", error.message, hint=error.hint) from error
                run.warn(
                    f"stage 'condense' failed and was passed over: {error.message} The question "
                    "was taken as it is"
                )
                return run.asked
            told["detail"] = found
        return found

    def _failed(self, run: AnswerRun, error: ChatError, **fields: Any) -> Answer:
        """Return that there is no answer, or raise it; ``fields`` are further ones."""
        if self.strict:
            raise StageError(self.name, error.message, hint=error.hint) from error
        return run.failed(error, **fields)

    def __repr__(self) -> str:
        """Name the way and the model."""
        return f"<{type(self).__name__} of {self.chat.model}>"


def managed(chat: Any) -> ManagedChatClient:
    """Return a client with retries, limits and accounts around it; refuse what is no client."""
    if not isinstance(chat, ChatClient):
        raise ConfigurationError(
            f"an answer needs a chat client, not {chat!r}.",
            hint="give an object with `model` and `complete`",
        )
    if isinstance(chat, ManagedChatClient):
        return chat
    one_by_one = getattr(chat, "one_at_a_time", False)
    return ManagedChatClient(
        chat, concurrency=1 if one_by_one else 8, timeout=getattr(chat, "timeout", 60.0)
    )


def _nobody(_: AnswerEvent) -> None:
    """Take an event that nobody listens to."""
