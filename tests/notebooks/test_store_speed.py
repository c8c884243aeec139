"""The store's benchmark runs, is right, and says what is not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbrag.testing import read_records, run_notebook

#: Names in the tables, and the package that each row needs.
PEERS = {"Chroma": "chromadb", "LanceDB, no index": "lancedb", "bm25s": "bm25s"}


@pytest.fixture(scope="module")
def executed(notebooks: Path) -> Any:
    return run_notebook(
        notebooks / "benchmarks" / "store_speed.ipynb",
        chunks=230,
        dimension=16,
        queries=3,
        runs=1,
    )


@pytest.mark.kernel
def test_every_promise_is_measured(executed: Any) -> None:
    """How fast it was says nothing at this size; that there is a figure for each line does."""
    records = read_records(executed)
    assert len(records) == 9
    assert all(value > 0 for value in records.values())
    assert records["peak of memory while ingesting, MB"] < 1024


@pytest.mark.kernel
def test_searches_agree_with_the_product(executed: Any, shown_text: Callable[[Any], str]) -> None:
    text = shown_text(executed)
    assert "9 filtered and unfiltered searches, 0 in another order than the product's" in text


@pytest.mark.kernel
def test_missing_programs_have_a_row_that_says_so(
    executed: Any, shown_text: Callable[[Any], str]
) -> None:
    text = shown_text(executed)
    for name, package in PEERS.items():
        missing = importlib.util.find_spec(package) is None
        assert (f"{name}: not installed" in text) is missing
    assert "DuckDB, no index: vector" in text
