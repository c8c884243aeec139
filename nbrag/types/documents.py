"""What is indexed: documents, their structure, and the chunks cut from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

__all__ = [
    "Block",
    "Chunk",
    "ChunkKind",
    "Document",
    "EmbedderIdentity",
    "MetadataKeys",
    "MetadataValue",
    "Span",
    "stable_hash",
]

#: Marks the pooling of vectors whose tokens were seen within the whole document.
_LATE = "late-"

MetadataValue = str | int | float | bool | list[str] | None


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
        How token vectors become one: ``mean``, ``cls``, ``last``, or ``none``; ``late-mean`` for
        vectors of late chunking.
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

    @property
    def as_late(self) -> EmbedderIdentity:
        """The identity of the same model's vectors that are made by late chunking."""
        return replace(self, pooling=_LATE + self.pooling.removeprefix(_LATE))

    @property
    def searched_with(self) -> EmbedderIdentity:
        """The identity of the embedder whose query vectors such vectors are compared with."""
        return replace(self, pooling=self.pooling.removeprefix(_LATE))
