"""Jupyter notebooks."""

from __future__ import annotations

import json

import pytest
from nbformat import v4

from nbrag.errors import CorruptDocument, EmptyDocument
from nbrag.ingestion.readers import NotebookReader


def read(source):
    data = source if isinstance(source, bytes) else json.dumps(source).encode()
    return NotebookReader().read(data, uri="nb/a.ipynb", name="a.ipynb")


def blocks(document):
    return [(b.kind, document.text[b.start : b.end]) for b in document.blocks]


def test_cells_and_short_outputs():
    code = v4.new_code_cell(
        "print(1)",
        outputs=[
            v4.new_output("stream", text="\x1b[31mred\x1b[0m text\n"),
            v4.new_output(
                "display_data", data={"image/png": "QUJD" * 500, "text/plain": "<Figure>"}
            ),
            v4.new_output("execute_result", data={"text/html": "<b>x</b>", "text/plain": "42"}),
            v4.new_output("error", ename="ValueError", evalue="bad", traceback=["\x1b[0m" * 50]),
            v4.new_output("stream", text="\n".join(f"line {n}" for n in range(500))),
        ],
    )
    notebook = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# Title\n\nSome *text*.\n\n- a\n- b"),
            code,
            v4.new_raw_cell("raw"),
        ],
        metadata={"language_info": {"name": "python"}},
    )
    document = read(notebook)
    assert blocks(document)[:6] == [
        ("heading", "# Title"),
        ("paragraph", "Some *text*."),
        ("list", "- a\n- b"),
        ("code", "print(1)"),
        ("code", "red text"),
        ("code", "42"),
    ]
    assert blocks(document)[6] == ("code", "ValueError: bad")
    assert "line 19" in document.text
    assert "line 20" not in document.text
    assert "QUJD" not in document.text
    assert document.title == "Title"
    assert document.blocks[0].title == "Title"
    assert document.metadata == {"programming_language": "python"}


def test_embedded_pictures_are_left_out():
    picture = f"before ![x](data:image/png;base64,{'QUJD' * 100}) after"
    cell = v4.new_markdown_cell(picture, attachments={"a.png": {"image/png": "QUJD" * 100}})
    assert read(v4.new_notebook(cells=[cell])).text == "before ![x]() after"


def test_old_format_is_converted():
    document = read({
        "metadata": {"name": "old"}, "nbformat": 3, "nbformat_minor": 0,
        "worksheets": [{"cells": [
            {"cell_type": "heading", "level": 2, "source": ["Old notebook"]},
            {"cell_type": "code", "input": ["x = 1\n", "y = 2"], "outputs": [],
             "language": "python", "collapsed": False},
        ]}],
    })  # fmt: skip
    assert blocks(document) == [("heading", "## Old notebook"), ("code", "x = 1\ny = 2")]
    assert document.blocks[0].level == 2


@pytest.mark.parametrize(
    "data",
    [
        b'{"cells": [{"cell_type": "mark',
        b"<<<<<<< HEAD\n{}",
        b"[]",
        b"{}",
        b"null",
        b'{"nbformat": 4, "cells": 5}',
        b'{"nbformat": 3}',
        b'{"nbformat": "x", "cells": []}',
    ],
)
def test_broken_notebooks_are_corrupt(data):
    with pytest.raises(CorruptDocument):
        read(data)


def test_notebook_without_text_is_empty():
    with pytest.raises(EmptyDocument):
        read(v4.new_notebook(cells=[v4.new_code_cell(""), v4.new_markdown_cell(" ")]))


@pytest.mark.data
def test_real_notebooks_have_no_base64_and_no_colours(data_folder):
    for path in sorted((data_folder / "docs" / "ipynb").glob("*.ipynb")):
        text = read(path.read_bytes()).text
        assert "\x1b" not in text
        assert not any(len(word) > 300 for word in text.split())
