"""The stage ``hyde``: made-up answers move the question's vector to where real ones lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, Field

from nbrag.errors import ChatError, ChatUnavailable, EmbedderMismatch
from nbrag.models.chat.passages import question_line
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Collection, Embedder, RetrievalQueryProcessor
from nbrag.retrieval.processors._questions import QUESTION_IS_DATA, required, written_width
from nbrag.retrieval.searching import encodable
from nbrag.spec import ModelStageOptions, StageDefinition, register_stage
from nbrag.types import ChatMessage, QueryVariant, RetrievalQuery, Strategy, VariantKind

__all__ = ["HydeOptions", "HydeQueryTransformer", "HypotheticalDocument"]

_SYSTEM = f"""You write passages that could stand in a document and answer a search query. They \
are only compared with real documents and never shown, so state things plainly even where you \
can't know them: invent plausible details, never refuse, never say that you are unsure.
{QUESTION_IS_DATA}
Write {{language}}, 60 to 120 words of running text, without a heading or any remark about the \
task."""

_TASKS = {
    "web": "Write a passage of a web page or handbook that answers the question.",
    "claim": (
        "The question is a scientific claim, or asks about one. Write a passage of a research "
        "paper whose findings support or refute it, in the words of such papers: what was "
        "studied, how, and what was measured."
    ),
    "finance": (
        "Write a passage of a financial article, report or expert's answer that settles the "
        "question, in the terms of the trade: instruments, accounts, taxes, figures."
    ),
    "code": (
        "Write a passage of technical documentation that answers the question, with the names "
        "of functions, options and errors that it would hold, and a short piece of code where "
        "documentation would show one."
    ),
}

#: A passage has at least this many letters and digits.
_LEAST_WIDTH = 10
#: Share of the time limit that writing may take; the rest is for embedding.
_WRITING_SHARE = 0.9


class HydeOptions(ModelStageOptions):
    """How many hypothetical documents are written, and of which kind."""

    documents: int = Field(
        default=4, ge=1, le=32, description="hypothetical documents, one call each"
    )
    task: Literal["web", "claim", "finance", "code"] = Field(
        default="web", description="what the collection's documents are like"
    )
    language: str | None = Field(
        default=None,
        min_length=2,
        max_length=40,
        description="the documents' language, e.g. German; none: the question's own",
    )
    temperature: float = Field(
        default=0.7, ge=0, le=2, description="how much the documents differ from each other"
    )
    max_tokens: int | None = Field(
        default=None, ge=32, description="most tokens of one reply; none leaves it to the model"
    )


class HypotheticalDocument(BaseModel):
    """A passage that might answer the question."""

    passage: str = Field(description="the passage")


class HydeQueryTransformer(RetrievalQueryProcessor):
    """Searches with the mean of the question's vector and those of hypothetical documents.

    Gao et al., "Precise Zero-Shot Dense Retrieval without Relevance Labels" (arXiv 2212.10496):
    a model writes N documents that might answer the question; each is embedded as a document; the
    search vector is the mean of theirs and the question's own, here scaled to length 1. The paper
    has N = 8 at temperature 0.7 and at most 512 tokens each. The default here is 4: the variance
    of the mean falls with 1 / N, so the second four calls of each question would take away an
    eighth of a single sample's variance. ``max_tokens`` has no default, since a cap would cut
    short the models that think before they write; the prompt asks for a short passage instead.

    Documents are sampled independently, as in the paper, by one call each at the same time: a
    list from one call is not independent (each passage knows the ones before it), and is lost as
    a whole when the reply breaks off. Requests are numbered ("version 2 of 4"), since the very
    same request would be answered from the reply cache.

    The vector replaces that of the original variant, whose words stay: the keyword search, a
    reranker and an answer see the question alone. Rewrites, which ``expand`` may add before or
    after, keep their own vectors: the documents answer the question as it was asked. A variant
    that has a vector already lends it to the mean in the place of its words'.

    Documents that fail or come back empty are left out with a warning, and so are those that are
    not there when nine tenths of ``time_limit`` are over; when none is left the query goes on
    unchanged. A query that is searched by keywords only, or not at all, gets no documents.

    Parameters
    ----------
    chat
        The model that writes.
    options
        How many documents, and of which kind.
    embedder
        Gives the embedder of the collection.

    Raises
    ------
    ConfigurationError
        When there is no chat client or no embedder.
    """

    name = "hyde"

    def __init__(
        self,
        chat: ChatClient,
        options: HydeOptions | None = None,
        *,
        embedder: Callable[[], Embedder],
    ) -> None:
        self._chat = required(chat, self.name, "a chat client")
        self._embedder = required(embedder, self.name, "an embedder")
        self.options = options or HydeOptions()

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
        """Return the query, its original variant with the mean vector.

        The documents stand in the metadata under ``hyde_hypothetical``.

        Raises
        ------
        ChatError
            When the model writes no usable document.
        EmbedderMismatch
            When the collection's vectors come from another embedder.
        """
        variants = query.effective_variants
        originals = [v for v in variants if v.kind is VariantKind.ORIGINAL and "vector" in v.legs]
        idle = query.strategy in (Strategy.NONE, Strategy.KEYWORD)
        if idle or not originals or not query.text.strip():
            return query
        embedder = self._embedder()
        if embedder.identity != collection.identity.searched_with:
            raise EmbedderMismatch(
                f"collection '{collection.name}' was made with the embedder "
                f"{collection.identity.name}, not with {embedder.identity.name}.",
                hint="use that embedder, or ingest into a new collection",
            )
        documents, failures = await self._write(query.text)
        if not documents:
            raise failures[0]
        moved = await _with_mean(originals, documents, embedder)
        variants = tuple(moved.get(id(variant), variant) for variant in variants)
        metadata = {**query.metadata, "hyde_hypothetical": documents}
        changed = replace(query, variants=variants, metadata=metadata)
        if not failures:
            return changed
        return changed.with_warning(
            f"stage '{self.name}': {len(failures)} of {self.options.documents} hypothetical "
            f"documents failed ({failures[0].message.rstrip('.')}); "
            f"the other {len(documents)} were used"
        )

    async def _write(self, question: str) -> tuple[list[str], list[ChatError]]:
        """Return the documents in order, and why the others failed."""
        count = self.options.documents
        numbers = range(1, count + 1)
        tasks = [asyncio.create_task(self._one(question, number)) for number in numbers]
        seconds = _WRITING_SHARE * self.options.time_limit
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        documents: list[str] = []
        failures: list[ChatError] = []
        for outcome in outcomes:
            if isinstance(outcome, str):
                documents.append(outcome)
            elif isinstance(outcome, asyncio.CancelledError):
                failures.append(ChatUnavailable(f"no answer within {seconds:g} seconds."))
            elif isinstance(outcome, ChatError):
                failures.append(outcome)
            else:
                # The person's to mend, or a bug: not a matter of one document.
                raise outcome
        return documents, failures

    async def _one(self, question: str, number: int) -> str:
        """Return one hypothetical document."""
        options = self.options
        cap = {} if options.max_tokens is None else {"max_tokens": options.max_tokens}
        reply = await ask(
            self._chat,
            _messages(question, options, number),
            HypotheticalDocument,
            check=_check,
            temperature=options.temperature,
            **cap,
        )
        return encodable(reply.passage.strip())


async def _with_mean(
    originals: Sequence[QueryVariant], documents: Sequence[str], embedder: Embedder
) -> dict[int, QueryVariant]:
    """Return the variants with the mean of their own vector and the documents', by ``id()``."""
    import numpy as np

    written = await embedder.embed_documents(documents)
    unknown = [encodable(variant.text) for variant in originals if variant.vector is None]
    known = iter(await embedder.embed_queries(unknown) if unknown else ())
    moved = {}
    for variant in originals:
        own = next(known) if variant.vector is None else variant.vector
        mean = np.vstack([written, own]).mean(axis=0, dtype=np.float64)
        length = float(np.linalg.norm(mean))
        # Vectors that cancel each other out point nowhere.
        vector = (mean / length).astype(np.float32) if length > 1e-6 else own
        moved[id(variant)] = replace(variant, vector=vector)
    return moved


def _check(reply: HypotheticalDocument) -> None:
    if written_width(reply.passage) < _LEAST_WIDTH:
        raise ValueError("the passage is empty or next to nothing")


def _messages(question: str, options: HydeOptions, number: int) -> list[ChatMessage]:
    """Return what the model is asked for one document."""
    language = f"in {options.language}" if options.language else "in the question's language"
    version = f"This is version {number} of {options.documents}; the versions differ."
    request = f"{question_line(question)}\n\n{_TASKS[options.task]}\n{version}"
    return [
        ChatMessage("system", _SYSTEM.format(language=language)),
        ChatMessage("user", request),
    ]


register_stage(
    StageDefinition(
        name="hyde",
        kind="retrieval",
        role="query",
        options=HydeOptions,
        build=lambda options, context: HydeQueryTransformer(
            context.chat(), options, embedder=context.embedder
        ),
        method="use_hyde",
        summary="Made-up answers lead the vector search to real ones (HyDE).",
        single=True,
    )
)
