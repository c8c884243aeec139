"""EPUB books."""

from __future__ import annotations

import io
import zipfile

import pytest

from nbrag.errors import CorruptDocument, EmptyDocument, PasswordRequired
from nbrag.ingestion.readers import EpubReader

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The Book</dc:title>
<dc:creator>Ann</dc:creator><dc:language>en</dc:language></metadata><manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="part%201/one.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="nav"/><itemref idref="a"/><itemref idref="b"/></spine></package>"""


def make(**changed: str | None) -> bytes:
    parts: dict[str, str | None] = {
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": PACKAGE,
        "OEBPS/nav.xhtml": "<html><body><p>contents</p></body></html>",
        "OEBPS/part 1/one.xhtml": "<?xml version='1.0' encoding='utf-8'?><html><body><h1>One</h1>"
        "<p>First.</p></body></html>",
        "OEBPS/two.xhtml": "<html><body><h1>Two</h1><p>Sécond.</p></body></html>",
        **changed,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in parts.items():
            if content is not None:
                archive.writestr(path, content)
    return buffer.getvalue()


def read(data: bytes):
    return EpubReader().read(data, uri="book.epub", name="book.epub")


def test_chapters_in_reading_order_without_contents():
    document = read(make())
    assert document.text == "One\n\nFirst.\n\nTwo\n\nSécond."
    assert document.title == "The Book"
    assert document.metadata == {"author": "Ann", "language": "en"}


def test_protected_chapters_need_a_key_and_protected_fonts_do_not():
    reference = '<encryption><CipherReference URI="{}"/></encryption>'
    with pytest.raises(PasswordRequired):
        read(make(**{"META-INF/encryption.xml": reference.format("OEBPS/two.xhtml")}))
    assert read(make(**{"META-INF/encryption.xml": reference.format("OEBPS/font.otf")}))


@pytest.mark.parametrize("part", ["META-INF/container.xml", "OEBPS/book.opf", "OEBPS/two.xhtml"])
def test_missing_parts_are_corrupt(part):
    with pytest.raises(CorruptDocument):
        read(make(**{part: None}))


def test_broken_packages():
    with pytest.raises(CorruptDocument):
        read(make(**{"OEBPS/book.opf": ""}))
    with pytest.raises(CorruptDocument):
        read(b"PK\x03\x04")
    with pytest.raises(EmptyDocument):
        read(make(**{"OEBPS/book.opf": "<package/>"}))
