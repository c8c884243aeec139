"""The models' benchmarks run, are right, and say what is not installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbrag.testing import read_records, run_notebook


@pytest.fixture(scope="module")
def embedding(notebooks: Path) -> Any:
    return run_notebook(
        notebooks / "benchmarks" / "embedding_speed.ipynb",
        {"passages": 8, "runs": 1, "quality": False},
        cwd=notebooks / "benchmarks",
        cell_timeout=300,
    )


@pytest.mark.kernel
@pytest.mark.model
def test_embedding_is_measured_and_prepared_vectors_are_near(embedding: Any) -> None:
    """How fast it was says nothing at this size and without the peer."""
    records = read_records(embedding)
    assert records["prepared, times as installed"] > 0
    assert records["prepared, mean cosine to as installed"] > 0.996
    assert records["prepared, difference of a vector alone and in company"] < 1e-5
    assert set(records) == {
        "prepared, times as installed",
        "prepared, mean cosine to as installed",
        "prepared, difference of a vector alone and in company",
    }


@pytest.mark.kernel
@pytest.mark.model
def test_what_is_not_installed_has_a_line(embedding: Any, shown_text: Callable[[Any], str]) -> None:
    text = shown_text(embedding)
    assert "sentence-transformers: not installed" in text
    assert "openvino: not installed" in text


@pytest.mark.kernel
@pytest.mark.model
def test_reranking_is_measured(notebooks: Path, shown_text: Callable[[Any], str]) -> None:
    executed = run_notebook(
        notebooks / "benchmarks" / "rerank_speed.ipynb",
        {"passages": 8, "runs": 1},
        cwd=notebooks / "benchmarks",
        cell_timeout=300,
    )
    assert set(read_records(executed)) == {"prepared, times as it is"}
    assert "MatMulIntegerToFloat" in shown_text(executed)
