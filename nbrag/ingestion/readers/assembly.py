"""Building a document block by block, so that each block's offsets are right by construction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from nbrag.errors import EmptyDocument
from nbrag.ingestion.decoding import clean_text, normalize_newlines
from nbrag.ingestion.readers.metadata import clean_metadata, clean_string
from nbrag.types import Block, Document

__all__ = ["READING_WARNING", "BlockKind", "DocumentAssembly", "finish", "has_text"]

BlockKind = Literal["heading", "paragraph", "list", "table", "code", "row"]
#: Metadata field by which a reader tells what a person should know; the pipeline reports it.
READING_WARNING = "reading_warning"
_LONGEST_TITLE = 300


def has_text(text: str) -> bool:
    """Tell whether anything visible is in the text (not only blanks, controls, zero widths)."""
    import regex

    return bool(text) and regex.search(r"[^\s\p{Cc}\p{Cf}\p{Z}]", text) is not None


class DocumentAssembly:
    """Collects blocks and joins their texts, remembering where each one stands.

    Attributes
    ----------
    notes
        What a person should know about the reading.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._parts: list[str] = []
        self._length = 0
        self._blocks: list[Block] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def add(
        self,
        kind: BlockKind,
        text: str,
        *,
        level: int = 0,
        title: str = "",
        page: int | None = None,
        header: str = "",
        separator: str = "\n\n",
    ) -> None:
        """Append a block; one without visible text is left out.

        Parameters
        ----------
        kind, level, title, page, header
            As in :class:`nbrag.types.Block`; a heading's title is its text unless given.
        text
            The block's text.
        separator
            What stands between this block and the one before.
        """
        text = clean_text(normalize_newlines(text)).strip("\n").rstrip()
        if not has_text(text):
            return
        if self._blocks:
            self._parts.append(separator)
            self._length += len(separator)
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        if kind == "heading":
            title = title or " ".join(text.split())
        self._blocks.append(
            Block(kind, start, self._length, level, title=title, page=page, header=header)
        )

    def document(
        self,
        *,
        uri: str,
        name: str,
        media_type: str,
        title: str = "",
        metadata: Mapping[Any, Any] | None = None,
    ) -> Document:
        """Return the document.

        Raises
        ------
        EmptyDocument
            When no block was added.
        """
        return finish(
            "".join(self._parts),
            self._blocks,
            uri=uri,
            name=name,
            media_type=media_type,
            title=title,
            metadata=metadata or {},
            notes=self.notes,
        )


def finish(
    text: str,
    blocks: list[Block],
    *,
    uri: str,
    name: str,
    media_type: str,
    title: str,
    metadata: Mapping[Any, Any],
    notes: list[str],
) -> Document:
    """Return a document with a title (given, first heading, or file name) and clean metadata.

    Raises
    ------
    EmptyDocument
        When there is nothing that could be indexed.
    """
    if not blocks:
        raise EmptyDocument(f"{uri} holds no text.", hint="nothing to index: leave it out")
    headings = (block.title for block in blocks if block.kind == "heading" and block.title)
    stem = PurePosixPath(name).stem or name
    chosen = " ".join(clean_string(title).split()) or next(headings, "") or clean_string(stem)
    fields = clean_metadata(metadata)
    fields.pop("title", None)
    told = "; ".join(note for note in notes if note)
    if told:
        fields[READING_WARNING] = told
    return Document(
        uri=uri,
        text=text,
        title=chosen[:_LONGEST_TITLE],
        media_type=media_type,
        blocks=tuple(blocks),
        metadata=fields,
    )
