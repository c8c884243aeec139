"""The stage ``rerank model=llm``: a chat model orders the results, window by window."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nbrag.errors import BudgetExceeded, ChatError, ConfigurationError, ReplyInvalid
from nbrag.models.chat import ask
from nbrag.models.chat.passages import PASSAGES_ARE_DATA, passage_block, question_line
from nbrag.protocols import ChatClient, Collection, RetrievalResultProcessor
from nbrag.retrieval.processors._asking import before, last_moment
from nbrag.retrieval.processors._rankings import (
    Ranking,
    permutation,
    ranking_in,
    sliding_windows,
)
from nbrag.retrieval.processors.rerank import RerankOptions
from nbrag.types import ChatMessage, RetrievalChunk, RetrievalResults

__all__ = ["LlmReranker"]

_SYSTEM = (
    "You order passages by how well they help to answer a question: a passage that answers it "
    f"comes before one that only touches its subject. {PASSAGES_ARE_DATA}"
)


@dataclass(frozen=True, slots=True)
class _Reranked:
    """The order that came out, as positions in the old one, and what went wrong."""

    order: list[int]
    answered: int
    failures: list[tuple[str, ChatError]]


class LlmReranker(RetrievalResultProcessor):
    """Has a chat model put the results in order: a stage, and a :class:`nbrag.protocols.Reranker`.

    Sun et al., "Is ChatGPT Good at Search? Investigating Large Language Models as Re-Ranking
    Agents" (RankGPT, arXiv:2304.09542): the model orders a window of 20 passages of at most 300
    words, at temperature 0; the window moves up from the bottom of the list by 10, so that the
    best passages rise. Here lists shorter than a window are ordered too, and the last window
    always covers the top: 20 results cost one call, 100 cost nine.

    The model's ids are held against those that were sent: repeats and unknown ids are dropped,
    and passages that it forgot follow in their old order. A window without a usable answer keeps
    its order, with a warning. When the allowed budget or the time is used up, no more windows are
    asked for, and the order so far counts.

    The new score depends on the rank alone: ``(n + 1 - rank) / n`` for n results, which falls
    from 1 to 1/n. The scores of the search and of earlier stages stay in each chunk's history.
    The results' metadata says under ``reranked`` whether any window was ordered.

    Parameters
    ----------
    chat
        The model.
    options
        How long the list is and how it is cut; ``RerankOptions(model="llm")`` when None.
    strict
        Whether a window without an answer raises.

    Raises
    ------
    ConfigurationError
        When there is no chat client.
    """

    name = "rerank"

    def __init__(
        self, chat: ChatClient, options: RerankOptions | None = None, *, strict: bool = False
    ) -> None:
        if not isinstance(chat, ChatClient):
            raise ConfigurationError(
                f"a reranker needs a chat client, not {chat!r}.",
                hint="give an object with `model` and `complete`",
            )
        self.options = options or RerankOptions(model="llm")
        self._chat = chat
        self._strict = strict

    def candidates_needed(self, top_k: int) -> int:
        """Return how many results there should be to choose from."""
        return max(self.options.candidates, top_k)

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:  # noqa: ARG002
        """Return the results in the model's order, the first ``keep`` of them."""
        wanted = self.options.candidates
        chunks, rest = results.chunks[:wanted], results.chunks[wanted:]
        if len(chunks) < 2:
            return results
        reranked = await self._reranked(results.query.text, chunks)
        if reranked.answered:
            ordered = self._scored([*(chunks[place] for place in reranked.order), *rest])
        else:
            ordered = list(results.chunks)
        results = replace(
            results,
            chunks=tuple(ordered[: self.options.keep]),
            metadata={**results.metadata, "reranked": reranked.answered > 0},
        )
        for where, error in reranked.failures:
            results = results.with_warning(self._warning(where, error))
        return results

    async def rerank(self, query: str, chunks: Sequence[RetrievalChunk]) -> list[RetrievalChunk]:
        """Return all the chunks, best first; fewer than two are returned as they are.

        A window that keeps its order for want of an answer gives a Python warning.

        Raises
        ------
        ChatError
            When no window was answered, or one was not and the reranker is strict.
        """
        if len(chunks) < 2:
            return list(chunks)
        reranked = await self._reranked(query, chunks)
        if not reranked.answered:
            raise reranked.failures[0][1]
        for where, error in reranked.failures:
            warnings.warn(self._warning(where, error), RuntimeWarning, stacklevel=2)
        return self._scored([chunks[place] for place in reranked.order])

    def _scored(self, chunks: Sequence[RetrievalChunk]) -> list[RetrievalChunk]:
        count = len(chunks)
        return [
            chunk.ranked(self.name, rank, (count + 1 - rank) / count)
            for rank, chunk in enumerate(chunks, start=1)
        ]

    def _warning(self, where: str, error: ChatError) -> str:
        return f"stage '{self.name}': {where} kept their order: {error.message}"

    async def _reranked(self, question: str, chunks: Sequence[RetrievalChunk]) -> _Reranked:
        """Order window after window, from the bottom to the top."""
        moment = last_moment(self.options)
        windows = list(sliding_windows(len(chunks), self.options.window, self.options.step))
        order = list(range(len(chunks)))
        answered = 0
        failures: list[tuple[str, ChatError]] = []
        for number, (start, end) in enumerate(windows):
            part = order[start:end]
            try:
                ranking = await self._ranking(question, [chunks[i] for i in part], moment)
            except ChatError as error:
                if self._strict:
                    raise
                over = isinstance(error, BudgetExceeded) or _time() >= moment
                failures.append((_place(number, windows, to_the_top=over), error))
                if over:
                    break
            else:
                order[start:end] = [part[i] for i in ranking]
                answered += 1
        return _Reranked(order, answered, failures)

    async def _ranking(
        self, question: str, chunks: Sequence[RetrievalChunk], moment: float
    ) -> list[int]:
        """Return the order of one window; a model that answers with none is asked once more."""
        messages = self._prompt(question, chunks)
        try:
            return await self._asked(messages, len(chunks), moment)
        except ReplyInvalid as error:
            again = (
                *messages,
                # Providers refuse empty messages.
                ChatMessage("assistant", error.reply.strip()[:2000] or "..."),
                ChatMessage("user", f"That can't be used: {error.message} Rank the passages."),
            )
        return await self._asked(again, len(chunks), moment)

    async def _asked(self, messages: Sequence[ChatMessage], count: int, moment: float) -> list[int]:
        def complete(reply: Ranking) -> None:
            if sorted(reply.ranking) != list(range(1, count + 1)):
                raise ValueError(f"the ranking must have each id from 1 to {count} once")

        question = ask(self._chat, messages, Ranking, check=complete, tries=1, temperature=0.0)
        try:
            ids = (await before(moment, question)).ranking
        except ReplyInvalid as error:
            ids = ranking_in(error.reply, count)
            if not ids:
                raise
        return permutation(ids, count)

    def _prompt(self, question: str, chunks: Sequence[RetrievalChunk]) -> list[ChatMessage]:
        block = passage_block(chunks, words=self.options.words)
        asked = (
            f"{question_line(question)}\n{block}\n"
            f"Rank the {len(chunks)} passages above by how well they help to answer the question. "
            f"Name each id from 1 to {len(chunks)} once, best first."
        )
        return [ChatMessage("system", _SYSTEM), ChatMessage("user", asked)]


def _time() -> float:
    return asyncio.get_running_loop().time()


def _place(number: int, windows: Sequence[tuple[int, int]], *, to_the_top: bool) -> str:
    """Return a window in words, alone or with all that come after it."""
    start, end = windows[number]
    last = len(windows) - 1
    if to_the_top and number < last:
        return f"windows {number + 1} to {last + 1} of {last + 1} (results 1 to {end})"
    return f"window {number + 1} of {last + 1} (results {start + 1} to {end})"
