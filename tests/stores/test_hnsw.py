"""The HNSW graph by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from nbrag.stores.hnsw import HnswIndex, HnswReport

from .store_samples import random_vectors

COUNT = 2000
VECTORS = random_vectors(COUNT, 1)


def batches(vectors: np.ndarray = VECTORS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(vectors), 512):
        part = vectors[start : start + 512]
        yield np.arange(start, start + len(part)) * 2, part


@pytest.fixture(scope="module")
def graph() -> Iterator[HnswIndex]:
    index = HnswIndex.build(batches(VECTORS * 3), VECTORS.shape[1], label={})
    yield index
    index.close()


def test_recall_is_measured_and_reached(graph: HnswIndex) -> None:
    assert graph.report.recall >= 0.95
    assert graph.report.sampled == 50
    assert str(graph.report) == (
        f"hnsw ef={graph.report.ef}, recall {graph.report.recall:.2f} on 50 sampled queries"
    )
    queries = random_vectors(40, 2)
    hits = 0
    for query, (rows, scores) in zip(queries, graph.search(queries, 10), strict=True):
        truth = np.argsort(-(VECTORS @ query))[:10]
        hits += len(set(rows.tolist()) & set((2 * truth).tolist()))
        np.testing.assert_allclose(scores, VECTORS[rows // 2] @ query, atol=1e-4)
        assert (np.diff(scores) <= 0).all()
    assert hits >= 0.9 * 400


def test_the_search_uses_the_graph(graph: HnswIndex) -> None:
    assert "HNSW_INDEX_SCAN" in graph.plan(VECTORS[0], 10)
    assert "HNSW_INDEX_SCAN" in graph.plan(VECTORS[0], 500)


def test_as_many_rows_as_asked_for(graph: HnswIndex) -> None:
    for k in (0, 1, 300, COUNT, COUNT + 50):
        [(rows, _)] = graph.search(VECTORS[:1], k)
        assert len(set(rows.tolist())) == len(rows) == min(k, COUNT)


def test_a_low_target_needs_a_narrow_search() -> None:
    wide = random_vectors(1500, 3, 128)
    easy = HnswIndex.build(batches(wide), 128, label={}, recall=0.1)
    hard = HnswIndex.build(batches(wide), 128, label={}, recall=0.999)
    assert easy.report.ef < hard.report.ef
    assert easy.report.recall <= hard.report.recall
    assert "asked for" not in str(easy.report)
    easy.close()
    hard.close()


def test_a_recall_that_is_not_reached_is_told() -> None:
    report = HnswReport(size=9, last_row=8, ef=1600, recall=0.93, sampled=50, target=0.95)
    assert str(report) == "hnsw ef=1600, recall 0.93 on 50 sampled queries (0.95 was asked for)"


def test_an_empty_graph() -> None:
    index = HnswIndex.build(iter(()), 4, label={}, last_row=17)
    assert index.report.last_row == 17
    assert index.search(np.ones((1, 4), np.float32), 3)[0][0].tolist() == []
    index.close()


def test_a_file_is_opened_when_its_label_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "graph's.duckdb"
    built = HnswIndex.build(batches(VECTORS[:300]), VECTORS.shape[1], label={"x": 1}, path=path)
    expected = built.search(VECTORS[:1], 5)[0][0].tolist()
    built.close()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    opened = HnswIndex.open(path, VECTORS.shape[1], believe=lambda label: label == {"x": 1})
    assert opened is not None
    assert opened.search(VECTORS[:1], 5)[0][0].tolist() == expected
    again = HnswIndex.open(path, VECTORS.shape[1], believe=lambda label: True)
    assert again is not None
    again.close()
    opened.close()
    assert HnswIndex.open(path, VECTORS.shape[1], believe=lambda label: False) is None
    missing = tmp_path / "missing.duckdb"
    assert HnswIndex.open(missing, VECTORS.shape[1], believe=lambda label: True) is None


def test_broken_off_work_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.duckdb"

    def endless() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from batches(VECTORS[:300])
        raise duckdb.InterruptException("enough")

    with pytest.raises(duckdb.InterruptException):
        HnswIndex.build(endless(), VECTORS.shape[1], label={}, path=path)
    assert list(tmp_path.iterdir()) == []
