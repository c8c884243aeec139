"""Makes the summaries of a tree, several at a time, and none that is there already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from nbrag.errors import ChatError
from nbrag.ingestion.processors._derived import (
    clean_line,
    derivation,
    is_refusal,
    words_of,
    written_width,
)
from nbrag.ingestion.trees.nodes import TreeNode
from nbrag.models.chat.passages import PASSAGES_ARE_DATA, passage_block
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, StageProblem, TokenCounter
from nbrag.types import ChatMessage, RetrievalChunk, stable_hash

__all__ = ["STAGE", "Lengths", "Summary", "SummaryMaker", "WrittenSummary"]

#: Name of the stage, in lineage and reports.
STAGE = "tree"
_SYSTEM = f"""You summarise passages, so that a search finds by the summary what they say together.
{PASSAGES_ARE_DATA}
Say what the passages are about, and then their main points. Keep names, numbers, versions, dates \
and conditions as they stand there. Where passages contradict each other, say so. Take everything \
from the block, and add nothing that is not there: no advice, no judgement, no knowledge of your \
own. One paragraph of plain sentences, without a heading, a list or remarks, and without words \
such as "the passages" or "this summary". Write in the language of the passages, or of most \
of them."""

#: Summaries that are worked on at the same time; the chat client bounds its calls by itself.
_AHEAD = 64
#: A summary has at least this many letters and digits, wide ones counting twice.
_LEAST_WIDTH = 12
#: Words that are asked for per token that is aimed at: what models write is rather longer.
_WORDS_PER_TOKEN = 0.6
#: How far a summary may exceed what is aimed at.
_TOLERANCE = 1.5


class Summary(BaseModel):
    """What the passages say together."""

    summary: str = Field(description="one paragraph that sums up all passages")


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long summaries are to be, and may be, in the embedder's tokens.

    Attributes
    ----------
    aimed
        What the model is asked for, as far as the embedding model takes it whole.
    longest
        What is still accepted.
    words
        What is asked for in words.
    """

    aimed: int
    longest: int
    words: int

    @classmethod
    def within(cls, aimed: int, limit: int) -> Lengths:
        """Return the lengths for an aim and the embedding model's limit."""
        fitting = min(aimed, max(int(limit / _TOLERANCE), 1))
        longest = min(int(fitting * _TOLERANCE), limit)
        return cls(fitting, longest, max(int(fitting * _WORDS_PER_TOKEN), 1))


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """A summary, and what it was made from and by.

    Attributes
    ----------
    text
        The summary.
    tokens
        Its length.
    lineage
        Metadata: the stage, the model, the prompt's version, and a hash of what it was made from.
    """

    text: str
    tokens: int
    lineage: Mapping[str, str]

    @property
    def key(self) -> str:
        """Hash of what it was made from."""
        return self.lineage["derived_key"]


class SummaryMaker:
    """Asks a chat model for summaries of nodes, unless they are there already.

    A node whose children's texts are those of before keeps its summary, whichever model wrote it.
    One about which the model gives no usable answer stays without, and is a problem of this run;
    what stands above it is made from the others.

    Parameters
    ----------
    chat
        The model.
    counter
        Counts tokens.
    texts
        Gives the texts of passages by id.
    lengths
        How long a summary may be.
    limit
        Most tokens of what is shown; a longer passage is cut.
    temperature
        How much chance there is in the model's words.
    stored
        The summaries that the tree has.
    stand_in
        Taken for a summary that there is none of, when work is only counted.

    Attributes
    ----------
    written
        Summaries by node id.
    missing
        The nodes that could not be summarised, by id.
    problems
        Why they could not.
    made, kept
        How many were asked for with success, and how many were there.
    """

    def __init__(
        self,
        chat: ChatClient,
        counter: TokenCounter,
        texts: Callable[[Sequence[str]], Awaitable[Mapping[str, str]]],
        *,
        lengths: Lengths,
        limit: int,
        temperature: float,
        stored: Iterable[RetrievalChunk] = (),
        stand_in: str | None = None,
    ) -> None:
        self.chat = chat
        self.counter = counter
        self.texts = texts
        self.lengths = lengths
        self.limit = limit
        self.temperature = temperature
        self.written: dict[str, WrittenSummary] = {}
        self.missing: dict[str, TreeNode] = {}
        self.problems: list[StageProblem] = []
        self.made = self.kept = 0
        self._stand_in = stand_in
        self._stored = {
            summary.key: summary for summary in map(_as_written, stored) if summary is not None
        }

    async def make(self, nodes: Iterable[TreeNode]) -> None:
        """Make the summaries of nodes that do not stand above each other.

        Raises
        ------
        ModelError
            When the person has to mend something, such as a wrong key; other calls are stopped.
        """
        places = asyncio.Semaphore(_AHEAD)

        async def one(node: TreeNode) -> None:
            """Make one when there is a place."""
            async with places:
                await self._make(node)

        tasks = [asyncio.create_task(one(node)) for node in nodes]
        try:
            for task in tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, node: TreeNode) -> None:
        key = self._key(node)
        if key is None:
            self._miss(node, "nothing beneath it could be summarised.")
            return
        stored = self._stored.get(key)
        if stored is not None:
            self.written[node.id] = stored
            self.kept += 1
            return
        try:
            text = await self._asked(node)
        except ChatError as error:
            if self._stand_in is None:
                self._miss(node, error.message)
                return
            text = self._stand_in
        lineage = {**derivation(STAGE, self.chat.model, _SYSTEM), "derived_key": key}
        self.written[node.id] = WrittenSummary(text, self._count(text), lineage)
        self.made += 1

    def _miss(self, node: TreeNode, reason: str) -> None:
        self.missing[node.id] = node
        self.problems.append(StageProblem(STAGE, node.document_id, reason, "summary"))

    def _key(self, node: TreeNode) -> str | None:
        """Return a hash of what a summary is made from; None when there is nothing."""
        parts = [
            f"text {self.written[child].text}" if child in self.written else f"id {child}"
            for child in self._present(node)
        ]
        settings = (str(self.lengths), str(self.limit), str(self.temperature))
        return stable_hash(_SYSTEM, *settings, *parts) if parts else None

    def _present(self, node: TreeNode) -> list[str]:
        """Return the children that have a text: passages, and summaries that were made."""
        return [child for child in node.children if child not in self.missing]

    async def _asked(self, node: TreeNode) -> str:
        children = self._present(node)
        passages = await self.texts([child for child in children if child not in self.written])
        shown = [
            self.written[child].text if child in self.written else passages[child]
            for child in children
            if child in self.written or child in passages
        ]
        reply = await ask(
            self.chat,
            _messages([self._clipped(text) for text in shown], self.lengths.words),
            Summary,
            check=self._check,
            temperature=self.temperature,
        )
        return clean_line(reply.summary)

    def _check(self, reply: Summary) -> None:
        """Refuse what is no summary, or too long to be embedded and summarised again."""
        text = clean_line(reply.summary)
        if written_width(words_of(text)) < _LEAST_WIDTH or is_refusal(text):
            raise ValueError("there is no summary in the answer")
        tokens = self._count(text)
        if tokens > self.lengths.longest:
            raise ValueError(
                f"the summary is too long: {tokens} tokens, where {self.lengths.longest} are the "
                f"most; write at most {self.lengths.words} words"
            )

    def _clipped(self, text: str) -> str:
        """Return a text, or as much of it as the limit of tokens takes."""
        spans = self.counter.token_spans(text)
        return text if len(spans) <= self.limit else text[: spans[self.limit - 1][1]]

    def _count(self, text: str) -> int:
        [count] = self.counter.count_tokens([text])
        return count


def _as_written(row: RetrievalChunk) -> WrittenSummary | None:
    """Return a stored summary, None when it does not tell what it was made from."""
    names = ("derived_by", "derived_model", "derived_prompt", "derived_key")
    lineage = {name: str(row.record[name]) for name in names if row.record.get(name)}
    if len(lineage) < len(names) or lineage["derived_by"] != STAGE:
        return None
    return WrittenSummary(row.content, int(row.record.get("token_count") or 0), lineage)


def _messages(texts: Sequence[str], words: int) -> list[ChatMessage]:
    """Return what the model is asked."""
    which = "passage" if len(texts) == 1 else f"{len(texts)} passages together"
    request = (
        f"{passage_block(texts)}\n\nSummarise the {which}, in at most {words} words; in fewer "
        "where they say little."
    )
    return [ChatMessage("system", _SYSTEM), ChatMessage("user", request)]
