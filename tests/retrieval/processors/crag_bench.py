"""Models, chunks and collections for the tests of corrective retrieval."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import nbrag
from nbrag.protocols import ChatClient
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.crag import CragOptions, CragValidator
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import (
    ChatMessage,
    ChatReply,
    RetrievalChunk,
    RetrievalQuery,
    RetrievalResults,
    Span,
)
from nbrag.workspace import Workspace

QUESTION = "how is a backup made?"


def crag_workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        backup = "Backups are made with the dump command, grade=5. " * 2
        other = "Backups of cats are drawn by hand, grade=1. The cat is asleep today, grade=2."
        records = [{"id": "good", "text": backup}, {"id": "bad", "text": other}]
        records += [{"id": f"n{i}", "text": f"backups number {i}, grade=2."} for i in range(10)]
        opened.ingest("docs", records)
        opened.ingest("web", [{"id": "w", "text": "Backups: on the web, grade=5."}])
        yield opened


def sent(messages: Sequence[ChatMessage]) -> dict[int, str]:
    """Return the passages of a prompt, by the number that they were sent under."""
    lines = [json.loads(x) for x in messages[1].content.splitlines() if x.startswith('{"id"')]
    return {line["id"]: line["text"] for line in lines}


def reply(grades: Mapping[int, int], reasoning: str = "as it is") -> str:
    rows = [{"id": number, "grade": grade} for number, grade in grades.items()]
    return json.dumps({"reasoning": reasoning, "grades": rows})


def as_written(messages: Sequence[ChatMessage]) -> str:
    """A model that gives each passage the best grade that is written in it."""
    return reply(
        {
            n: max(map(int, re.findall(r"grade=(\d)", t)), default=1)
            for n, t in sent(messages).items()
        }
    )


def chunk(name: str, text: str = "", **record: Any) -> RetrievalChunk:
    text = text or f"This is the passage {name}."
    return RetrievalChunk(name, f"doc-{name}", text, 0.5, record, None, Span(10, 10 + len(text)))


def graded(*grades: int) -> list[RetrievalChunk]:
    return [chunk(f"c{i}", f"Passage {i} says, grade={g}.") for i, g in enumerate(grades)]


class Elsewhere:
    """A retriever that finds what it is given."""

    def __init__(self, *found: Any) -> None:
        self.found = found
        self.asked: list[Any] = []

    async def retrieve(
        self, query: str | RetrievalQuery, *, top_k: int = 5, where: Any = None
    ) -> RetrievalResults:
        self.asked.append((query, top_k, where))
        for one in self.found:
            if isinstance(one, BaseException):
                raise one
        return RetrievalResults(RetrievalQuery(str(query)), self.found[:top_k], warnings=("slow",))


def crag(
    chat: ChatClient | Sequence[Any] | Callable[[Any], Any],
    chunks: Sequence[RetrievalChunk],
    *,
    fallback: Any = None,
    strict: bool = False,
    top_k: int = 5,
    **options: Any,
) -> RetrievalResults:
    client = chat if isinstance(chat, ChatClient) else ScriptedChatClient(chat)
    options = {"refine": False, **options}
    stage = CragValidator(client, CragOptions(**options), fallback=fallback, strict=strict)
    results = RetrievalResults(RetrievalQuery(QUESTION, top_k), tuple(chunks), {"kept": 1})
    changed: RetrievalResults = nbrag.run(stage.process(results, None))  # type: ignore[arg-type]
    assert changed.metadata["kept"] == 1
    return changed


def ids(results: Sequence[RetrievalChunk]) -> list[str]:
    return [found.id for found in results]


def through(
    workspace: Workspace, chat: ChatClient, *, strict: bool = False, **options: Any
) -> RetrievalResults:
    context = BuildContext(lambda: workspace.embedder, lambda: chat, strict)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    pipeline = builder.use_crag(**options).build()
    results: RetrievalResults = nbrag.run(
        pipeline.process(workspace["docs"], "made with the dump command")
    )
    return results


class Slow:
    """A model that takes its time; ``hangs`` says for which prompts it never answers."""

    model = "slow"

    def __init__(
        self, seconds: float, answer: Callable[[Any], str], hangs: Callable[[Any], bool] = bool
    ) -> None:
        self.seconds, self.answer, self.hangs = seconds, answer, hangs

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        await asyncio.sleep(60 if self.hangs is not bool and self.hangs(messages) else self.seconds)
        return ChatReply(self.answer(messages))
