"""Markdown, with front matter, and MDX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from nbrag.errors import MissingDependency
from nbrag.ingestion.decoding import decode
from nbrag.ingestion.readers.assembly import BlockKind, finish, has_text
from nbrag.ingestion.readers.front_matter import split_front_matter
from nbrag.types import Block, Document

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["MarkdownReader", "markdown_blocks"]

#: ``{#name}`` and ``{ .class }`` behind a heading.
_ANCHOR = re.compile(r"\s*\{:?\s*[#.][^{}]*\}\s*$")
_INVISIBLE_HTML = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
#: ``[image1]: <data:image/png;base64,...>``, as word processors export pictures.
_PICTURE_DEFINITION = re.compile(r"\s{0,3}\[[^\]]*\]:\s*<?data:[^\s>]*>?\s*")
_MDX_STATEMENT = re.compile(r"(?:import|export)\s[^\n]*")
#: A longer "heading" is an accident; its markup is not read to the end.
_LONGEST_HEADING = 2_000
_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "blockquote_open": "paragraph",
    "html_block": "paragraph",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}


@cache
def _parser() -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingDependency("reading Markdown", "markdown-it-py") from error
    parser = MarkdownIt("commonmark").enable("table")
    # Only headings need their inline markup read; the rest stays as it is written.
    parser.core.ruler.disable("inline")
    return parser


@cache
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def markdown_blocks(text: str, start: int = 0, *, mdx: bool = False) -> list[Block]:
    """Return the blocks of ``text[start:]`` by the parser's own line maps.

    Lines are split at line feeds only, as the parser does. What the parser gives no token for
    (link definitions) becomes a paragraph, so that no text is lost.

    Parameters
    ----------
    text
        Markdown with line feeds as its only line breaks.
    start
        Where the body begins, after any front matter; the beginning of a line.
    mdx
        Whether ``import`` and ``export`` statements are left out.
    """
    lines = text[start:].split("\n")
    offsets = list(accumulate((len(line) + 1 for line in lines), initial=start))
    blocks: list[Block] = []
    done = 0
    end = _Piece("paragraph", len(lines), len(lines))
    for piece in (*_pieces(text[start:]), end):
        for candidate in (_Piece("paragraph", done, piece.first), piece):
            block = _block(text, candidate, offsets)
            if block is not None and not _says_nothing(text, block, mdx=mdx):
                blocks.append(block)
        done = max(done, piece.last)
    return blocks


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines ``first`` to ``last`` (exclusive); kind None for what is no text, such as a rule."""

    kind: BlockKind | None
    first: int
    last: int
    level: int = 0
    title: str = ""


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield the lines of each token at the top level."""
    environment: dict[str, Any] = {}
    tokens = _parser().parse(text, environment)
    for index, token in enumerate(tokens):
        if token.level or token.nesting < 0 or token.map is None:
            continue
        first, last = token.map
        kind = _KINDS.get(token.type)
        if kind == "heading":
            title = _heading_title(tokens[index + 1], environment)
            yield _Piece(kind, first, last, int(token.tag[1:]), title)
        else:
            yield _Piece(kind, first, last)


def _heading_title(inline: Token, environment: dict[str, Any]) -> str:
    """Return a heading's words without markup and anchors."""
    content = inline.content[:_LONGEST_HEADING]
    (parsed,) = _inline_parser().parseInline(content, environment)
    words = "".join(_words(parsed.children or []))
    return _ANCHOR.sub("", " ".join(words.split()))


def _words(tokens: Sequence[Any]) -> Iterator[str]:
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            yield " "
        elif token.type == "image":
            yield from _words(token.children or [])
        elif token.type != "html_inline":
            yield token.content


def _block(text: str, piece: _Piece, offsets: Sequence[int]) -> Block | None:
    """Return the block without blank lines at its ends; None for rules and invisible HTML."""
    if piece.kind is None or piece.first >= piece.last:
        return None
    start, end = offsets[piece.first], min(offsets[piece.last], len(text))
    stretch = text[start:end]
    if not has_text(_INVISIBLE_HTML.sub("", stretch)):
        return None
    start += len(stretch) - len(stretch.lstrip("\n"))
    end = start + len(text[start:end].rstrip())
    header = text[start:end].partition("\n")[0].strip() if piece.kind == "table" else ""
    return Block(piece.kind, start, end, piece.level, title=piece.title, header=header)


def _says_nothing(text: str, block: Block, *, mdx: bool) -> bool:
    """Tell whether a paragraph is only MDX statements or definitions of embedded pictures."""
    if block.kind != "paragraph":
        return False
    lines = text[block.start : block.end].split("\n")
    if mdx and all(_MDX_STATEMENT.fullmatch(line) for line in lines):
        return True
    return all(_PICTURE_DEFINITION.fullmatch(line) for line in lines if line.strip())


class MarkdownReader:
    """Reads Markdown; front matter becomes metadata and title, headings become sections."""

    suffixes: tuple[str, ...] = (".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd")
    media_types: tuple[str, ...] = ("text/markdown", "text/x-markdown")

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; its text is the whole decoded file, front matter included.

        Raises
        ------
        UnsupportedFormat
            When the data are binary.
        EmptyDocument
            When there is no text besides front matter.
        """
        decoded = decode(data, name=uri)
        front = split_front_matter(decoded.text)
        fields = dict(front.fields)
        if "lang" in fields:
            fields.setdefault("language", fields.pop("lang"))
        return finish(
            decoded.text,
            markdown_blocks(decoded.text, front.end, mdx=name.lower().endswith(".mdx")),
            uri=uri,
            name=name,
            media_type="text/markdown",
            title=str(fields.get("title") or ""),
            metadata=fields,
            notes=[decoded.note, front.note],
        )
