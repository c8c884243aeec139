"""Judgements are read line by line, and every error names file and line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import JudgementsError
from nbrag.evaluation import Judgements


def beir(folder, queries: str, qrels: str, split: str = "test"):
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "queries.jsonl").write_bytes(queries.encode())
    (folder / "qrels" / f"{split}.tsv").write_bytes(qrels.encode())
    return folder


QUERIES = (
    '{"_id": "1", "text": "one", "metadata": {"kind": "single"}}\n'
    '{"_id": "2", "text": "two", "lang": "en"}\n'
    '{"_id": "3", "text": "three"}\n'
)


def test_a_beir_folder(tmp_path):
    found = Judgements.load(
        beir(tmp_path, QUERIES, "query-id\tcorpus-id\tscore\n1\ta.md\t2\n1\tb.md\t0\n2\tc\t1.0\n")
    )
    assert found.queries == {"1": "one", "2": "two"}
    assert found.qrels == {"1": {"a.md": 2, "b.md": 0}, "2": {"c": 1}}
    assert found.metadata == {"1": {"kind": "single"}, "2": {"lang": "en"}}
    assert (len(found), found.left_out) == (2, 1)
    assert "2 queries, 1 without a relevant document, 3 judgements" in repr(found)


def test_a_query_with_only_grade_zero_is_left_out(tmp_path):
    found = Judgements.load(beir(tmp_path, QUERIES, "1\ta\t0\n2\tb\t1\n"))
    assert (list(found.queries), found.left_out) == (["2"], 2)


def test_windows_files_without_header_and_with_byte_order_mark(tmp_path):
    found = Judgements.load(
        beir(tmp_path, "\ufeff" + QUERIES.replace("\n", "\r\n"), "\ufeff1\ta b\t1\r\n")
    )
    assert found.qrels == {"1": {"a b": 1}}


def test_lines_end_at_line_feeds_only(tmp_path):
    text = "a\u2028b\u0085c"
    queries = json.dumps({"_id": "1", "text": text}, ensure_ascii=False)
    assert "\u2028" in queries
    found = Judgements.load(beir(tmp_path, queries, "1\tx\u2028y\t1"))
    assert found.queries == {"1": text}
    assert found.qrels == {"1": {"x\u2028y": 1}}


@pytest.mark.parametrize(
    ("queries", "qrels", "message"),
    [
        (QUERIES, "q\td\ts\n9\ta\t1\n", r"qrels/test\.tsv:2: there is no query '9'"),
        (QUERIES, "1\ta\t1\n\n1\ta\n", r"qrels/test\.tsv:3: 2 columns"),
        (QUERIES, "1\ta\tgood\n", r"qrels/test\.tsv:1: the grade 'good'"),
        (QUERIES, "1\ta\t1.5\n", r"qrels/test\.tsv:1: the grade '1\.5'"),
        (QUERIES, "1\ta\tnan\n", r"qrels/test\.tsv:1: the grade 'nan'"),
        (QUERIES, "1\ta\t1\n1\ta\t2\n", r"qrels/test\.tsv:2: another grade for 'a'"),
        (QUERIES, "1\ta\t0\n", "no query has a relevant document"),
        (QUERIES, "", "no query has a relevant document"),
        (QUERIES + '{"_id": "1", "text": "x"}', "1\ta\t1\n", r"queries\.jsonl:4: .*twice"),
        (QUERIES + "{", "1\ta\t1\n", r"queries\.jsonl:4: not JSON: .* at column 2"),
        (QUERIES + "[" * 100_000, "1\ta\t1\n", r"queries\.jsonl:4: not JSON"),
        (QUERIES + "3", "1\ta\t1\n", r"queries\.jsonl:4: a int where an object"),
        ('{"id": "1"}', "1\ta\t1\n", r'queries\.jsonl:1: a query needs "_id" and "text"'),
        ('{"_id": "1", "text": " "}', "1\ta\t1\n", "queries without text: '1'"),
    ],
)
def test_errors_of_a_beir_folder_name_file_and_line(tmp_path, queries, qrels, message):
    with pytest.raises(JudgementsError, match=message):
        Judgements.load(beir(tmp_path, queries, qrels))


def test_files_that_are_missing_are_named(tmp_path):
    with pytest.raises(JudgementsError, match=r"no queries\.jsonl"):
        Judgements.load(tmp_path)
    beir(tmp_path, QUERIES, "1\ta\t1\n", split="train")
    with pytest.raises(JudgementsError, match=r"no qrels/test\.tsv.*known splits: train"):
        Judgements.load(tmp_path)
    assert len(Judgements.load(tmp_path, split="train")) == 1
    with pytest.raises(JudgementsError, match="no such file or folder"):
        Judgements.load(tmp_path / "none")
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(JudgementsError, match="neither a BEIR folder nor"):
        Judgements.load(tmp_path / "a.csv")


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    beir(tmp_path, QUERIES, "1\ta\t1\n")
    (tmp_path / "queries.jsonl").write_bytes(QUERIES.encode() + '{"_id": "ä"}'.encode("latin-1"))
    with pytest.raises(JudgementsError, match=r"queries\.jsonl:4: not UTF-8 at byte 10"):
        Judgements.load(tmp_path)


def cases(tmp_path, *lines):
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return Judgements.load(file)


def test_cases(tmp_path):
    found = cases(
        tmp_path,
        {"query": "one", "relevant": {"a.md": 2, "b.md": 0}, "answer": "35 days"},
        "",
        {"id": "second", "query": "two", "relevant": ["c", 7], "metadata": {"where": "page > 1"}},
        {"query": "none", "relevant": []},
    )
    assert found.queries == {"1": "one", "second": "two"}
    assert found.qrels == {"1": {"a.md": 2, "b.md": 0}, "second": {"c": 1, "7": 1}}
    assert found.metadata == {"1": {"answer": "35 days"}, "second": {"where": "page > 1"}}
    assert found.left_out == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"question": "x", "relevant": ["a"]}, r'cases\.jsonl:2: the case has no "query"'),
        ({"query": "x"}, r'cases\.jsonl:2: the case has no "relevant"'),
        ({"_id": "1", "text": "x"}, "that is a BEIR file: give its folder"),
        ({"query": "", "relevant": ["a"]}, r'cases\.jsonl:2: "query" must be'),
        ({"query": 3, "relevant": ["a"]}, r'cases\.jsonl:2: "query" must be'),
        ({"query": "x", "relevant": "a"}, r'cases\.jsonl:2: "relevant" is a str'),
        ({"query": "x", "relevant": [["a"]]}, r"cases\.jsonl:2: an id must be"),
        ({"query": "x", "relevant": {"a": True}}, r"cases\.jsonl:2: the grade True"),
        ({"query": "x", "relevant": {"a": 0.5}}, r"cases\.jsonl:2: the grade 0\.5"),
        ({"query": "x", "relevant": {"a": 1e300}}, r"cases\.jsonl:2: the grade 1e\+300"),
        ({"query": "x", "relevant": ["a"], "id": "1"}, r"cases\.jsonl:2: the id '1' occurs twice"),
        ({"query": "x", "relevant": ["a"], "id": None}, r"cases\.jsonl:2: an id must be"),
        ("not json", r"cases\.jsonl:2: not JSON"),
    ],
)
def test_errors_of_cases_name_file_and_line(tmp_path, line, message):
    with pytest.raises(JudgementsError, match=message):
        cases(tmp_path, {"query": "first", "relevant": ["a"]}, line)


def test_qrels_of_unknown_queries_are_an_error():
    with pytest.raises(JudgementsError, match="1 judged queries are unknown: '9'"):
        Judgements({"1": "one"}, {"1": {"a": 1}, "9": {"a": 1}})


@given(count=st.integers(1, 12), n=st.integers(1, 15), seed=st.integers(0, 99))
def test_a_sample_is_the_same_for_the_same_seed(count, n, seed):
    ids = [str(number) for number in range(count)]
    whole = Judgements({i: f"text {i}" for i in ids}, {i: {"a": 1} for i in ids}, left_out=2)
    drawn = whole.sample(n, seed)
    assert drawn.queries == whole.sample(n, seed).queries
    assert len(drawn) == min(n, count)
    assert [i for i in ids if i in drawn.queries] == list(drawn.queries)
    assert list(drawn.qrels) == list(drawn.queries)
    assert drawn.left_out == 2


def test_another_seed_draws_other_queries():
    ids = [str(number) for number in range(100)]
    whole = Judgements({i: i for i in ids}, {i: {"a": 1} for i in ids})
    assert whole.sample(10, 1).queries != whole.sample(10, 2).queries
    with pytest.raises(JudgementsError, match="sample of 0"):
        whole.sample(0)


def test_it_shows_its_first_queries():
    ids = [str(number) for number in range(9)]
    whole = Judgements({i: f"<b>{i}" for i in ids}, {i: {"a": 1} for i in ids}, name="mine")
    shown = whole._repr_mimebundle_()
    assert shown["text/plain"].startswith("mine: 9 queries, 9 judgements\nid  query")
    assert shown["text/plain"].endswith("! 4 more queries are not shown")
    assert "<b>" not in shown["text/html"]


@given(st.integers(1, 30), st.integers(1, 12))
def test_every_step_starts_with_the_first_and_keeps_the_order(count, step):
    ids = [str(number) for number in range(count)]
    whole = Judgements({i: f"text {i}" for i in ids}, {i: {"a": 1} for i in ids}, left_out=2)
    kept = whole.every(step)
    assert list(kept.queries) == ids[::step]
    assert list(kept.qrels) == ids[::step]
    assert kept.left_out == 2
    with pytest.raises(JudgementsError, match="step of 0"):
        whole.every(0)
