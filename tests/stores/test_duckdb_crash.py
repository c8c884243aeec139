"""Nothing that was committed is lost when a process dies, and no index lies afterwards."""

from __future__ import annotations

import os
import random
from pathlib import Path

import duckdb
import numpy as np
import pytest

from nbrag.stores.duckdb import DuckDBDatabase, open_collection

from .store_processes import WRITER, finish, start
from .store_samples import brute_force, ids, plan, random_vectors, sample

#: Kills of one run; NBRAG_CRASHES raises it for a longer trial.
ROUNDS = int(os.environ.get("NBRAG_CRASHES", "5"))


async def check(path: Path, committed: int, *, index: str) -> int:
    """Return the number of the last write found; all up to ``committed`` must be there."""
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs", index=index)
        documents = await collection.documents()
        rows = database.execute("SELECT source, number, count(*) FROM docs.chunks GROUP BY ALL")
        versions = {source: number for source, number, count in rows if count == 5}
        assert len(rows) == len(versions) == len(documents)
        last = max(versions.values(), default=-1)
        assert last in {committed, committed + 1}
        for number in range(last + 1):
            newest = min(number | 1, last)
            assert versions[f"{number // 2}.md"] == newest
        stored: dict[str, np.ndarray] = {}
        for number in versions.values():
            texts = [f"word{number} part{part} shared" for part in range(5)]
            _, chunks, vectors = sample(f"{number // 2}.md", texts, seed=number)
            stored.update({c.id: v for c, v in zip(chunks, vectors, strict=True)})
        query = random_vectors(1, committed + 7)[0]
        found = await collection.search(plan("shared", query, k=5000))
        assert ids(found, "vector") == brute_force(stored, query, 5000)
        assert set(ids(found, "keyword")) == stored.keys()
        top = await collection.search(plan(f"word{last}", query, k=10))
        assert len(ids(top, "keyword")) == (5 if last >= 0 else 0)
        assert ids(top, "vector") == brute_force(stored, query, 10)
        return last


async def test_killed_at_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    moments = random.Random(20)
    last = -1
    for round_number in range(ROUNDS):
        writer = start(WRITER, path=str(path), first=last + 1, last=100_000)
        assert writer.stdout is not None
        for _ in range(moments.randrange(1, 25)):
            line = writer.stdout.readline()
            assert line.strip().isdigit(), line + writer.stdout.read()
            last = int(line)
        # A moment somewhere within the next writes.
        with pytest.raises(TimeoutError):
            await _wait(moments.random() * 0.03)
        said = [int(number) for number in finish(writer, kill=True).split() if number.isdigit()]
        last = max([last, *said])
        if round_number % 2:
            # A DuckDB without vss opens the file, looks at it and writes it back.
            with duckdb.connect(str(path)) as plain:
                plain.execute("SELECT count(*) FROM docs.chunks")
                plain.execute("CHECKPOINT")
        last = await check(path, last, index=("exact", "hnsw", "auto")[round_number % 3])
    assert last > ROUNDS


async def _wait(seconds: float) -> None:
    import asyncio

    async with asyncio.timeout(seconds):
        await asyncio.sleep(60)


async def test_damaged_indices_are_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    finish(start(WRITER, path=str(path), first=0, last=40))
    for index in ("exact", "hnsw"):
        assert await check(path, 39, index=index) == 39
    folder = path.parent / f"{path.name}.index"
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["docs-hnsw.duckdb", "docs-keyword", "docs-keyword.json"]
    for name in names:
        whole = (folder / name).read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-100] + bytes(100), b"junk" * 999):
            (folder / name).write_bytes(damaged)
            for index in ("exact", "hnsw"):
                assert await check(path, 39, index=index) == 39


async def test_an_index_of_another_state_of_the_file_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    finish(start(WRITER, path=str(path), first=0, last=10))
    backup = path.read_bytes()
    folder = path.parent / f"{path.name}.index"
    finish(start(WRITER, path=str(path), first=10, last=20))
    for index in ("exact", "hnsw"):
        await check(path, 19, index=index)
    kept = {file.name: file.read_bytes() for file in folder.iterdir()}
    # The old file comes back, and goes on to the same generation with other contents.
    path.write_bytes(backup)
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        for number in range(10):
            entry = sample(f"other{number}.md", ["different"] * 5, seed=900 + number)
            await collection.writer().write_document(*entry, settings_hash="s")
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    for index in ("exact", "hnsw"):
        with DuckDBDatabase(path) as database:
            collection = open_collection(database, "docs", index=index)
            vector = sample("other3.md", ["different"] * 5, seed=903)[2][2]
            found = await collection.search(plan("different", vector, k=100))
            assert len(ids(found, "keyword")) == 50
            nearest = (await collection.chunks(ids(found, "vector")[:1])).popitem()[1]
            assert nearest.source == "other3.md"
            assert len(ids(found, "vector")) == 75


async def test_a_graph_that_lost_its_index_is_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    finish(start(WRITER, path=str(path), first=0, last=40))
    await check(path, 39, index="hnsw")
    graph = path.parent / f"{path.name}.index" / "docs-hnsw.duckdb"
    with duckdb.connect(str(graph)) as plain:
        plain.execute("CREATE TABLE copy AS SELECT * FROM vectors")
        plain.execute("DROP TABLE vectors")
        plain.execute("ALTER TABLE copy RENAME TO vectors")
    await check(path, 39, index="hnsw")
    with duckdb.connect(str(graph)) as plain:
        # Without vss the index can't be looked into, which is the doubt that counts here.
        plain.execute("CHECKPOINT")
    await check(path, 39, index="hnsw")
