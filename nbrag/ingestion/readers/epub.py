"""EPUB books: the chapters in reading order, through the HTML blocks."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from nbrag.errors import CorruptDocument, MissingDependency, PasswordRequired
from nbrag.ingestion.decoding import decode
from nbrag.ingestion.readers.archive import checked_archive
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.html import parse_html
from nbrag.ingestion.readers.html_blocks import add_html_blocks
from nbrag.types import Document

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["EpubReader"]

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"


class EpubReader:
    """Reads EPUB 2 and 3 books without their tables of contents."""

    suffixes: tuple[str, ...] = (".epub",)
    media_types: tuple[str, ...] = ("application/epub+zip",)

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; chapters' headings become sections.

        Raises
        ------
        PasswordRequired
            When the chapters are protected (DRM).
        CorruptDocument
            When it is truncated or is no book.
        EmptyDocument
            When its chapters have no text.
        """
        try:
            from lxml.etree import XMLSyntaxError
        except ImportError as error:
            raise MissingDependency("reading EPUB books", "lxml") from error
        assembly = DocumentAssembly()
        try:
            with checked_archive(data, uri, "EPUB") as archive:
                package_path, package = _package(archive)
                protected = _protected(archive)
                for path in _chapters(package, package_path):
                    if path in protected:
                        raise PasswordRequired(f"{uri} is protected (DRM) and can't be read.")
                    chapter = decode(archive.read(path), name=f"{uri}!{path}")
                    root = parse_html(chapter.text)
                    if root is not None:
                        add_html_blocks(next(root.iter("body"), root), assembly)
        except (KeyError, zipfile.BadZipFile, XMLSyntaxError, OSError, EOFError) as error:
            raise CorruptDocument(f"{uri} is damaged or is no EPUB book: {error}.") from error
        return assembly.document(
            uri=uri,
            name=name,
            media_type=self.media_types[0],
            title=_stated(package, "title"),
            metadata={
                "author": _stated(package, "creator"),
                "language": _stated(package, "language"),
                "description": _stated(package, "description"),
                "publisher": _stated(package, "publisher"),
                "date": _stated(package, "date"),
            },
        )


def _xml(data: bytes) -> _Element:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    root: _Element | None = etree.fromstring(data, parser)
    if root is None:
        raise KeyError("its package description is empty")
    return root


def _named(root: _Element, name: str) -> Iterator[_Element]:
    """Yield elements by name whatever their namespace."""
    return root.iter(f"{{*}}{name}")


def _package(archive: zipfile.ZipFile) -> tuple[str, _Element]:
    """Return the path of the package document and its root."""
    for rootfile in _named(_xml(archive.read(_CONTAINER)), "rootfile"):
        path = rootfile.get("full-path", "")
        return path, _xml(archive.read(path))
    raise KeyError("it names no package")


def _chapters(package: _Element, package_path: str) -> Iterator[str]:
    """Yield the archive paths of the chapters in reading order."""
    items = {item.get("id"): item for item in _named(package, "item")}
    for reference in _named(package, "itemref"):
        item = items.get(reference.get("idref"))
        if item is None or "nav" in item.get("properties", "").split():
            continue
        if "html" in item.get("media-type", "html"):
            path = unquote(item.get("href", ""))
            yield posixpath.normpath(posixpath.join(posixpath.dirname(package_path), path))


def _protected(archive: zipfile.ZipFile) -> frozenset[str]:
    """Return the paths of encrypted parts (fonts often are, without harm)."""
    if _ENCRYPTION not in archive.namelist():
        return frozenset()
    references = _named(_xml(archive.read(_ENCRYPTION)), "CipherReference")
    return frozenset(unquote(reference.get("URI", "")) for reference in references)


def _stated(package: _Element, name: str) -> str:
    element = next(package.iter(f"{{http://purl.org/dc/elements/1.1/}}{name}"), None)
    return "" if element is None else " ".join((element.text or "").split())
