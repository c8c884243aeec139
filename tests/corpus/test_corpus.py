"""The tutorial corpus is whole: documents, questions, judgements and quotes fit together."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter, defaultdict
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CORPUS = Path(__file__).parents[2] / "notebooks" / "corpus"
HANDBOOK = CORPUS / "handbook"
QUESTIONS = CORPUS / "questions"
KINDS = {"single", "bridge", "broad", "keyword", "filter", "unanswerable"}


def read_lines(name: str) -> list[dict[str, Any]]:
    text = (QUESTIONS / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@cache
def queries() -> dict[str, dict[str, Any]]:
    return {query["_id"]: query for query in read_lines("queries.jsonl")}


@cache
def texts() -> dict[str, dict[str, Any]]:
    return {document["_id"]: document for document in read_lines("corpus.jsonl")}


@cache
def judgements() -> dict[str, dict[str, int]]:
    lines = (QUESTIONS / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "query-id\tcorpus-id\tscore"
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for line in lines[1:]:
        query, document, grade = line.split("\t")
        assert document not in judged[query], f"{query} judges {document} twice"
        judged[query][document] = int(grade)
    return judged


@cache
def script(name: str) -> ModuleType:
    """Load a script of the corpus; they import each other by their bare names."""
    if name == "make_corpus":
        script("make_binary")
    spec = importlib.util.spec_from_file_location(name, CORPUS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def normalised(text: str) -> str:
    return " ".join(text.split())


def visible_text(name: str) -> str:
    """Read a document as a person sees it, from the file itself."""
    path = HANDBOOK / name
    if path.suffix == ".pdf":
        pypdf = pytest.importorskip("pypdf", reason="pypdf is needed to read PDF documents")
        return "\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)
    if path.suffix == ".docx":
        docx = pytest.importorskip("docx", reason="python-docx is needed to read DOCX documents")
        document = docx.Document(str(path))
        cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
        rows = [
            " | ".join(cell.text for cell in row.cells)
            for table in document.tables
            for row in table.rows
        ]
        return "\n".join([*(paragraph.text for paragraph in document.paragraphs), *cells, *rows])
    if path.suffix in {".html", ".ipynb"}:
        return str(script("make_corpus").read_document(name)["text"])
    return path.read_text(encoding="utf-8")


def test_the_handbook_has_the_promised_documents() -> None:
    suffixes = Counter(path.suffix for path in HANDBOOK.rglob("*") if path.is_file())
    assert sum(suffixes.values()) >= 55
    wanted = {".md", ".html", ".pdf", ".docx", ".ipynb", ".txt", ".csv"}
    assert set(suffixes) == wanted
    assert set(texts()) == {
        path.relative_to(HANDBOOK).as_posix() for path in HANDBOOK.rglob("*") if path.is_file()
    }


def test_the_corpus_stays_small() -> None:
    files = (path for path in CORPUS.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert sum(path.stat().st_size for path in files) < 1_500_000


def test_the_corpus_file_is_what_the_script_makes() -> None:
    stored = (QUESTIONS / "corpus.jsonl").read_text(encoding="utf-8")
    assert script("make_corpus").corpus_lines() == stored


def test_html_text_leaves_the_page_furniture_out() -> None:
    pages = [name for name in texts() if name.endswith(".html")]
    assert len(pages) >= 5
    for name in pages:
        raw = (HANDBOOK / name).read_text(encoding="utf-8")
        assert "<nav" in raw
        assert "<footer" in raw
        assert "cookies" not in texts()[name]["text"]
        assert "Imprint" not in texts()[name]["text"]


def test_every_judgement_names_a_query_a_document_and_a_grade() -> None:
    for query, graded in judgements().items():
        assert query in queries()
        for document, grade in graded.items():
            assert document in texts(), f"{query} judges {document}, which isn't in the handbook"
            assert grade in {1, 2, 3}
        assert max(graded.values()) >= 2, f"{query} has background only"


def test_there_are_enough_questions_of_every_kind() -> None:
    kinds = Counter(query["metadata"]["kind"] for query in queries().values())
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 12
    assert len(queries()) >= 165
    assert len(judgements()) >= 150


def test_unanswerable_questions_and_only_they_have_no_judgement() -> None:
    unjudged = {name for name in queries() if name not in judgements()}
    kinds = {name: query["metadata"]["kind"] for name, query in queries().items()}
    assert unjudged == {name for name, kind in kinds.items() if kind == "unanswerable"}


def test_query_texts_and_answers_are_given_and_texts_differ() -> None:
    spoken = [normalised(query["text"]).lower() for query in queries().values()]
    assert [text for text, count in Counter(spoken).items() if count > 1] == []
    assert all(query["metadata"]["answer"] for query in queries().values())


def test_bridge_questions_need_two_documents() -> None:
    for name, query in queries().items():
        if query["metadata"]["kind"] == "bridge":
            assert sum(grade >= 2 for grade in judgements()[name].values()) >= 2, query["text"]


def test_filters_leave_the_answering_document_and_exclude_others() -> None:
    for name, query in queries().items():
        where = query["metadata"].get("where")
        assert (where is not None) == (query["metadata"]["kind"] == "filter")
        if where is None:
            continue
        wanted = dict(re.findall(r'(\w+) == "([^"]+)"', where))
        assert where == " and ".join(f'{field} == "{value}"' for field, value in wanted.items())
        kept = {
            document
            for document, entry in texts().items()
            if all(entry["metadata"].get(field) == value for field, value in wanted.items())
        }
        assert set(judgements()[name]) <= kept, query["text"]
        assert len(kept) <= 3, query["text"]


def test_every_judged_query_has_a_quote_and_quotes_are_judged() -> None:
    passages = read_lines("passages.jsonl")
    assert {passage["query_id"] for passage in passages} == set(judgements())
    for passage in passages:
        assert passage["document"] in judgements()[passage["query_id"]]


@pytest.mark.parametrize("document", sorted({p["document"] for p in read_lines("passages.jsonl")}))
def test_quotes_are_verbatim(document: str) -> None:
    text = normalised(visible_text(document))
    for passage in read_lines("passages.jsonl"):
        if passage["document"] == document:
            assert normalised(passage["quote"]) in text, passage["query_id"]


def test_binary_documents_are_made_again_byte_for_byte() -> None:
    pytest.importorskip("reportlab", reason="reportlab is needed to make PDF documents")
    pytest.importorskip("docx", reason="python-docx is needed to make DOCX documents")
    make_binary = script("make_binary")
    installed = {name: metadata.version(name) for name in make_binary.GENERATED_WITH}
    if installed != make_binary.GENERATED_WITH:
        pytest.skip(f"the files were made with {make_binary.GENERATED_WITH}, here is {installed}")
    rendered = make_binary.render_all()
    stored = {
        path.relative_to(HANDBOOK).as_posix()
        for path in HANDBOOK.rglob("*")
        if path.suffix in {".pdf", ".docx"}
    }
    assert set(rendered) == stored
    for name, data in rendered.items():
        assert data == (HANDBOOK / name).read_bytes(), name
