"""HTML: the main text with its headings, lists, tables and code, without the page around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nbrag.errors import EmptyDocument, MissingDependency
from nbrag.ingestion.decoding import decode
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.html_blocks import (
    add_html_blocks,
    is_visible,
    visible_length,
    visible_text,
)
from nbrag.types import Document

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["HtmlReader", "main_element", "parse_html"]

_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{0,100}encoding=["']([\w.-]+)""",
    re.IGNORECASE,
)
#: A <main> or <article> is taken for the page when it has this share of the visible text.
_MAIN_SHARE = 0.25
_FIELDS = {
    "description": ("description", "og:description"),
    "author": ("author", "article:author"),
    "date": ("date", "article:published_time", "dc.date"),
    "language": ("language", "dc.language"),
}


def parse_html(text: str) -> _Element | None:
    """Return the root element of a page however broken its markup is; None when it has none."""
    try:
        from lxml import etree
    except ImportError as error:
        raise MissingDependency("reading HTML", "lxml") from error
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_pis=True)
    try:
        root: _Element | None = etree.fromstring(text.encode("utf-8"), parser)
    except etree.ParserError:
        return None
    except etree.XMLSyntaxError:
        return None
    return root


def main_element(root: _Element) -> _Element:
    """Return the element that holds the page's own text: main, a lone article, or the body."""
    body = next(root.iter("body"), root)
    total = visible_length(body)
    mains = [e for e in body.iter() if e.tag == "main" or e.get("role") == "main"]
    articles = [e for e in body.iter("article") if is_visible(e)]
    candidates = [*mains[:1], *(articles if len(articles) == 1 else [])]
    for candidate in candidates:
        if visible_length(candidate) >= _MAIN_SHARE * total:
            inner = [e for e in candidate.iter("article") if e is not candidate]
            if len(inner) == 1 and visible_length(inner[0]) >= 0.5 * visible_length(candidate):
                return inner[0]
            return candidate
    return body


def _metadata(root: _Element) -> dict[str, Any]:
    """Return what the page's head says about it."""
    stated: dict[str, str] = {}
    for meta in root.iter("meta"):
        name = (meta.get("name") or meta.get("property") or "").lower()
        stated.setdefault(name, meta.get("content") or "")
    found: dict[str, Any] = {}
    for field, names in _FIELDS.items():
        found[field] = next((stated[name] for name in names if stated.get(name)), "")
    if keywords := stated.get("keywords"):
        found["keywords"] = [word.strip() for word in keywords.split(",")]
    found["language"] = root.get("lang") or root.get("xml:lang") or found["language"]
    return found


class HtmlReader:
    """Reads web pages.

    The text is that of ``<main>``, of the only ``<article>``, or of the body, without
    navigation, scripts, styles, forms' controls, hidden elements and long lists of bare links.
    """

    suffixes: tuple[str, ...] = (".html", ".htm", ".xhtml")
    media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; its text is made of the blocks, a blank line between them.

        Raises
        ------
        UnsupportedFormat
            When the data are binary.
        EmptyDocument
            When the page has no text, for instance because scripts would make it.
        """
        stated = _CHARSET.search(data[:4096])
        declared = (stated[1] or stated[2]).decode("ascii") if stated else ""
        decoded = decode(data, name=uri, declared=declared)
        root = parse_html(decoded.text)
        if root is None:
            raise EmptyDocument(f"{uri} holds no text.")
        assembly = DocumentAssembly()
        assembly.notes.append(decoded.note)
        element = main_element(root)
        add_html_blocks(element, assembly)
        headings = [heading for heading in element.iter("h1") if is_visible(heading)]
        page_titles = [title.text or "" for title in root.iter("title")]
        title = visible_text(headings[0]) if len(headings) == 1 else "".join(page_titles[:1])
        return assembly.document(
            uri=uri,
            name=name,
            media_type="text/html",
            title=title,
            metadata=_metadata(root),
        )
