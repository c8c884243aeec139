"""Word documents."""

from __future__ import annotations

import datetime as dt
import io

import docx
import pytest
from docx.oxml import parse_xml

from nbrag.errors import CorruptDocument, EmptyDocument, PasswordRequired, UnsupportedFormat
from nbrag.ingestion.readers import DocxReader

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def read(source):
    if not isinstance(source, bytes):
        buffer = io.BytesIO()
        source.save(buffer)
        source = buffer.getvalue()
    return DocxReader().read(source, uri="docs/a.docx", name="a.docx")


def blocks(document):
    return [(b.kind, document.text[b.start : b.end]) for b in document.blocks]


def test_body_order_headings_lists_and_tables():
    made = docx.Document()
    made.add_heading("Handbook", 0)
    made.add_heading("Backups", 1)
    made.add_paragraph("Before the table.")
    table = made.add_table(2, 2)
    for cell, text in zip(table._cells, ["Region", "Days", "EU", "35"], strict=True):
        cell.text = text
    made.add_paragraph("one", style="List Bullet")
    made.add_paragraph("two", style="List Number")
    made.add_paragraph("After.")
    document = read(made)
    assert blocks(document) == [
        ("heading", "Handbook"),
        ("heading", "Backups"),
        ("paragraph", "Before the table."),
        ("table", "Region | Days\nEU | 35"),
        ("list", "- one\n- two"),
        ("paragraph", "After."),
    ]
    assert document.title == "Handbook"
    assert document.blocks[3].header == "Region | Days"


def test_properties():
    made = docx.Document()
    made.add_paragraph("text")
    made.core_properties.title = "Plan"
    made.core_properties.author = "Ann"
    made.core_properties.keywords = "a, b"
    made.core_properties.created = dt.datetime(2024, 5, 1, 8, 30)  # noqa: DTZ001 - as Word stores it
    document = read(made)
    assert document.title == "Plan"
    assert document.metadata["author"] == "Ann"
    assert document.metadata["keywords"] == ["a", "b"]
    assert document.metadata["created"] == "2024-05-01"


def test_heads_and_feet_are_read_once_and_page_numbers_not():
    made = docx.Document()
    made.sections[0].header.paragraphs[0].text = "ACME internal"
    made.sections[0].footer.paragraphs[0].text = "Page 1 of 9"
    made.add_paragraph("text")
    made.add_section()
    assert [text for _, text in blocks(read(made))] == ["ACME internal", "text"]


def test_tracked_changes_fields_and_breaks():
    made = docx.Document()
    made.element.body.insert(0, parse_xml(
        f"<w:p {W}><w:r><w:t>kept </w:t></w:r><w:del><w:r><w:t>gone</w:t></w:r></w:del>"
        "<w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:r><w:instrText>PAGE</w:instrText></w:r>"
        "<w:r><w:br/><w:t>line</w:t><w:tab/><w:t>two</w:t></w:r></w:p>"
    ))  # fmt: skip
    made.element.body.insert(1, parse_xml(
        f"<w:sdt {W}><w:sdtContent><w:p><w:r><w:t>in a control</w:t></w:r></w:p>"
        "</w:sdtContent></w:sdt>"
    ))  # fmt: skip
    assert [text for _, text in blocks(read(made))] == ["kept new\nline\ttwo", "in a control"]


def test_nested_tables_are_read_once():
    made = docx.Document()
    cell = made.add_table(1, 2).cell(0, 0)
    cell.text = "outer"
    cell.add_table(1, 1).cell(0, 0).text = "inner"
    document = read(made)
    assert document.text.count("inner") == 1
    assert "outer inner" in document.text


def test_equations_are_text():
    made = docx.Document()
    made.element.body.insert(0, parse_xml(
        f"<w:p {W} {M}><w:r><w:t>so </w:t></w:r><m:oMath><m:f><m:num><m:r><m:t>a</m:t></m:r>"
        "</m:num><m:den><m:sSup><m:e><m:r><m:t>b</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r>"
        "</m:sup></m:sSup></m:den></m:f></m:oMath></w:p>"
    ))  # fmt: skip
    assert read(made).text == "so (a)/(b^2)"


def test_empty_and_broken_files():
    with pytest.raises(EmptyDocument):
        read(docx.Document())
    with pytest.raises(CorruptDocument, match="not a whole DOCX"):
        read(b"PK\x03\x04 truncated")
    buffer = io.BytesIO()
    docx.Document().save(buffer)
    with pytest.raises(CorruptDocument):
        read(buffer.getvalue()[: len(buffer.getvalue()) // 2])


def test_encrypted_and_old_files():
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 512
    with pytest.raises(PasswordRequired):
        read(ole + "EncryptedPackage".encode("utf-16-le"))
    with pytest.raises(UnsupportedFormat, match="old binary"):
        read(ole)


def test_another_zip_archive_is_no_document():
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(CorruptDocument):
        read(buffer.getvalue())


@pytest.mark.data
def test_links_and_equations_of_real_files(data_folder):
    folder = data_folder / "docs" / "docx"
    assert "the first one here, the second one, and the third" in (
        read((folder / "hyperlinks.docx").read_bytes()).text
    )
    assert "(mλ)/(a)" in read((folder / "equations.docx").read_bytes()).text
