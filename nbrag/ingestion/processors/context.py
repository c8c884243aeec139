"""The stage ``context``: a sentence in front of a chunk that says where it stands."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from nbrag.errors import ConfigurationError
from nbrag.ingestion.enriching import ChunkEnricher
from nbrag.ingestion.processors._derived import clean_line, is_refusal, words_of, written_width
from nbrag.ingestion.processors._surroundings import Surroundings, by_document, surroundings
from nbrag.models.chat.passages import PASSAGES_ARE_DATA, clip_words, passage_block
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Embedder
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.types import ChatMessage, Chunk, MetadataKeys

if TYPE_CHECKING:
    from nbrag.protocols import Collection

__all__ = ["ContextOptions", "ContextualHeader", "Situation"]

_log = logging.getLogger("nbrag.ingestion")

_SYSTEM = f"""You situate a passage within its document, so that a search finds it although it \
sees nothing else of the document.
{PASSAGES_ARE_DATA}
Write one or two sentences, 50 to 100 tokens in all. Say what the document is and which part of \
it the passage belongs to, and name what the passage speaks of without naming it: the product, \
version, edition, place, date, person, or what "it" and "the above" refer to. Take all of it from \
the block; add nothing that is not there. Do not repeat or summarise the passage, and do not \
begin with "This passage". Write in the passage's language."""

#: Words of the passage that are quoted so that it is recognised.
_QUOTED_WORDS = 12
#: A sentence has at least this many letters and digits, wide ones counting twice.
_LEAST_WIDTH = 8
#: Fewer tokens than this tell nothing: then the text is embedded as it was.
_LEAST_TOKENS = 8
_ELLIPSIS = "\u2026"
_SENTENCE_ENDS = frozenset(".!?\u3002\uff01\uff1f")


class ContextOptions(StageOptions):
    """What the model is shown, and how long its sentence may be."""

    scope: Literal["neighbours", "document"] = Field(
        default="neighbours",
        description="neighbours: the chunks around are shown; document: as many as words allow",
    )
    window: int = Field(
        default=2,
        ge=0,
        le=1_000,
        description="chunks shown before and after, with scope=neighbours",
    )
    words: int = Field(
        default=1_500, ge=50, le=200_000, description="most words of the chunks that are shown"
    )
    max_tokens: int = Field(
        default=100,
        ge=16,
        le=1_000,
        description="most tokens of the sentence, by the embedder's tokenizer",
    )
    temperature: float = Field(
        default=0.0, ge=0, le=2, description="how much chance there is in the model's words"
    )


class Situation(BaseModel):
    """Where the passage stands."""

    context: str = Field(description="one or two sentences that situate the passage")


class ContextualHeader(ChunkEnricher):
    """Puts a sentence in front of each chunk that says where in its document it stands.

    Contextual retrieval (Anthropic, 2024, 50 to 100 tokens from the whole document; failed
    searches down by 35 % with vectors, by 49 % with vectors and keywords). The sentence becomes
    the first line of the chunk's context, so that both legs of a search see it, and the metadata
    field ``contextual_summary``, to be shown apart. Content, span and id stay: an id stands for
    the text and its place, so that judgements and links hold with and without this stage, and
    whatever words the model chose. What was embedded is told by the hash of the embedded text.

    The model is shown the document's outline first (title and headings, at most 200 words; the
    first 60 words of a document without headings), then ``window`` chunks on either side. An edit
    therefore asks again about the chunks within ``window`` of it only, unless a heading changes
    (or the opening, where there are no headings): the outline is shown with every chunk.
    ``scope=document`` shows the whole document, up to ``words`` around the chunk: the same words
    for all chunks of a document that is not longer, which providers' prompt caches make cheap;
    but any edit then asks about all of its chunks again.

    A sentence never displaces content: what exceeds the embedding model's limit is cut from the
    sentence, and where fewer than 8 tokens of it are left the chunk is embedded as it was, with
    the sentence in its metadata alone. A warning in the log says how often. Let chunks leave room
    by ``chunk max_tokens=...``, about ``max_tokens`` of this stage below the model's limit.

    The stage ``questions`` does not show the sentence to its model, so that a changed sentence
    asks for no new questions; put this stage before it if questions are to carry the field too.

    Parameters
    ----------
    chat
        The model that writes the sentences.
    embedder
        Counts tokens.
    options
        What the model is shown, and how long its sentence may be.

    Raises
    ------
    ConfigurationError
        When there is no chat client or no embedder.
    """

    name = "context"

    def __init__(
        self, chat: ChatClient, embedder: Embedder, options: ContextOptions | None = None
    ) -> None:
        super().__init__(chat)
        if not isinstance(embedder, Embedder):
            raise ConfigurationError(
                f"stage '{self.name}' needs an embedder, not {embedder!r}.",
                hint="give the embedder of the collection",
            )
        self.embedder = embedder
        self.options = options or ContextOptions()
        self._shown: dict[int, Surroundings] = {}
        self._lengths = {"whole": 0, "cut": 0, "left out": 0}

    def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks in their order; a document is collected before its first is asked."""
        return super().process(self._with_surroundings(chunks))

    async def _with_surroundings(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        options = self.options
        window = options.window if options.scope == "neighbours" else None
        async for rows in by_document(chunks):
            around = surroundings(rows, window=window, words=options.words)
            for row, shown in zip(rows, around, strict=True):
                if shown is not None:
                    # The very object comes back in `enrich`, at once: ids need not be unique.
                    self._shown[id(row)] = shown
                yield row

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return the chunk with its sentence; on its own it is situated by its headings.

        Raises
        ------
        ChatError
            When the model gives no usable sentence.
        """
        options = self.options
        shown = self._shown.pop(id(chunk), None)
        if shown is None:
            [shown] = surroundings([chunk], window=0, words=options.words)
        if shown is None:
            return [chunk]
        content = words_of(chunk.content)

        def check(reply: Situation) -> None:
            """Refuse what situates nothing."""
            sentence = words_of(reply.context)
            if written_width(sentence) < _LEAST_WIDTH or is_refusal(reply.context):
                raise ValueError("there is no sentence in the answer")
            if f" {sentence} " in f" {content} ":
                raise ValueError("the sentence only repeats the passage")

        reply = await ask(
            self.chat, _messages(shown), Situation, check=check, temperature=options.temperature
        )
        return [self._situated(chunk, clean_line(reply.context))]

    def _situated(self, chunk: Chunk, sentence: str) -> Chunk:
        """Return the chunk with as much of the sentence as the embedding model takes."""
        sentence = self._clipped(sentence, self.options.max_tokens)
        limit, text = self.embedder.max_tokens, sentence
        while text:
            changed = replace(
                chunk,
                context=f"{text}\n{chunk.context}" if chunk.context else text,
                metadata={**chunk.metadata, MetadataKeys.CONTEXTUAL_SUMMARY: text},
            )
            [count] = self.embedder.count_tokens([changed.embedding_text])
            if count <= limit:
                self._lengths["whole" if text == sentence else "cut"] += 1
                return replace(changed, token_count=count)
            most = len(self.embedder.token_spans(text)) - (count - limit)
            text = self._clipped(text, most) if most >= _LEAST_TOKENS else ""
        self._lengths["left out"] += 1
        metadata = {**chunk.metadata, MetadataKeys.CONTEXTUAL_SUMMARY: sentence}
        return replace(chunk, metadata=metadata)

    def _clipped(self, text: str, most: int) -> str:
        """Return at most ``most`` tokens, to the end of a sentence where little is lost by it."""
        spans = self.embedder.token_spans(text)
        if len(spans) <= most:
            return text
        # An ellipsis of before may be several tokens, and would be put back again and again.
        text = text.rstrip(_ELLIPSIS + " ")
        spans = self.embedder.token_spans(text)
        kept = text[: spans[min(most, len(spans)) - 1][0]] if spans else ""
        end = max((i for i, mark in enumerate(kept) if mark in _SENTENCE_ENDS), default=-1) + 1
        if end and end >= len(kept) // 2 and text[end].isspace():
            return kept[:end]
        whole = kept if text[len(kept) :][:1].isspace() else kept.rpartition(" ")[0] or kept
        words = whole.rstrip(_ELLIPSIS + " ,;:")
        return words + _ELLIPSIS if words else ""

    async def finalize(self, collection: Collection) -> None:
        """Tell how often chunks had no room for their sentence."""
        counts, self._lengths = self._lengths, dict.fromkeys(self._lengths, 0)
        if counts["cut"] or counts["left out"]:
            limit = self.embedder.max_tokens
            _log.warning(
                "%s: stage 'context' had to cut %d of %d sentences and to leave %d out of the "
                "embedded text, because chunks fill the embedding model's %d tokens. "
                "Hint: 'chunk max_tokens=%d' leaves them room.",
                collection.name,
                counts["cut"],
                sum(counts.values()),
                counts["left out"],
                limit,
                max(limit - self.options.max_tokens, limit // 2),
            )


def _messages(shown: Surroundings) -> list[ChatMessage]:
    """Return what the model is asked: the document first, which prompt caches profit from."""
    block = passage_block([shown.outline, *shown.passages], first=0)
    number = shown.place + 1
    own = shown.passages[shown.place]
    request = (
        f"{block}\n\nPassage 0 tells the document's outline, or how it begins. The others are "
        f"parts of the document, in its order. Situate passage {number}, which begins with:\n"
        f"{passage_block([clip_words(own, _QUOTED_WORDS)], first=number)}"
    )
    return [ChatMessage("system", _SYSTEM), ChatMessage("user", request)]


register_stage(
    StageDefinition(
        name="context",
        kind="ingestion",
        role="chunk",
        options=ContextOptions,
        build=lambda options, context: ContextualHeader(
            context.chat(), context.embedder(), options
        ),
        method="use_contextual_header",
        summary="A sentence that situates each chunk in its document (contextual retrieval).",
        single=True,
    )
)
