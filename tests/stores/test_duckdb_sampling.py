"""A fixed random sample of source passages, and which fields have few values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nbrag
from nbrag.stores.duckdb.sampling import few_valued, sample_rows
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace

COUNT = 300


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as made:
        rows: list[dict[str, Any]] = [
            {"id": f"{n}.md", "text": f"text number {n}", "number": n, "shelf": "abc"[n % 3]}
            for n in range(COUNT)
        ]
        rows[0]["author"] = "me"
        made.ingest("docs", rows)
        yield made


def drawn(workspace: Workspace, most: int) -> Any:
    collection: Any = workspace["docs"]
    return workspace.database.run_sync(
        lambda cursor: sample_rows(cursor, collection.name, most, 64, ["id", "number"])
    )


def test_a_sample_is_fixed_spread_and_has_the_rows_own_vectors(workspace: Workspace) -> None:
    sample = drawn(workspace, 60)
    assert sample.total == COUNT
    assert sample.columns == drawn(workspace, 60).columns
    assert len(set(sample.columns["id"])) == 60
    # Not the first ones, and not a stretch.
    assert 0.3 < np.mean(sample.columns["number"]) / COUNT < 0.7
    stored = nbrag.run(workspace["docs"].vectors(sample.columns["id"]))
    for chunk, vector in zip(sample.columns["id"], sample.vectors, strict=True):
        assert (stored[chunk] == vector).all()


def test_a_small_sample_is_part_of_a_larger_one(workspace: Workspace) -> None:
    small, large = drawn(workspace, 20), drawn(workspace, 40)
    assert set(small.columns["id"]) < set(large.columns["id"])
    assert len(drawn(workspace, 10_000).columns["id"]) == COUNT


def test_an_empty_collection_has_an_empty_sample(workspace: Workspace) -> None:
    collection: Any = workspace.collection("empty")
    sample = workspace.database.run_sync(
        lambda cursor: sample_rows(cursor, collection.name, 5, 64, ["id"])
    )
    assert (sample.total, sample.columns, sample.vectors.shape) == (0, {"id": []}, (0, 64))


def test_fields_with_few_values_and_how_many_chunks_have_one(workspace: Workspace) -> None:
    collection: Any = workspace["docs"]
    fields = ["author", "shelf", "number", "page"]
    found = workspace.database.run_sync(lambda c: few_valued(c, collection.name, fields, 30))
    assert found == {"author": pytest.approx(1 / COUNT), "shelf": 1.0}
    assert workspace.database.run_sync(lambda c: few_valued(c, collection.name, [], 30)) == {}
