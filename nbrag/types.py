"""The plain data that travels through nbrag: documents, chunks, queries, results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Block",
    "ChatMessage",
    "ChatReply",
    "Chunk",
    "ChunkKind",
    "Document",
    "EmbedderIdentity",
    "HistoryEntry",
    "MetadataKeys",
    "QueryVariant",
    "RankedItem",
    "RankedList",
    "RetrievalChunk",
    "RetrievalQuery",
    "RetrievalResults",
    "SearchLeg",
    "SearchPlan",
    "Span",
    "Strategy",
    "VariantKind",
    "stable_hash",
]

MetadataValue = str | int | float | bool | list[str] | None
SearchLeg = Literal["vector", "keyword"]


def stable_hash(*parts: str) -> str:
    """Return a 32-digit hexadecimal hash of the parts; the borders between them count."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()


class MetadataKeys:
    """Names of the metadata fields that nbrag's own processors write."""

    ENTITIES_PEOPLE = "entities_people"
    ENTITIES_ORGANIZATIONS = "entities_organizations"
    ENTITIES_TECHNOLOGIES = "entities_technologies"
    ENTITIES_VERSIONS = "entities_versions"
    TOPIC_PRIMARY = "topic_primary"
    TOPIC_SECONDARY = "topic_secondary"
    CONTEXTUAL_SUMMARY = "contextual_summary"
    LEVEL = "level"


class ChunkKind(StrEnum):
    """What a row of a collection is: source text, or something derived from it."""

    ORIGINAL = "original"
    HYPOTHETICAL_QUERY = "hypothetical_query"
    BRANCH_SUMMARY = "branch_summary"
    ROOT_SUMMARY = "root_summary"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a document's text: ``document.text[start:end]``.

    Attributes
    ----------
    start, end
        Character offsets (code points), end exclusive.
    page
        Page number from 1 where the source has pages; the page on which the stretch starts.
    """

    start: int
    end: int
    page: int | None = None

    def __post_init__(self) -> None:
        """Refuse offsets that can't be a stretch of text."""
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a span: {self.start}..{self.end}")


@dataclass(frozen=True, slots=True)
class Block:
    """One structural piece of a document: a heading, a paragraph, a table, a code block.

    Blocks are in reading order, do not overlap, and may leave gaps (blank lines) between them.

    Attributes
    ----------
    kind
        What it is. ``row`` is one record of a spreadsheet or CSV file.
    start, end
        Offsets in the document's text.
    level
        Depth of a heading, 1 to 6; 0 for all else.
    title
        A heading's words without its markup; empty for all else.
    page
        Page number from 1, where the source has pages.
    header
        Text that each piece of the block needs to be understood when the block is cut, such as
        a table's header row; empty where there is none.
    """

    kind: Literal["heading", "paragraph", "list", "table", "code", "row"]
    start: int
    end: int
    level: int = 0
    title: str = ""
    page: int | None = None
    header: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as a reader gives it.

    Attributes
    ----------
    uri
        The document's identity within a collection: a relative or absolute path with forward
        slashes, a URL, or the id of an in-memory record.
    text
        The whole text. All spans count from its start.
    title
        Title for display; empty when the source has none.
    media_type
        The source's kind, e.g. ``text/markdown``, ``application/pdf``.
    blocks
        The structure of the text, in reading order; empty means one run of plain text.
    metadata
        Fields for filters: text, whole numbers, numbers, truth values, lists of text.
    source_hash
        Hash of the source's bytes (or of text and metadata), to see whether it changed.
    """

    uri: str
    text: str
    title: str = ""
    media_type: str = "text/plain"
    blocks: tuple[Block, ...] = ()
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    source_hash: str = ""

    @property
    def id(self) -> str:
        """The document's id: a hash of its URI."""
        return stable_hash(self.uri)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is embedded and found on its own.

    Attributes
    ----------
    id
        Stable across re-ingestion as long as the document's URI, the text and the context are.
    document_id
        Id of the document it was cut from.
    content
        The text itself: ``document.text[span.start:span.end]`` for an original chunk.
    ordinal
        Place within the document, from 0.
    span
        Where the text stands in the document; None for derived rows.
    heading_path
        Titles of the headings above it, outermost first.
    context
        Text that is embedded and keyword-indexed together with the content but shown apart
        (document title, heading path, a table's header).
    kind
        Source text or a derived row.
    parent_id
        For a derived row, the chunk that it leads to.
    token_count
        Tokens of ``embedding_text`` by the embedder's own tokenizer, special tokens included.
    metadata
        Fields for filters; the document's metadata is joined to it when it is stored.
    """

    id: str
    document_id: str
    content: str
    ordinal: int = 0
    span: Span | None = None
    heading_path: tuple[str, ...] = ()
    context: str = ""
    kind: ChunkKind = ChunkKind.ORIGINAL
    parent_id: str | None = None
    token_count: int = 0
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)

    @property
    def embedding_text(self) -> str:
        """The text that is embedded and keyword-indexed: the context, a line break, the content."""
        return f"{self.context}\n{self.content}" if self.context else self.content


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What makes two embedders give the same vectors; stored with each collection.

    Attributes
    ----------
    name, revision
        The model and its exact version (a hash of its file, a hub revision).
    dimension
        Length of a vector.
    pooling
        How token vectors become one: ``mean``, ``cls``, ``last``, or ``none``.
    normalized
        Whether vectors have length 1.
    query_prefix, document_prefix
        Text put before a query or a document.
    """

    name: str
    revision: str
    dimension: int
    pooling: str = "mean"
    normalized: bool = True
    query_prefix: str = ""
    document_prefix: str = ""


class Strategy(StrEnum):
    """How a collection is searched."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"
    TREE = "tree"
    NONE = "none"


class VariantKind(StrEnum):
    """Where a form of the question comes from."""

    ORIGINAL = "original"
    REWRITE = "rewrite"
    HYPOTHETICAL = "hypothetical"


@dataclass(frozen=True, slots=True, eq=False)
class QueryVariant:
    """One form of the question that is searched: text, or a ready vector.

    Attributes
    ----------
    text
        The words, empty for a pure vector.
    kind
        The question itself, a rewrite of it, or a hypothetical document.
    weight
        Its vote in the fusion; 0 takes it out.
    legs
        The searches that it may feed.
    vector
        float32 of shape (dimension,), length 1; None means that the text is embedded.
    """

    text: str
    kind: VariantKind = VariantKind.ORIGINAL
    weight: float = 1.0
    legs: frozenset[SearchLeg] = frozenset(("vector", "keyword"))
    vector: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A question on its way through a pipeline.

    Attributes
    ----------
    text
        The question as it was asked; never changed by a stage.
    top_k
        How many results are wanted.
    variants
        The forms that are searched; empty means the text itself.
    filter
        A :class:`nbrag.stores.filters.Filter`, or None.
    strategy
        How to search; None leaves it to the pipeline's search stage.
    metadata
        What query processors have to say (route, reasoning).
    warnings
        What went wrong and what was done instead.
    """

    text: str
    top_k: int = 5
    variants: tuple[QueryVariant, ...] = ()
    filter: Any = None
    strategy: Strategy | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def effective_variants(self) -> tuple[QueryVariant, ...]:
        """The variants, or the question itself when no stage made any."""
        return self.variants or (QueryVariant(self.text),)

    def with_warning(self, warning: str) -> RetrievalQuery:
        """Return a copy that carries one more warning."""
        return replace(self, warnings=(*self.warnings, warning))


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a collection is asked for, in one call.

    Attributes
    ----------
    variants
        Forms of the question; those that feed the vector leg have their vector set.
    legs
        The searches to run.
    candidates
        How many rows each list may have.
    filter
        A :class:`nbrag.stores.filters.Filter` that every row must pass, or None.
    kinds
        Kinds of rows that may be found; empty means original chunks only.
    """

    variants: tuple[QueryVariant, ...]
    legs: frozenset[SearchLeg]
    candidates: int
    filter: Any = None
    kinds: frozenset[ChunkKind] = frozenset((ChunkKind.ORIGINAL,))


@dataclass(frozen=True, slots=True)
class RankedItem:
    """One row of a ranked list: higher score is better, always."""

    chunk_id: str
    score: float


@dataclass(frozen=True, slots=True)
class RankedList:
    """What one leg found for one variant, best first.

    Attributes
    ----------
    leg
        Which search.
    variant
        Index into ``plan.variants``.
    weight
        The variant's vote.
    items
        Rows in order, best first, no id twice. Keyword lists hold only rows that share a term
        with the query.
    explanation
        How it was searched, e.g. ``exact over 812 rows``.
    """

    leg: SearchLeg
    variant: int
    weight: float
    items: tuple[RankedItem, ...]
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one stage made of a chunk: its rank (from 1) and its score there."""

    stage: str
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class RetrievalChunk:
    """A chunk that was found.

    Attributes
    ----------
    id, document_id, parent_id
        Identities; fusion, citations, evaluation and caches use them, never the text.
    content
        The text (or the field named by ``content`` when the pipeline was called with one).
    score
        The score by the last stage that ranked; higher is better.
    record
        The stored row as a mapping: source, title, heading_path, page, metadata fields.
    span
        Where the text stands in its document.
    history
        One entry per stage, in order.
    """

    id: str
    document_id: str
    content: str
    score: float
    record: Mapping[str, Any] = field(default_factory=dict)
    parent_id: str | None = None
    span: Span | None = None
    history: tuple[HistoryEntry, ...] = ()

    def ranked(self, stage: str, rank: int, score: float | None) -> RetrievalChunk:
        """Return a copy with one more history entry, and the score where the stage gave one."""
        entry = HistoryEntry(stage, rank, score)
        kept = self.score if score is None else score
        return replace(self, score=kept, history=(*self.history, entry))

    @property
    def source(self) -> str:
        """The document's URI."""
        return str(self.record.get("source", ""))

    @property
    def heading_path(self) -> tuple[str, ...]:
        """Titles of the headings above the chunk, outermost first."""
        return tuple(self.record.get("heading_path") or ())

    @property
    def page(self) -> int | None:
        """Page number from 1, where the source has pages."""
        return None if self.span is None else self.span.page


@dataclass(frozen=True, slots=True)
class RetrievalResults(Sequence[RetrievalChunk]):
    """What a pipeline found, best first.

    Attributes
    ----------
    query
        The query as the search saw it.
    chunks
        The chunks, best first, at most ``query.top_k`` once the pipeline is through.
    metadata
        What stages have to say about the whole set.
    warnings
        What went wrong and what was done instead.
    trace
        The run's :class:`nbrag.tracing.Trace`, or None.
    """

    query: RetrievalQuery
    chunks: tuple[RetrievalChunk, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    trace: Any = None

    def __len__(self) -> int:
        """Return how many chunks there are."""
        return len(self.chunks)

    def __getitem__(self, index: Any) -> Any:
        """Return a chunk, or a tuple of chunks for a slice."""
        return self.chunks[index]

    def __iter__(self) -> Iterator[RetrievalChunk]:
        """Go through the chunks, best first."""
        return iter(self.chunks)

    def with_warning(self, warning: str) -> RetrievalResults:
        """Return a copy that carries one more warning."""
        return replace(self, warnings=(*self.warnings, warning))


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation with a chat model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a chat model answered.

    Attributes
    ----------
    text
        The words of the answer.
    input_tokens, output_tokens
        Tokens read and written, by the provider's count; None when it doesn't tell.
    """

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
