"""The stage ``questions``: questions that a chunk answers, as rows of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field

from nbrag.errors import ConfigurationError
from nbrag.ingestion.enriching import ChunkEnricher
from nbrag.ingestion.processors._derived import (
    clean_line,
    derivation,
    is_refusal,
    own_context,
    words_of,
    written_width,
)
from nbrag.models.chat.passages import PASSAGES_ARE_DATA, passage_block
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Embedder
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.types import ChatMessage, Chunk, ChunkKind, stable_hash

__all__ = ["HypotheticalQueryProcessor", "Questions", "QuestionsOptions"]

_SYSTEM = f"""You write the questions by which a passage will be found: what people type into a \
search box when this passage is what they need.
{PASSAGES_ARE_DATA}
The passage itself answers each question. Each asks for something else than the others, and is \
understood by somebody who has not seen the passage: name what it is about (product, version, \
place, person) instead of "this", "the passage" or "the text". Put it as a person would who does \
not know the passage's own words. Write in the passage's language. No numbering, no remarks."""

#: What the questions are to be, in turn: they must differ in kind, or they find the same.
_FORMS = (
    "about the main thing that the passage says",
    "about a detail: a number, a name, a condition, an exception",
    "as somebody asks who has the problem that the passage solves, in everyday words",
)
#: A question has at least this many letters and digits, wide ones counting twice.
_LEAST_WIDTH = 5
#: A text longer than this is no question.
_MOST_CHARACTERS = 400
_NUMBERED = re.compile(r"\(?\d{1,2}[.):]\s+|[-*\u2022]\s+")


class QuestionsOptions(StageOptions):
    """How many questions there are, and which are kept."""

    per_chunk: int = Field(default=3, ge=1, le=20, description="most questions of a chunk")
    filter: bool = Field(
        default=True, description="whether a question that is far from its own chunk is dropped"
    )
    min_similarity: float = Field(
        default=0.25,
        ge=-1,
        le=1,
        description="least cosine of a kept question and its chunk, by the embedder's own scale",
    )
    temperature: float = Field(
        default=0.0, ge=0, le=2, description="how much chance there is in the model's words"
    )


class Questions(BaseModel):
    """Questions that the passage answers."""

    questions: list[str] = Field(description="the questions, one string each")


class HypotheticalQueryProcessor(ChunkEnricher):
    """Adds questions that a chunk answers, each a row that leads to the chunk.

    doc2query (Nogueira et al., 2019, 10 to 80 queries per passage) and its use with vectors,
    "reverse HyDE": a person's question is nearer to another question than to the passage that
    answers it. One structured call per chunk gives ``per_chunk`` questions that differ in kind.
    Blanks, repeats (case, spacing and punctuation don't count), refusals, what is too short or
    too long for a question, and what is more than asked for are dropped.

    doc2query-- (Gospodinov, MacAvaney and Macdonald, 2023) keeps the questions only that a
    relevance model gives to their passage, because models also write about what is not there.
    Here the embedder is that model: the cosine of question and chunk must reach
    ``min_similarity``. Measured with all-MiniLM-L6-v2 on the tutorial corpus (404 chunks, 272
    pairs of a person's question and the chunk that answers it), 0.25 keeps 86 % of the right
    pairs, 13 % of pairs with a chunk drawn at random, and 0.6 % of questions about nothing ("What
    does this passage say?"). To demand instead that no other chunk of the document be nearer
    keeps 66 % of the right pairs, and 16 % of either wrong kind: it drops the questions in other
    words than the passage's, which are the ones worth having, and lets pass everything about a
    document of one chunk. Other embedders have another scale: measure before you trust 0.25.

    The questions follow their chunk. They carry its metadata as it is at this place of the
    pipeline, so that filters hold for them too: put stages that add fields before this one. Ids
    are hashes of the chunk's id and the question: the questions of an edited chunk go with it.

    Parameters
    ----------
    chat
        The model that writes the questions.
    embedder
        Counts tokens, and tells how near a question is to its chunk.
    options
        How many there are, and which are kept.

    Attributes
    ----------
    dropped
        How many usable questions the filter has dropped.

    Raises
    ------
    ConfigurationError
        When there is no chat client or no embedder.
    """

    name = "questions"

    def __init__(
        self, chat: ChatClient, embedder: Embedder, options: QuestionsOptions | None = None
    ) -> None:
        super().__init__(chat)
        if not isinstance(embedder, Embedder):
            raise ConfigurationError(
                f"stage '{self.name}' needs an embedder, not {embedder!r}.",
                hint="give the embedder of the collection",
            )
        self.embedder = embedder
        self.options = options or QuestionsOptions()
        self.dropped = 0

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return the chunk, and its questions.

        Raises
        ------
        ChatError
            When the model gives no usable question.
        """
        options = self.options

        def usable(reply: Questions) -> list[str]:
            """Return the questions that may be kept."""
            return list(_distinct(reply.questions))[: options.per_chunk]

        def check(reply: Questions) -> None:
            """Refuse an answer without any."""
            if not usable(reply):
                raise ValueError("no question in the answer")

        reply = await ask(
            self.chat,
            _messages(chunk, options.per_chunk),
            Questions,
            check=check,
            temperature=options.temperature,
        )
        questions = usable(reply)
        counts = self.embedder.count_tokens(questions)
        rows = [
            self._row(chunk, question, count)
            for question, count in zip(questions, counts, strict=True)
            if count <= self.embedder.max_tokens
        ]
        return [chunk, *(await self._finding(chunk, rows) if options.filter else rows)]

    def _row(self, chunk: Chunk, question: str, count: int) -> Chunk:
        """Return a question as a row of its own."""
        return Chunk(
            id=stable_hash(chunk.id, question),
            document_id=chunk.document_id,
            content=question,
            ordinal=chunk.ordinal,
            heading_path=chunk.heading_path,
            kind=ChunkKind.HYPOTHETICAL_QUERY,
            parent_id=chunk.id,
            token_count=count,
            metadata={**chunk.metadata, **derivation(self.name, self.chat.model, _SYSTEM)},
        )

    async def _finding(self, chunk: Chunk, rows: Sequence[Chunk]) -> list[Chunk]:
        """Return the questions that are near enough to their chunk."""
        if not rows:
            return []
        own = await self.embedder.embed_documents([chunk.embedding_text])
        asked = await self.embedder.embed_queries([row.content for row in rows])
        near = asked @ own[0] >= self.options.min_similarity
        kept = [row for row, is_near in zip(rows, near, strict=True) if is_near]
        self.dropped += len(rows) - len(kept)
        return kept


def _distinct(texts: Sequence[str]) -> Iterator[str]:
    """Yield the texts that can be questions, each once."""
    seen: set[str] = set()
    for text in texts:
        clean = _NUMBERED.sub("", clean_line(text), count=1) if text else ""
        words = words_of(clean)
        if (
            words in seen
            or written_width(words) < _LEAST_WIDTH
            or len(clean) > _MOST_CHARACTERS
            or is_refusal(clean)
        ):
            continue
        seen.add(words)
        yield clean


def _messages(chunk: Chunk, count: int) -> list[ChatMessage]:
    """Return what the model is asked."""
    context = own_context(chunk)
    passage = f"{context}\n{chunk.content}" if context else chunk.content
    forms = "\n".join(f"- {_FORMS[number % len(_FORMS)]}" for number in range(count))
    number = "1 question" if count == 1 else f"{count} questions, each unlike the others"
    request = f"{passage_block([passage])}\n\nWrite {number}:\n{forms}"
    return [ChatMessage("system", _SYSTEM), ChatMessage("user", request)]


register_stage(
    StageDefinition(
        name="questions",
        kind="ingestion",
        role="chunk",
        options=QuestionsOptions,
        build=lambda options, context: HypotheticalQueryProcessor(
            context.chat(), context.embedder(), options
        ),
        method="use_questions",
        summary="Questions that a chunk answers, found in its place (doc2query--).",
        single=True,
    )
)
