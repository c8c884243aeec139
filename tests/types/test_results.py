"""Results are shown and exported whatever the documents hold."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import duckdb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbrag.errors import MissingDependency
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults, Span

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></table>",
    "👩\u200d👧",
    "שלום \u202eevil",
    "\ud800",
    "\x00\r\n\u2028",
    "x" * 1_000_000,
]
TEXTS = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=60),
    st.sampled_from(HOSTILE),
)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.lists(TEXTS))


def found(*chunks: RetrievalChunk, question: str = "How long?", **more) -> RetrievalResults:
    return RetrievalResults(RetrievalQuery(question), chunks, **more)


def two_chunks() -> RetrievalResults:
    return found(
        RetrievalChunk(
            "c1", "d1", "Kept for 35 days.", 0.75,
            {"source": "ops/backup.md", "title": "Backups", "heading_path": ("Backups", "EU"),
             "page": 3, "region": "eu", "also_in": ["copy.md"], "context": "Backups EU"},
            span=Span(10, 27, 3),
        ),
        RetrievalChunk("c2", "d2", "Another.", 0.5, {"source": "b.md", "region": 7}),
        warnings=("stage 'rerank' failed",),
    )  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in {"src", "href"} for name, _ in attrs)


def test_the_table_shows_rank_score_place_and_text():
    lines = two_chunks()._repr_mimebundle_()["text/plain"].split("\n")
    rules = " ".join("-" * width for width in (4, 6, 26, 12, 4, 17))
    assert [" ".join(line.split()) for line in lines] == [
        "How long?",
        "rank score source heading page text",
        rules,
        "1 0.7500 ops/backup.md (and 1 more) Backups > EU 3 Kept for 35 days.",
        "2 0.5000 b.md Another.",
        "! stage 'rerank' failed",
    ]


def test_html_is_a_table_with_a_caption_and_folded_texts():
    source = two_chunks()._repr_mimebundle_()["text/html"]
    for piece in ("<caption", "How long?", 'scope="col"', "<details>", "Backups &gt; EU"):
        assert piece in source


@given(texts=st.lists(TEXTS, min_size=8, max_size=8), values=st.dictionaries(TEXTS, VALUES))
@example(texts=HOSTILE[:4] + HOSTILE[3:], values={"score": "x", "score_": 1, "rank": None})
def test_hostile_text_is_shown_and_exported_without_harm(texts, values):
    record = {
        **values,
        "source": texts[0],
        "title": texts[1],
        "heading_path": (texts[2], texts[3]),
    }
    chunk = RetrievalChunk(texts[4], "d", texts[5], 0.5, record)
    other = RetrievalChunk("other", "d", "text", 0.25, {"source": "s", "title": 4})
    results = found(chunk, other, question=texts[6], warnings=(texts[7],))
    for form in results._repr_mimebundle_().values():
        form.encode()
        assert len(form) < 200_000
        assert "\u202e" not in form
    tags = Tags()
    tags.feed(results._repr_mimebundle_()["text/html"])
    assert tags.tags <= {
        "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "div",
    }  # fmt: skip
    assert len(repr(results)) < 250
    assert len(repr(chunk)) < 300
    assert results.to_dicts()[0]["content"] == texts[5]
    assert results.to_arrow().num_rows == 2


def test_rows_carry_the_fields_of_the_record_once():
    first, second = two_chunks().to_dicts()
    assert first == {
        "rank": 1, "score": 0.75, "source": "ops/backup.md", "title": "Backups",
        "heading_path": ["Backups", "EU"], "page": 3, "content": "Kept for 35 days.",
        "id": "c1", "document_id": "d1", "parent_id": None, "start": 10, "end": 27,
        "region": "eu", "also_in": ["copy.md"],
    }  # fmt: skip
    assert (second["page"], second["start"], second["region"]) == (None, None, 7)


def test_a_field_named_as_a_column_of_ours_keeps_its_value():
    record = {"source": "a", "score": "high", "score_": "low", "rank": 9}
    row = found(RetrievalChunk("c", "d", "t", 1.0, record)).to_dicts()[0]
    assert (row["score"], row["rank"]) == (1.0, 1)
    assert sorted((row["score_"], row["score__"])) == ["high", "low"]
    assert row["rank_"] == 9


def test_frames_have_the_same_columns_and_types_with_and_without_rows():
    full, empty = two_chunks().to_pandas(), found().to_pandas()
    assert list(full.columns)[: len(empty.columns)] == list(empty.columns)
    assert full["page"].tolist()[0] == 3
    assert str(full["page"].dtype) == "Int64"
    assert full["region"].tolist() == ["eu", "7"]
    assert len(empty) == 0
    assert two_chunks().to_polars()["score"].to_list() == [0.75, 0.5]


def test_duckdb_and_polars_read_results_directly():
    results = two_chunks()  # noqa: F841 - DuckDB finds it by its name
    rows = duckdb.sql("SELECT source, score FROM results ORDER BY rank").fetchall()
    assert rows == [("ops/backup.md", 0.75), ("b.md", 0.5)]


def test_scores_of_every_number_type_are_shown_alike():
    chunk = RetrievalChunk("c", "d", "t", np.float32(0.5), {"source": "a"})
    assert "0.5000" in found(chunk)._repr_mimebundle_()["text/plain"]
    assert found(chunk).to_dicts()[0]["score"] == 0.5


def test_finding_nothing_says_so():
    assert found()._repr_mimebundle_()["text/plain"] == "How long?\n! nothing was found"
    assert repr(found()) == "<RetrievalResults 'How long?': 0 chunks>"


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependency, match="polars"):
        two_chunks().to_polars()
