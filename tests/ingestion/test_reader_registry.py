"""Which reader takes which source, plain text, metadata, missing packages."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import sys
import time
import zipfile
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import EmptyDocument, MissingDependency, UnsupportedFormat
from nbrag.ingestion.readers import (
    CsvReader,
    DocxReader,
    EpubReader,
    HtmlReader,
    MarkdownReader,
    NotebookReader,
    PdfReader,
    TextReader,
    XlsxReader,
    clean_metadata,
    reader_for,
    readers,
    register_reader,
    registry,
)
from nbrag.protocols import Reader
from nbrag.types import Document


def archive(member: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr(member, "x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "media_type", "data", "expected"),
    [
        ("a.md", "", b"", MarkdownReader),
        ("A.PDF", "", b"", PdfReader),
        ("page", "text/html; charset=utf-8", b"", HtmlReader),
        ("doc.md", "text/html", b"", HtmlReader),
        ("doc.md", "text/plain", b"", MarkdownReader),
        ("doc.md", "application/octet-stream", b"", MarkdownReader),
        ("x", "", b"%PDF-1.7", PdfReader),
        ("x", "", b"  <!DOCTYPE html><p>", HtmlReader),
        ("x", "", b'{"nbformat": 4}', NotebookReader),
        ("x", "", b"plain words", TextReader),
        ("x.unknown", "", b"plain words", TextReader),
        ("setup.py", "", b"", TextReader),
        ("x", "", archive("word/document.xml"), DocxReader),
        ("x", "", archive("xl/workbook.xml"), XlsxReader),
        ("x", "", archive("META-INF/container.xml"), EpubReader),
        ("data.tsv", "", b"", CsvReader),
    ],
)
def test_reader_by_media_type_name_and_content(name, media_type, data, expected):
    assert type(reader_for(name, media_type, data)) is expected


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.bin", bytes(range(256)), "binary"),
        ("photo", b"\x89PNG\r\n\x1a\n", "binary"),
        ("old.doc", b"", r"save it as \.docx"),
        ("x.zip", b"", "unpack"),
        ("x", archive("a.txt"), "zip archive"),
    ],
)
def test_what_no_reader_takes(name, data, message):
    with pytest.raises(UnsupportedFormat, match=message):
        reader_for(name, "", data)


def test_own_reader_goes_first(monkeypatch):
    monkeypatch.setattr(registry, "_READERS", list(readers()))

    class Shouting:
        suffixes = (".md",)
        media_types = ()

        def read(self, data: bytes, *, uri: str, name: str) -> Document:
            return Document(uri, data.decode().upper())

    register_reader(Shouting())
    assert reader_for("a.md").read(b"x", uri="a", name="a.md").text == "X"


def test_readers_fulfil_the_protocol():
    for reader in readers():
        assert isinstance(reader, Reader)
        assert all(suffix.startswith(".") and suffix.islower() for suffix in reader.suffixes)


@pytest.mark.parametrize(
    ("package", "name"),
    [("markdown_it", "a.md"), ("pypdfium2", "a.pdf"), ("docx", "a.docx"), ("openpyxl", "a.xlsx"),
     ("lxml", "a.html"), ("nbformat", "a.ipynb"), ("lxml.etree", "a.epub")],
)  # fmt: skip
def test_missing_packages_are_named(monkeypatch, package, name):
    from nbrag.ingestion.readers import markdown

    markdown._parser.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match="pip install"):
        reader_for(name).read(b"{}", uri=name, name=name)


def test_plain_text_is_paragraphs():
    document = TextReader().read(b"One.\ntwo\n\n \t\n  Three.\n\n\n", uri="a.txt", name="a.txt")
    assert [document.text[b.start : b.end] for b in document.blocks] == ["One.\ntwo", "  Three."]
    assert document.title == "a"


def test_code_is_one_block():
    document = TextReader().read(b"def a():\n\n    pass\n", uri="a.py", name="a.py")
    assert [b.kind for b in document.blocks] == ["code"]


@pytest.mark.parametrize("data", [b"", b" \n\t", " \xa0\u200b\ufeff ".encode()])
def test_blank_text_is_empty(data):
    with pytest.raises(EmptyDocument, match=r"a\.txt"):
        TextReader().read(data, uri="a.txt", name="a.txt")


def test_guessed_encodings_are_told():
    document = TextReader().read(
        "Olá, não é só você à tarde!".encode("cp1252"), uri="a", name="a.txt"
    )
    assert "guess" in str(document.metadata["reading_warning"])


def test_metadata_is_flat_typed_and_clean():
    assert clean_metadata({
        "Title Case": " x\x00y ", "n": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True),
        "d": dt.datetime(2024, 5, 1, 8), "day": dt.date(2024, 5, 1), "big": 2**70,  # noqa: DTZ001
        "dec": Decimal("1.5"), "nan": float("nan"), "none": None, "blank": " \x07", "empty": [],
        "list": [1, "a\ud800", None, True, ["n"]], "set": {"b", "a"}, "deep": {"er": {"est": 1}},
        "raw": b"bytes\xff", 7: "number", "array": np.array([1, 2]), "...": "no name",
    }) == {
        "title_case": "xy", "n": 3, "f": 0.5, "b": True, "d": "2024-05-01T08:00:00",
        "day": "2024-05-01", "big": str(2**70), "dec": 1.5,
        "list": ["1", "a\ufffd", "true", '["n"]'],
        "set": ["a", "b"], "deep_er_est": 1, "raw": "bytes\ufffd", "_7": "number",
        "array": ["1", "2"],
    }  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=6))
def test_any_mapping_becomes_fields(values):
    for name, value in clean_metadata(values).items():
        assert name.isidentifier() or not name.isascii()
        assert isinstance(value, str | int | float | bool | list)
        for text in value if isinstance(value, list) else [str(value)]:
            assert isinstance(text, str)
            text.encode()
            assert "\x00" not in text


@pytest.mark.parametrize("text", [" " * 300_000, " " * 300_000 + "x", ("a" + " " * 999) * 300])
def test_blanks_are_read_in_linear_time(text):
    begun = time.perf_counter()
    for reader in (TextReader(), MarkdownReader()):
        with contextlib.suppress(EmptyDocument):
            reader.read(text.encode(), uri="a", name="a.md")
    assert time.perf_counter() - begun < 10
