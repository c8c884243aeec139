"""A collection that is searched through HNSW gives what an exact search gives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from nbrag.stores.duckdb import (
    DuckDBCollection,
    DuckDBDatabase,
    create_collection,
    open_collection,
)

from .store_samples import DIMENSION, IDENTITY, brute_force, plan, random_vectors, sample

DOCUMENTS, PARTS = 250, 10


def entries(first: int = 0, last: int = DOCUMENTS) -> list:
    return [
        sample(
            f"{number}.md",
            [f"word{number} part{part}" for part in range(PARTS)],
            seed=number,
            metadata={"number": number},
        )
        for number in range(first, last)
    ]


def vectors_of(some: list) -> dict[str, np.ndarray]:
    return {c.id: v for _, chunks, vs in some for c, v in zip(chunks, vs, strict=True)}


async def top(collection: DuckDBCollection, query: np.ndarray, **more) -> tuple[list[str], str]:
    [found] = await collection.search(plan(vector=query, **more))
    return [item.chunk_id for item in found.items], found.explanation


@pytest.mark.parametrize("index", ["exact", "hnsw", "auto"])
@pytest.mark.parametrize("memory_budget", [2**30, 1])
async def test_a_rare_filter_far_from_the_query(index: str, memory_budget: int) -> None:
    with DuckDBDatabase() as database:
        create_collection(database, "docs", IDENTITY)
        collection = open_collection(database, "docs", index=index, memory_budget=memory_budget)
        all_entries = entries()
        await collection.writer().write_documents(all_entries, settings_hash="s")
        rare = vectors_of([all_entries[40], all_entries[201]])
        query = -sum(rare.values())
        found, explanation = await top(collection, query, where="number in [40, 201]")
        assert found == brute_force(rare, query, 10)
        assert explanation.startswith("exact over 20 rows")
        everything = vectors_of(all_entries)
        found, explanation = await top(collection, query)
        expected = brute_force(everything, query, 10)
        assert len(found) == 10
        assert len(set(found) & set(expected)) >= 8
        many, _ = await top(collection, query, where="number < 200", k=50)
        assert many == brute_force(vectors_of(all_entries[:200]), query, 50)
        if index == "hnsw":
            assert explanation.startswith("hnsw ef=")
            assert "sampled queries" in explanation
        else:
            assert explanation.startswith("exact over 2,500 rows")
            assert found == expected


async def test_auto_builds_the_graph_beside_the_searches(tmp_path: Path) -> None:
    with DuckDBDatabase(tmp_path / "store.duckdb") as database:
        create_collection(database, "docs", IDENTITY)
        budget = 100 * DIMENSION * 4
        collection = open_collection(database, "docs", memory_budget=budget)
        few = entries(0, 10)
        await collection.writer().write_documents(few, settings_hash="s")
        query = random_vectors(1, 5)[0]
        assert await top(collection, query) == (
            brute_force(vectors_of(few), query, 10), "exact over 100 rows",
        )  # fmt: skip
        more = entries(10, 60)
        await collection.writer().write_documents(more, settings_hash="s")
        expected = brute_force(vectors_of(few + more), query, 10)
        found, explanation = await top(collection, query)
        assert (found, explanation) == (
            expected, "exact over 600 rows, an hnsw index is being built",
        )  # fmt: skip
        for _ in range(200):
            found, explanation = await top(collection, query)
            assert len(set(found) & set(expected)) >= 8
            if explanation.startswith("hnsw"):
                break
            await asyncio.sleep(0.05)
        assert explanation.startswith("hnsw ef=")


async def test_newer_rows_and_deleted_rows(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    some = entries(0, 100)
    with DuckDBDatabase(path) as database:
        create_collection(database, "docs", IDENTITY, index="hnsw")
        collection = open_collection(database, "docs")
        await collection.writer().write_documents(some, settings_hash="s")
        await top(collection, random_vectors(1, 1)[0])
        fresh = entries(100, 103)
        await collection.writer().write_documents(fresh, settings_hash="s")
        near = fresh[1][2][4]
        found, explanation = await top(collection, near, k=1)
        assert found == [fresh[1][1][4].id]
        assert explanation.endswith("exact over 30 newer rows")
        gone = [entry[0].id for entry in some[:60]]
        assert await collection.delete_documents(gone) == 60
        left = vectors_of(some[60:] + fresh)
        for seed in range(5):
            query = random_vectors(1, 10 + seed)[0]
            found, explanation = await top(collection, query, k=30)
            expected = brute_force(left, query, 30)
            assert len(found) == 30
            assert len(set(found) & set(expected)) >= 27
        assert explanation.startswith("hnsw")
    # The graph of the older state is taken again, for the rows that it is right about.
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        found, explanation = await top(collection, near, k=1)
        assert found == [fresh[1][1][4].id]
        assert explanation.endswith("exact over 30 newer rows")
        everything, _ = await top(collection, near, k=5000)
        assert set(everything) == left.keys()


async def test_a_worn_graph_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbrag.stores.duckdb import approximate

    monkeypatch.setattr(approximate, "_WORN_ROWS", 50)
    with DuckDBDatabase(tmp_path / "store.duckdb") as database:
        create_collection(database, "docs", IDENTITY, index="hnsw")
        collection = open_collection(database, "docs")
        await collection.writer().write_documents(entries(0, 20), settings_hash="s")
        query = random_vectors(1, 1)[0]
        await top(collection, query)
        await collection.writer().write_documents(entries(20, 40), settings_hash="s")
        expected = brute_force(vectors_of(entries(0, 40)), query, 10)
        for _ in range(200):
            found, explanation = await top(collection, query)
            assert len(set(found) & set(expected)) >= 8
            if "newer" not in explanation:
                break
            await asyncio.sleep(0.05)
        assert "newer" not in explanation


async def test_without_vss(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbrag.errors import MissingDependency
    from nbrag.stores import hnsw

    def missing(connection: object) -> None:
        raise MissingDependency("The HNSW index", "duckdb-extension-vss")

    monkeypatch.setattr("nbrag.stores.extension.load_vss", missing)
    assert hnsw.__name__
    some = entries(0, 20)
    with DuckDBDatabase() as database:
        create_collection(database, "docs", IDENTITY)
        await open_collection(database, "docs").writer().write_documents(some, settings_hash="s")
        query = random_vectors(1, 1)[0]
        asked = open_collection(database, "docs", index="hnsw")
        with pytest.raises(MissingDependency, match="duckdb-extension-vss"):
            await top(asked, query)
        found, _ = await top(asked, query, where="number < 100")
        assert found == brute_force(vectors_of(some), query, 10)
        large = open_collection(database, "docs", memory_budget=1)
        for _ in range(50):
            found, explanation = await top(large, query)
            assert found == brute_force(vectors_of(some), query, 10)
            if "duckdb-extension-vss" in explanation:
                break
            await asyncio.sleep(0.02)
        assert explanation.startswith("exact over 200 rows, The HNSW index needs")


async def test_a_matrix_that_was_too_large_is_held_again_when_it_fits() -> None:
    with DuckDBDatabase() as database:
        create_collection(database, "docs", IDENTITY)
        collection = open_collection(database, "docs", memory_budget=15 * DIMENSION * 4)
        two = entries(0, 2)
        await collection.writer().write_documents(two, settings_hash="s")
        await collection.delete_documents([two[0][0].id])
        query = random_vectors(1, 5)[0]
        expected = brute_force(vectors_of(two[1:]), query, 10)
        assert await top(collection, query) == (expected, "exact over 10 rows")
