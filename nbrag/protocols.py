"""What can be plugged into nbrag: embedders, stores, readers, processors, retrievers.

A class needs only the methods named here; none of them has to be inherited from, except the
processor base classes, which carry the shared behaviour of a stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nbrag.types import (
        Answer,
        AnswerEvent,
        ChatMessage,
        ChatReply,
        Chunk,
        Document,
        EmbedderIdentity,
        RankedList,
        RetrievalChunk,
        RetrievalQuery,
        RetrievalResults,
        SearchPlan,
        Span,
        TreeLink,
        Turn,
    )

__all__ = [
    "ChatClient",
    "Chunker",
    "Collection",
    "Embedder",
    "IngestionChunkProcessor",
    "IngestionDocumentProcessor",
    "Orchestrator",
    "Reader",
    "Reranker",
    "RetrievalQueryProcessor",
    "RetrievalResultProcessor",
    "Retriever",
    "SourceItem",
    "StageProblem",
    "StoredDocument",
    "StreamingChatClient",
    "TokenCounter",
    "WriteSession",
]


@runtime_checkable
class TokenCounter(Protocol):
    """Counts and locates a model's tokens."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens included, untruncated."""
        ...

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of each token, special tokens left out."""
        ...


@runtime_checkable
class Embedder(TokenCounter, Protocol):
    """Turns texts into vectors."""

    @property
    def identity(self) -> EmbedderIdentity:
        """What makes two embedders give the same vectors."""
        ...

    @property
    def max_tokens(self) -> int:
        """The most tokens of one text that count, special tokens included."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1.

        A text's vector does not depend on the batch that it is in.
        """
        ...

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(texts), dimension), each of length 1."""
        ...

    def close(self) -> None:
        """Free the model; the next call loads it again."""
        ...


@runtime_checkable
class ChatClient(Protocol):
    """Talks to a chat model."""

    @property
    def model(self) -> str:
        """The model's name, without anything secret in it."""
        ...

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the model's answer.

        ``options`` are the provider's own, such as ``temperature``, and ``response_format``: the
        JSON schema of a structured answer, as ``{"type": "json_schema", "json_schema": {...}}``.
        A client that can't send it leaves it out: the answer is checked in any case.

        Raises
        ------
        ChatError
            When there is no usable answer: a stage then passes its input on with a warning.
        ModelError
            When the person has to mend something: a wrong key or model name.
        """
        ...


@runtime_checkable
class StreamingChatClient(ChatClient, Protocol):
    """A chat client that gives its answer piece by piece."""

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> AsyncIterator[str]:
        """Yield the answer's pieces as they come; errors as in :meth:`ChatClient.complete`."""
        ...


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One thing to be read: a file, a URL or an in-memory record.

    Attributes
    ----------
    uri
        The future document's URI.
    load
        Gives the bytes; may raise a :class:`nbrag.errors.ReaderError`. None when ``document``
        is set.
    name
        File name, from which the reader is chosen.
    media_type
        Kind stated by the source (an HTTP header, say), empty when unknown.
    document
        The document itself, where the source is already text (records).
    metadata
        Fields known before reading, such as a folder or a data frame's other columns.
    """

    uri: str
    name: str
    load: Any = None
    media_type: str = ""
    document: Document | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Reader(Protocol):
    """Turns the bytes of one kind of source into a document."""

    #: File name endings with the dot, lower case.
    suffixes: tuple[str, ...]
    #: Media types.
    media_types: tuple[str, ...]

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; raise a :class:`nbrag.errors.ReaderError` when it can't be read."""
        ...


@runtime_checkable
class Chunker(Protocol):
    """Cuts a document into chunks."""

    def chunk(self, document: Document) -> list[Chunk]:
        """Return the chunks in order; each original chunk's content equals its span's text."""
        ...


class IngestionDocumentProcessor(ABC):
    """Changes or enriches whole documents before they are cut."""

    #: Stage name, for reports and spans.
    name: str = "document-processor"

    @abstractmethod
    async def process(self, document: Document) -> Document:
        """Return the document, changed or not."""


@dataclass(frozen=True, slots=True)
class StageProblem:
    """A chunk that is stored without what a stage should have added.

    Attributes
    ----------
    stage
        Name of the stage.
    document_id
        The chunk's document; empty for what belongs to no single one.
    reason
        Why, in one line.
    what
        What lacks something; what ``finalize`` could not make is missing itself, ``summary`` say.
    """

    stage: str
    document_id: str
    reason: str
    what: str = "chunk"


class IngestionChunkProcessor(ABC):
    """Changes, enriches or adds chunks before they are embedded.

    Chunks of several documents flow through; a processor may batch across documents. Errors for
    one chunk must not stop the others.
    """

    #: Stage name, for reports and spans.
    name: str = "chunk-processor"
    #: Whether chunks depend on the stage. Where they don't, because all of its work is done in
    #: ``finalize``, other options of it make no document count as changed.
    changes_chunks: bool = True

    async def prepare(self, collection: Collection) -> None:  # noqa: B027 - optional hook
        """Run once before the first chunk, e.g. to see what is stored already."""

    @abstractmethod
    def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks, changed or not, with any derived ones after their parent."""

    def take_problems(self) -> list[StageProblem]:
        """Return what went wrong since the last look, before the chunks concerned are written.

        Documents that have problems are taken up again by the next run; problems of ``finalize``
        are told only, because it runs each time.
        """
        return []

    def take_notes(self) -> list[str]:
        """Return what the report is to tell about ``finalize``, one line each."""
        return []

    async def finalize(self, collection: Collection) -> None:  # noqa: B027 - optional hook
        """Run once after all documents are stored, e.g. for corpus-level summaries."""

    async def preview(  # noqa: B027 - optional hook
        self, collection: Collection, chunks: Sequence[Chunk], documents: Mapping[str, str]
    ) -> None:
        """Run in place of ``finalize`` where work is only counted, and write nothing.

        Parameters
        ----------
        collection
            What is stored.
        chunks
            What the run would write, as it leaves the stages.
        documents
            URIs by id of the documents whose stored rows would go, those of ``chunks`` among them.
        """


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """What a collection knows about a document that it holds.

    Its chunks are those that it was written with; a summary of it is none of them.
    """

    id: str
    uri: str
    source_hash: str
    settings_hash: str
    chunk_count: int


class WriteSession(Protocol):
    """Writes documents and vectors; each call is one transaction."""

    async def known_vectors(self, hashes: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors already computed for these embedding-text hashes."""
        ...

    async def stage_vectors(self, hashes: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Commit a batch of computed vectors, so that a stop does not lose them."""
        ...

    async def write_document(
        self,
        document: Document,
        chunks: Sequence[Chunk],
        vectors: NDArray[np.float32],
        *,
        settings_hash: str,
    ) -> None:
        """Replace the document with all that hangs on it, in one transaction."""
        ...

    async def write_documents(
        self,
        documents: Sequence[tuple[Document, Sequence[Chunk], NDArray[np.float32]]],
        *,
        settings_hash: str,
    ) -> None:
        """Replace several documents, all in one transaction; vectors are one row per chunk."""
        ...

    async def write_tree(
        self, summaries: Sequence[Chunk], vectors: NDArray[np.float32], links: Sequence[TreeLink]
    ) -> None:
        """Replace the whole summary tree, in one transaction; nothing at all removes it.

        Rows that are the same as before stay as they are. A link's parent may be a summary whose
        row is missing. Of a document's own summary ``document_id`` is the document's, of any
        other it is empty.
        """
        ...


@runtime_checkable
class Collection(Protocol):
    """A set of documents, chunks and vectors that can be searched."""

    @property
    def name(self) -> str:
        """The collection's name."""
        ...

    @property
    def identity(self) -> EmbedderIdentity:
        """The embedder that its vectors come from."""
        ...

    async def search(self, plan: SearchPlan) -> list[RankedList]:
        """Run the plan's legs at the same time; one list per leg and variant."""
        ...

    async def chunks(
        self, ids: Sequence[str], *, content: str | None = None
    ) -> dict[str, RetrievalChunk]:
        """Return the stored rows by id (score 0, no history); ids that are gone are left out.

        ``content`` names the field that is taken as the text, None for the chunk's own.
        """
        ...

    async def neighbours(self, chunk_id: str, before: int, after: int) -> list[RetrievalChunk]:
        """Return the original chunks around one, itself included, in document order."""
        ...

    async def vectors(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored vectors by chunk id."""
        ...

    async def document_text(self, document_id: str, span: Span | None = None) -> str:
        """Return a document's text, or the stretch of it."""
        ...

    async def documents(self) -> dict[str, StoredDocument]:
        """Return all stored documents by URI."""
        ...

    async def original_ids(self, *, where: Any = None) -> list[str]:
        """Return the ids of the original chunks that pass a filter, in document order.

        Ordered by the documents' URIs and the places in them.
        """
        ...

    async def summary_ids(self, *, where: Any = None) -> list[str]:
        """Return the ids of the summaries whose own rows pass a filter."""
        ...

    async def tree(self) -> list[TreeLink]:
        """Return the links of the summary tree, as they were written; none without a tree.

        A summary may be missing: it went with a passage beneath it that was changed or deleted,
        and stays missing until the tree is built anew. Its links are still there.
        """
        ...

    async def aliases(self) -> dict[str, dict[str, str]]:
        """Return the other names that filters may use, by what they stand for, for each field."""
        ...

    async def add_aliases(self, aliases: Mapping[str, Mapping[str, str]]) -> None:
        """Let filters use other names for what a field ``entities_...`` holds."""
        ...

    async def delete_documents(self, document_ids: Sequence[str]) -> int:
        """Delete documents with all that hangs on them; return how many there were."""
        ...

    async def count(self) -> tuple[int, int]:
        """Return how many documents and chunks there are."""
        ...

    async def fields(self) -> dict[str, str]:
        """Return the fields that a filter may name, with their types."""
        ...

    async def field_values(
        self, field: str, *, limit: int = 10_000, start: int = 0, containing: str = ""
    ) -> list[Any]:
        """Return the distinct values of a metadata field, most frequent first.

        Of a list field, the members of the lists. ``start`` passes over the first ones;
        ``containing`` keeps those whose text holds the words, whichever the case.
        """
        ...

    def writer(self) -> WriteSession:
        """Return a session that writes to the collection."""
        ...


class RetrievalQueryProcessor(ABC):
    """Changes the query before the search: rewrites, variants, filters, the strategy."""

    #: Stage name, for spans, history and warnings.
    name: str = "query-processor"

    @abstractmethod
    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
        """Return the query, changed or not; ``query.text`` stays as it is."""


class RetrievalResultProcessor(ABC):
    """Changes the results after the search: reranks, drops, refines, expands."""

    #: Stage name, for spans, history and warnings.
    name: str = "result-processor"
    #: Whether the stage runs after the cut to ``top_k`` (expansion of what is shown).
    after_cut: bool = False

    def candidates_needed(self, top_k: int) -> int:
        """Return how many candidates the stage wants in order to give ``top_k`` good results."""
        return top_k

    @abstractmethod
    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        """Return the results, changed or not."""


@runtime_checkable
class Reranker(Protocol):
    """Orders chunks by how well they answer a question."""

    async def rerank(self, query: str, chunks: Sequence[RetrievalChunk]) -> list[RetrievalChunk]:
        """Return the chunks, best first, each with its new score and a history entry."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Finds chunks for a question."""

    async def retrieve(
        self, query: str | RetrievalQuery, *, top_k: int = 5, where: Any = None
    ) -> RetrievalResults:
        """Return at most ``top_k`` chunks, best first, that pass the filter ``where``."""
        ...


@runtime_checkable
class Orchestrator(Protocol):
    """Answers questions from what a retriever finds."""

    async def answer(
        self,
        question: str,
        *,
        top_k: int | None = None,
        where: Any = None,
        history: Sequence[Turn] = (),
        on_event: Callable[[AnswerEvent], None] | None = None,
    ) -> Answer:
        """Return the answer; ``on_event`` is told what happens meanwhile."""
        ...

    def stream(
        self,
        question: str,
        *,
        top_k: int | None = None,
        where: Any = None,
        history: Sequence[Turn] = (),
    ) -> AsyncIterator[AnswerEvent]:
        """Yield what happens, the whole answer last."""
        ...
