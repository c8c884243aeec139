"""The DuckDB file: opening, sharing, locking, interrupting, failing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest

from nbrag.errors import (
    CollectionNotFound,
    ConfigurationError,
    DatabaseFull,
    DatabaseLocked,
    DatabaseReadOnly,
    EmbedderMismatch,
    NewerFormat,
    StoreError,
)
from nbrag.stores.duckdb import (
    DuckDBDatabase,
    create_collection,
    drop_collection,
    list_collections,
    open_collection,
)
from nbrag.stores.duckdb.failures import storage_failure
from nbrag.stores.duckdb.identifiers import quote
from nbrag.types import EmbedderIdentity

from .store_processes import HOLDER, finish, start
from .store_samples import IDENTITY, ids, plan, random_vectors, sample


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "it's a store.duckdb"


async def filled(path: Path, count: int = 4) -> None:
    with DuckDBDatabase(path) as database:
        collection = create_collection(database, "docs", IDENTITY)
        entries = [sample(f"{n}.md", [f"word{n}", "shared"], seed=n) for n in range(count)]
        await collection.writer().write_documents(entries, settings_hash="s")


async def test_what_is_written_is_there_after_reopening(path: Path) -> None:
    await filled(path)
    with DuckDBDatabase(path) as database:
        assert list_collections(database) == ["docs"]
        collection = open_collection(database, "docs", identity=IDENTITY)
        assert await collection.count() == (4, 8)
        found = await collection.search(plan("word2", sample("2.md", ["x"], seed=2)[2][0]))
        assert ids(found, "keyword") == ids(found, "vector")[:1]


async def test_reading_only_searches_every_leg_and_refuses_writes(path: Path) -> None:
    await filled(path)
    before = await asyncio.to_thread(path.read_bytes)
    with DuckDBDatabase(path, read_only=True) as database:
        collection = open_collection(database, "docs")
        where = "page == 1"
        found = await collection.search(plan("word2", random_vectors(1, 1)[0], where=where))
        assert len(ids(found, "vector")) == 4
        assert len(ids(found, "keyword")) == 1
        hnsw = open_collection(database, "docs", index="hnsw")
        [ranked] = await hnsw.search(plan(vector=random_vectors(1, 1)[0]))
        assert ranked.explanation.startswith("hnsw ef=")
        assert len(ranked.items) == 8
        with pytest.raises(DatabaseReadOnly):
            collection.writer()
        with pytest.raises(DatabaseReadOnly):
            await collection.delete_documents(["x"])
        with pytest.raises(DatabaseReadOnly):
            create_collection(database, "more", IDENTITY)
        with pytest.raises(DatabaseReadOnly):
            drop_collection(database, "docs")
        with pytest.raises(DatabaseReadOnly):
            database.execute("DELETE FROM docs.chunks")
    assert await asyncio.to_thread(path.read_bytes) == before


async def test_the_keyword_index_is_read_from_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(path)
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        await collection.delete_documents([sample("0.md", [], seed=0)[0].id])
        await collection.flush()

    def refuse(*arguments: object) -> None:
        raise AssertionError("the texts are indexed again")

    monkeypatch.setattr("nbrag.stores.keyword.KeywordIndex.add", refuse)
    for read_only in (False, True):
        with DuckDBDatabase(path, read_only=read_only) as database:
            collection = open_collection(database, "docs")
            found = await collection.search(plan("shared", random_vectors(1, 1)[0]))
            assert (len(ids(found, "keyword")), len(ids(found, "vector"))) == (3, 6)


async def test_reading_only_needs_no_writable_folder(path: Path) -> None:
    await filled(path)
    index = path.parent / f"{path.name}.index"
    for left in index.iterdir():
        left.unlink()
    index.rmdir()
    # A file where the folder of indices would be: it can't be written to, even as root.
    index.write_text("in the way")
    with DuckDBDatabase(path, read_only=True) as database:
        for mode in ("exact", "hnsw"):
            collection = open_collection(database, "docs", index=mode)
            found = await collection.search(plan("word2", random_vectors(1, 1)[0]))
            assert len(ids(found, "vector")) == 8
            assert len(ids(found, "keyword")) == 1
    assert index.read_text() == "in the way"


async def test_two_openers_in_one_process_see_each_other(path: Path) -> None:
    with DuckDBDatabase(path) as one, DuckDBDatabase(str(path)) as other:
        first = create_collection(one, "docs", IDENTITY)
        second = open_collection(other, "docs")
        await second.search(plan("word", random_vectors(1, 1)[0]))
        document, chunks, vectors = sample("a.md", ["word here"], seed=1)
        await first.writer().write_document(document, chunks, vectors, settings_hash="s")
        found = await second.search(plan("word", vectors[0]))
        assert ids(found, "keyword") == ids(found, "vector") == [chunks[0].id]
        plain = duckdb.connect(str(path))
        assert plain.execute("SELECT count(*) FROM docs.chunks").fetchone() == (1,)
        plain.close()
        one.close()
        assert await second.count() == (1, 1)
        with pytest.raises(StoreError, match="closed"):
            await first.count()
    # Both are closed now, so another process gets the file.
    finish(start(HOLDER, path=str(path), read_only=False))


async def test_rows_that_a_person_deletes_are_not_found(path: Path) -> None:
    await filled(path)
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        query = plan("shared", random_vectors(1, 1)[0])
        assert len(ids(await collection.search(query), "keyword")) == 4
        database.execute("DELETE FROM docs.chunks WHERE source = '1.md'")
        found = await collection.search(query)
        assert (len(ids(found, "keyword")), len(ids(found, "vector"))) == (3, 6)


def test_another_process_that_holds_the_file_is_named(path: Path) -> None:
    holder = start(HOLDER, path=str(path), read_only=False)
    try:
        with pytest.raises(DatabaseLocked, match=f"process {holder.pid}") as caught:
            DuckDBDatabase(path)
        assert caught.value.process == holder.pid
        with pytest.raises(DatabaseLocked):
            DuckDBDatabase(path, read_only=True)
    finally:
        finish(holder)
    DuckDBDatabase(path).close()


async def test_readers_in_several_processes_share_the_file(path: Path) -> None:
    await filled(path)
    holder = start(HOLDER, path=str(path), read_only=True)
    try:
        with DuckDBDatabase(path, read_only=True) as database:
            assert await open_collection(database, "docs").count() == (4, 8)
        with pytest.raises(DatabaseLocked, match=f"process {holder.pid}"):
            DuckDBDatabase(path)
    finally:
        finish(holder)


async def test_writing_after_reading_only_in_one_process(path: Path) -> None:
    await filled(path)
    with (
        DuckDBDatabase(path, read_only=True),
        pytest.raises(StoreError, match="already open for reading only"),
    ):
        DuckDBDatabase(path)
    with DuckDBDatabase(path), DuckDBDatabase(path, read_only=True) as reader:
        assert await open_collection(reader, "docs").count() == (4, 8)
        with pytest.raises(DatabaseReadOnly):
            open_collection(reader, "docs").writer()


async def test_newer_format_is_refused(path: Path) -> None:
    await filled(path)
    with duckdb.connect(str(path)) as plain:
        plain.execute("UPDATE nbrag.meta SET value = '99' WHERE key = 'format_version'")
    for read_only in (False, True):
        with pytest.raises(NewerFormat, match="format 99") as caught:
            DuckDBDatabase(path, read_only=read_only)
        assert "upgrade" in caught.value.hint
    with duckdb.connect(str(path)) as plain:
        assert plain.execute("SELECT count(*) FROM docs.chunks").fetchone() == (8,)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, " * 1000)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="not a DuckDB database"):
            DuckDBDatabase(text, read_only=read_only)
    assert text.read_text().startswith("not a database")
    with pytest.raises(StoreError, match="is a folder"):
        DuckDBDatabase(tmp_path)
    with pytest.raises(StoreError, match="no folder"):
        DuckDBDatabase(tmp_path / "nowhere" / "x.duckdb")
    with pytest.raises(StoreError, match="no database"):
        DuckDBDatabase(tmp_path / "missing.duckdb", read_only=True)
    assert not (tmp_path / "missing.duckdb").exists()
    with duckdb.connect(str(tmp_path / "own.duckdb")) as plain:
        plain.execute("CREATE SCHEMA docs; CREATE TABLE docs.mine AS SELECT 1 AS x")
    with pytest.raises(StoreError, match="no nbrag collections"):
        DuckDBDatabase(tmp_path / "own.duckdb", read_only=True)


def test_a_persons_own_tables_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.duckdb"
    with duckdb.connect(str(path)) as plain:
        plain.execute("CREATE SCHEMA docs; CREATE TABLE docs.mine AS SELECT 1 AS x")
    with DuckDBDatabase(path) as database:
        with pytest.raises(StoreError, match="schema 'docs'"):
            create_collection(database, "docs", IDENTITY)
        create_collection(database, "more", IDENTITY)
        database.execute("CREATE TABLE more.notes AS SELECT 2 AS x")
        drop_collection(database, "more")
        assert database.execute("SELECT x FROM docs.mine, (SELECT x AS y FROM more.notes)") == [
            (1,)
        ]
        assert list_collections(database) == []


@pytest.mark.parametrize(
    "name", ["", "1st", "a b", "a;b", 'a"b', "main", "nbrag", "TEMP", "x" * 64, "naïve", "a.b"]
)
def test_names_that_collections_can_not_have(name: str) -> None:
    with DuckDBDatabase() as database, pytest.raises(ConfigurationError):
        create_collection(database, name, IDENTITY)


async def test_collections_live_side_by_side() -> None:
    with DuckDBDatabase() as database:
        names = ["select", "Order-2", "group_by", "docs"]
        for number, name in enumerate(names):
            collection = create_collection(database, name, IDENTITY)
            entry = sample("a.md", [f"only{number}"], seed=number)
            await collection.writer().write_document(*entry, settings_hash="s")
        assert list_collections(database) == sorted(names)
        for number, name in enumerate(names):
            collection = open_collection(database, name)
            found = await collection.search(plan(f"only{number} only0"))
            assert len(ids(found, "keyword")) == 1
        with pytest.raises(StoreError, match="already"):
            create_collection(database, "DOCS", IDENTITY)
        with pytest.raises(CollectionNotFound, match="did you mean 'docs'"):
            open_collection(database, "dogs")
        with pytest.raises(ConfigurationError, match="no index 'fast'"):
            open_collection(database, "docs", index="fast")


async def test_a_dropped_collection_is_gone(path: Path) -> None:
    await filled(path)
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        await collection.search(plan("word1"))
        drop_collection(database, "docs")
        with pytest.raises(StoreError):
            await collection.count()
        with pytest.raises((StoreError, CollectionNotFound)):
            await collection.search(plan("word1"))
        fresh = create_collection(database, "docs", IDENTITY)
        assert ids(await fresh.search(plan("word1")), "keyword") == []
        assert await fresh.fields() == await create_collection(database, "new", IDENTITY).fields()


def test_another_embedder_is_refused() -> None:
    with DuckDBDatabase() as database:
        create_collection(database, "docs", IDENTITY)
        other = EmbedderIdentity("other", "1", 16, query_prefix="query: ")
        with pytest.raises(EmbedderMismatch) as caught:
            open_collection(database, "docs", identity=other)
        for part in ("sample", "other", "query_prefix '' there, 'query: ' here"):
            assert part in caught.value.message


async def test_cancelling_interrupts_and_rolls_back(path: Path) -> None:
    await filled(path)
    with DuckDBDatabase(path) as database:
        begun = threading.Event()

        def work(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute("DELETE FROM docs.chunks")
            begun.set()
            cursor.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")

        task = asyncio.create_task(database.run(work, write=True))
        await asyncio.to_thread(begun.wait, 10)
        await asyncio.sleep(0.1)
        before = time.perf_counter()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.perf_counter() - before < 5
        collection = open_collection(database, "docs")
        assert await collection.count() == (4, 8)
        await collection.delete_documents([sample("1.md", [], seed=1)[0].id])
        assert await collection.count() == (3, 6)


async def test_failing_work_is_rolled_back() -> None:
    with DuckDBDatabase() as database:
        create_collection(database, "docs", IDENTITY)

        def work(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute("CREATE TABLE docs.extra AS SELECT 1")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            database.run_sync(work, write=True)
        with pytest.raises(StoreError, match="extra"):
            database.execute("SELECT * FROM docs.extra")
        with pytest.raises(StoreError, match="syntax"):
            database.execute("SELEC 1")


def test_control_c_interrupts_and_rolls_back() -> None:
    with DuckDBDatabase() as database:
        create_collection(database, "docs", IDENTITY)

        def work(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute("CREATE TABLE docs.extra AS SELECT 1")
            press.start()
            cursor.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")

        press = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
        before = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            database.run_sync(work, write=True)
        assert time.perf_counter() - before < 10
        with pytest.raises(StoreError, match="extra"):
            database.execute("SELECT * FROM docs.extra")


def test_relations_for_a_persons_own_sql() -> None:
    with DuckDBDatabase() as database:
        relation = database.relation("SELECT ? + 1 AS x", [41])
        assert relation.fetchall() == [(42,)]
        assert database.relation("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(StoreError, match="closed"):
        database.relation("SELECT 1")
    database.close()


@pytest.mark.parametrize("name", ["x", 'a"b', "a;b --", "ü", " "])
def test_quoted_names_stay_one_name(name: str) -> None:
    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE {quote(name)} AS SELECT 1 AS {quote(name)}")
        assert plain.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [(name,)]
    with pytest.raises(ConfigurationError):
        quote("a\0b")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('IO Error: Could not write file "x": No space left on device', DatabaseFull),
        ("[Errno 28] No space left on device", DatabaseFull),
        ("IO Error: Cannot open file: Permission denied", StoreError),
        ("IO Error: Could not set lock on file: Conflicting lock is held (PID 7)", DatabaseLocked),
        ("Cannot execute in read-only mode!", DatabaseReadOnly),
        ("read a database file with version number 99, but we can only read 67", NewerFormat),
    ],
)
def test_failures_are_told_apart(text: str, kind: type[StoreError]) -> None:
    failure = storage_failure("x.duckdb", duckdb.IOException(text))
    assert type(failure) is kind
    assert failure.hint


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("a small file system can be made by root only")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


async def test_a_full_disk_loses_nothing_that_was_committed(small_disk: Path) -> None:
    path = small_disk / "store.duckdb"
    written: list[str] = []
    database = DuckDBDatabase(path)
    collection = create_collection(database, "docs", IDENTITY)

    async def write_on() -> None:
        for number in range(1000):
            filler = "".join(map(chr, random_vectors(60, number).ravel().view("uint8") % 90 + 33))
            uri = f"{number}.md"
            entry = sample(uri, [f"word{number} {filler * 20}", "end"], seed=number)
            await collection.writer().write_document(*entry, settings_hash="s")
            written.append(uri)

    with pytest.raises(DatabaseFull) as caught:
        await write_on()
    assert "free some space" in caught.value.hint
    assert len(written) > 3
    with contextlib.suppress(StoreError):
        database.close()
    remount(small_disk, "size=60m")
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        assert sorted(await collection.documents()) == sorted(written)
        found = await collection.search(plan("end", random_vectors(1, 0)[0], k=2000))
        assert len(ids(found, "keyword")) == len(written)
        assert len(ids(found, "vector")) == 2 * len(written)


async def test_a_read_only_disk_is_told(small_disk: Path) -> None:
    path = small_disk / "store.duckdb"
    await filled(path)
    remount(small_disk, "ro")
    with pytest.raises(StoreError, match="can't be opened for writing") as caught:
        DuckDBDatabase(path)
    assert "read_only=true" in caught.value.hint
    with DuckDBDatabase(path, read_only=True) as database:
        collection = open_collection(database, "docs")
        found = await collection.search(plan("word2", random_vectors(1, 1)[0]))
        assert len(ids(found, "keyword")) == 1


async def test_rows_are_read_after_deletes_and_checkpoints_moved_them(tmp_path: Path) -> None:
    path = tmp_path / "moved.duckdb"
    with DuckDBDatabase(path) as database:
        collection = create_collection(database, "docs", IDENTITY)
        documents = [
            sample(f"{n}.md", [f"text {n} {i}" for i in range(4)], seed=n) for n in range(900)
        ]
        await collection.writer().write_documents(documents, settings_hash="s")
        gone = [document.id for document, _, _ in documents[:700]]
        await collection.delete_documents(gone)
        database.execute("CHECKPOINT")
    with DuckDBDatabase(path) as database:
        collection = open_collection(database, "docs")
        database.execute("VACUUM")
        more = [sample(f"more{n}.md", [f"more {n}"], seed=n) for n in range(50)]
        await collection.writer().write_documents(more, settings_hash="s")
        database.execute("CHECKPOINT")
        kept = [chunk for _, chunks, _ in [*documents[700:], *more] for chunk in chunks]
        found = await collection.chunks([chunk.id for chunk in kept])
        assert {key: chunk.content for key, chunk in found.items()} == {
            chunk.id: chunk.content for chunk in kept
        }
        hints = collection.state.indices
        await collection.warm()
        ids = [chunk.id for chunk in kept[:300]]
        rows = np.array([hints.rows[list(hints._ids).index(i)] for i in ids[:20]])
        hints.note(ids[:20], rows)
        again = await collection.chunks(ids[:20])
        assert [again[i].content for i in ids[:20]] == [chunk.content for chunk in kept[:20]]
