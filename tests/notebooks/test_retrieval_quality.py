"""The benchmark of retrieval quality runs on any BEIR folder, and ends cleanly without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbrag.testing import read_records, run_notebook

PASSAGES = {
    "p1": ("Cats", "Cats sleep for most of the day and hunt at dusk."),
    "p2": ("Bridges", "The bridge at Tay was rebuilt with steel girders in 1887."),
    "p3": ("Bread", "Sourdough bread rises slowly, because wild yeast is slow."),
    "p4": ("Tides", "Tides follow the moon, and are highest at new and full moon."),
}
QUESTIONS = {
    "q1": ("When do cats hunt?", "p1"),
    "q2": ("Which metal is the bridge at Tay made of?", "p2"),
    "q3": ("Why is sourdough slow to rise?", "p3"),
}


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    """A folder with one small collection in BEIR's form."""
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {"_id": name, "title": title, "text": text} for name, (title, text) in PASSAGES.items()
    ]
    queries = [{"_id": name, "text": text} for name, (text, _) in QUESTIONS.items()]
    for name, lines in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [f"{name}\t{document}\t1\n" for name, (_, document) in QUESTIONS.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return tmp_path


@pytest.mark.kernel
@pytest.mark.model
def test_a_collection_is_ingested_and_measured(
    notebooks: Path, collections: Path, shown_text: Callable[[Any], str]
) -> None:
    executed = run_notebook(
        notebooks / "benchmarks" / "retrieval_quality.ipynb",
        data_folder=str(collections),
        collections=["small", "elsewhere"],
    )
    records = read_records(executed)
    assert records["small hybrid nDCG@10"] == 1.0
    assert records["small keyword nDCG@10"] == 1.0
    assert records["small vector recall@100"] == 1.0
    text = shown_text(executed)
    assert "elsewhere: not here" in text
    assert "hybrid - vector" in text


@pytest.mark.kernel
def test_without_collections_it_says_so_and_ends(
    notebooks: Path, tmp_path: Path, shown_text: Callable[[Any], str]
) -> None:
    executed = run_notebook(
        notebooks / "benchmarks" / "retrieval_quality.ipynb", data_folder=str(tmp_path / "nowhere")
    )
    assert read_records(executed) == {}
    text = shown_text(executed)
    assert "Collections that are not here" in text
    assert "scifact: not here" in text
