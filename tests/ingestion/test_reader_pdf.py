"""PDF files, made by reportlab where the public ones do not show it."""

from __future__ import annotations

import io

import pytest

from nbrag.errors import CorruptDocument, NoTextLayer, PasswordRequired
from nbrag.ingestion.readers import PdfReader

canvas = pytest.importorskip("reportlab.pdfgen.canvas", reason="reportlab makes the test files")


def read(data: bytes, name: str = "report.pdf"):
    return PdfReader().read(data, uri=f"docs/{name}", name=name)


def make(
    pages: list[list[str]], *, title: str = "", author: str = "", outline: bool = False
) -> bytes:
    buffer = io.BytesIO()
    pdf = canvas.Canvas(buffer)
    pdf.setTitle(title)
    pdf.setAuthor(author)
    for number, lines in enumerate(pages):
        if outline:
            pdf.bookmarkPage(f"p{number}")
            pdf.addOutlineEntry(lines[0].partition(" ")[2], f"p{number}", level=0)
        for row, line in enumerate(lines):
            pdf.drawString(72, 780 - 16 * row, line)
        pdf.showPage()
    pdf.save()
    return buffer.getvalue()


def test_blocks_have_their_page():
    document = read(
        make([["First page text."], ["Second page text."]], title="Report", author="Ann")
    )
    assert [(b.page, document.text[b.start : b.end]) for b in document.blocks] == [
        (1, "First page text."),
        (2, "Second page text."),
    ]
    assert document.title == "Report"
    assert document.metadata["author"] == "Ann"
    assert document.metadata["pages"] == 2


def test_control_characters_of_properties_go():
    document = read(make([["text"]], title="Re\x00port\x00", author="An\x00n"))
    assert "\x00" not in document.title + str(document.metadata)
    assert document.metadata["author"] == "Ann"


@pytest.mark.parametrize(
    "title", ["", "untitled", "(anonymous)", "Microsoft Word - draft.doc", "x.tex"]
)
def test_titles_that_say_nothing_give_way_to_the_file_name(title):
    assert read(make([["text"]], title=title), "annual-report.pdf").title == "annual-report"


def test_outline_entries_become_headings():
    document = read(
        make([["1 Scope", "What it covers."], ["2 Rates", "What it costs."]], outline=True)
    )
    assert [(b.title, b.level, b.page) for b in document.blocks if b.kind == "heading"] == [
        ("1 Scope", 1, 1),
        ("2 Rates", 1, 2),
    ]


def test_running_heads_and_feet_are_left_out():
    pages = [["ACME Handbook", f"Body of part {n} stays.", f"Page {n} of 6"] for n in range(6)]
    text = read(make(pages)).text
    assert "ACME" not in text
    assert "of 6" not in text
    assert all(f"part {n} stays" in text for n in range(6))


def test_pages_without_text_are_told():
    document = read(make([["text"], [], ["more"]]))
    assert document.metadata["reading_warning"] == "without text: page 2"


def test_no_text_at_all_is_a_scan():
    with pytest.raises(NoTextLayer, match=r"docs/report\.pdf has no text layer \(2 pages\)"):
        read(make([[], []]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>404</html>", "begins with '<html>404"),
        (b"", "is not a PDF"),
        (b"%PDF-1.7\n" + b"garbage " * 100, "damaged"),
    ],
)
def test_what_is_no_pdf_is_corrupt(data, message):
    with pytest.raises(CorruptDocument, match=message):
        read(data)


@pytest.mark.data
@pytest.mark.parametrize("name", ["encrypted-libreoffice.pdf", "encrypted-user-password-r6.pdf"])
def test_passwords_are_asked_for(data_folder, name):
    with pytest.raises(PasswordRequired):
        read((data_folder / "docs" / "pdf" / name).read_bytes())


@pytest.mark.data
def test_words_hyphenated_at_line_ends_are_joined(data_folder):
    text = read((data_folder / "docs" / "pdf" / "specrel-raglite.pdf").read_bytes()).text
    assert "the reciprocal electrodynamic action" in " ".join(text.split())
    assert "\x02" not in text


@pytest.mark.data
def test_damage_that_can_be_repaired(data_folder):
    docs = data_folder / "docs"
    good = read((docs / "pdf" / "outline.pdf").read_bytes()).text
    for name in ("xref-offset-wrong.pdf", "junk-before-header.pdf"):
        assert read((docs / "gen" / name).read_bytes()).text == good
