"""CSV, JSON Lines, JSON and workbooks: records as blocks."""

from __future__ import annotations

import datetime as dt
import io
import json

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import CorruptDocument, EmptyDocument, PasswordRequired
from nbrag.ingestion.readers import CsvReader, JsonReader, XlsxReader
from nbrag.ingestion.readers.csv_table import sniff_delimiter


def rows(document):
    return [document.text[b.start : b.end] for b in document.blocks if b.kind == "row"]


def read_csv(text: str | bytes, name: str = "a.csv"):
    data = text.encode() if isinstance(text, str) else text
    return CsvReader().read(data, uri=name, name=name)


def read_json(text: str, name: str = "a.jsonl"):
    return JsonReader().read(text.encode(), uri=name, name=name)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(delimiter):
    text = "\n".join(delimiter.join(row) for row in [["name", "note"], ["a", "x y"], ["b", "z"]])
    assert sniff_delimiter(text) == delimiter
    assert rows(read_csv(text)) == ["name: a\nnote: x y", "name: b\nnote: z"]


def test_quotes_line_breaks_and_commas_within_fields():
    document = read_csv('q,a\r\n"one, two","line 1\nline ""2"""\r\n')
    assert rows(document) == ['q: one, two\na: line 1\nline "2"']


def test_semicolons_with_decimal_commas():
    assert rows(read_csv("item;price\ntea;2,50\njam;3,10\n"))[0] == "item: tea\nprice: 2,50"


def test_first_row_of_data_is_no_header():
    assert rows(read_csv("1,2\n3,4\n")) == ["column 1: 1\ncolumn 2: 2", "column 1: 3\ncolumn 2: 4"]


def test_ragged_and_empty_rows():
    assert rows(read_csv("a,b\n1\n\n,,\n1,2,3\n")) == ["a: 1", "a: 1\nb: 2\ncolumn 3: 3"]


def test_huge_field_is_read():
    assert len(read_csv("a,b\n" + "x" * 300_000 + ",y\n").text) > 300_000


def test_csv_in_another_encoding():
    document = read_csv("名前,年齢\n佐藤太郎,30\n三木英子,25\n".encode("cp932"))
    assert rows(document)[0] == "名前: 佐藤太郎\n年齢: 30"


@pytest.mark.parametrize("text", ["", "\n\n", ",,\n,,\n"])
def test_csv_without_values_is_empty(text):
    with pytest.raises(EmptyDocument):
        read_csv(text)


CELLS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cf"]), min_size=1, max_size=9
)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_each_record_is_a_block_at_its_offsets(records):
    import csv

    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([("key", "value"), *records])
    document = read_csv(buffer.getvalue())
    expected = [(key.strip(), value.strip()) for key, value in records]
    found = rows(document)
    assert len(found) == sum(1 for key, value in expected if key or value)


def test_json_lines_end_at_line_feeds_only():
    lines = [
        json.dumps({"id": n, "text": "a \u2028 b \x85 c"}, ensure_ascii=False) for n in range(3)
    ]
    assert rows(read_json("\n".join(lines))) == [
        f"id: {n}\ntext: a \u2028 b \x85 c" for n in range(3)
    ]


def test_wrong_json_lines_are_told():
    document = read_json('{"a": 1}\nnot json\n{"a": 2}\n')
    assert rows(document) == ["a: 1", "a: 2"]
    assert document.metadata["reading_warning"] == "not JSON and left out: line 2"
    with pytest.raises(CorruptDocument, match="line 1"):
        read_json("not json\n")


def test_json_forms():
    assert rows(read_json('[{"a": 1}, {"a": [1, "x"]}]', "a.json")) == ["a: 1", "a: 1, x"]
    assert rows(read_json('{"data": [{"a": 1}]}', "a.json")) == ["a: 1"]
    assert rows(read_json('{"a": 1}\n{"a": 2}', "a.json")) == ["a: 1", "a: 2"]
    tree = read_json('{"a": {"b": [1, 2]}}', "a.json")
    assert [b.kind for b in tree.blocks] == ["code"]
    assert json.loads(tree.text) == {"a": {"b": [1, 2]}}


def test_lone_surrogates_and_nul_in_json_are_cleaned():
    assert rows(read_json('{"a": "x\\ud800y\\u0000z"}')) == ["a: x\ufffdyz"]


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_json_without_records_is_empty(text):
    with pytest.raises(EmptyDocument):
        read_json(text, "a.json")


def workbook(fill) -> bytes:
    book = openpyxl.Workbook()
    fill(book)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def read_xlsx(data: bytes):
    return XlsxReader().read(data, uri="a.xlsx", name="a.xlsx")


def test_workbook_tables_anywhere_on_the_sheets():
    def fill(book):
        sheet = book.active
        sheet.title = "Prices"
        for row, values in enumerate(
            [("item", "price", "since"), ("tea", 2.5, dt.date(2024, 5, 1))]
        ):
            for column, value in enumerate(values):
                sheet.cell(row + 4, column + 3, value)
        book.create_sheet("Empty")
        book.create_sheet("Numbers").append([1, 2])

    document = read_xlsx(workbook(fill))
    assert [(b.kind, document.text[b.start : b.end]) for b in document.blocks] == [
        ("heading", "Prices"),
        ("row", "item: tea\nprice: 2.5\nsince: 2024-05-01"),
        ("heading", "Numbers"),
        ("row", "column 1: 1\ncolumn 2: 2"),
    ]
    assert document.title == "a"


def test_broken_workbooks():
    with pytest.raises(EmptyDocument):
        read_xlsx(workbook(lambda book: None))
    with pytest.raises(CorruptDocument):
        read_xlsx(b"PK\x03\x04broken")
    with pytest.raises(PasswordRequired):
        read_xlsx(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"))
