"""Documents of a BEIR folder come one by one."""

from __future__ import annotations

import json

import pytest

from nbrag.errors import JudgementsError
from nbrag.evaluation import beir_records


def test_records_have_id_title_and_text(tmp_path):
    lines = [
        {"_id": "1", "title": "T", "text": "a\u2028b", "metadata": {}},
        {"_id": 2, "text": ""},
        {"_id": "3", "title": None, "text": "c"},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n"
    (tmp_path / "corpus.jsonl").write_text(text, encoding="utf-8")
    assert list(beir_records(tmp_path)) == [
        {"id": "1", "title": "T", "text": "a\u2028b"},
        {"id": "2", "title": "", "text": ""},
        {"id": "3", "title": "", "text": "c"},
    ]


def test_a_missing_corpus_is_told_before_the_first_record(tmp_path):
    with pytest.raises(JudgementsError, match=r"no corpus\.jsonl"):
        beir_records(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"}', r'corpus\.jsonl:2: a document without "_id"'),
        ('{"_id": true, "text": "a"}', r'corpus\.jsonl:2: a document without "_id"'),
        ('{"_id": "1", "text": null}', r'corpus\.jsonl:2: "text" and "title"'),
        ('{"_id": "1", "text": "a", "title": 3}', r'corpus\.jsonl:2: "text" and "title"'),
        ("[]", r"corpus\.jsonl:2: a list where an object"),
    ],
)
def test_what_is_no_document_is_named_by_line(tmp_path, line, message):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "0", "text": "a"}\n' + line)
    with pytest.raises(JudgementsError, match=message):
        list(beir_records(tmp_path))


@pytest.mark.data
def test_a_public_collection_is_read_whole(data_folder):
    assert sum(1 for _ in beir_records(data_folder / "scifact")) == 5183
