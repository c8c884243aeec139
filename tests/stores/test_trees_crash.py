"""A process that dies while it writes documents and trees leaves no summary of a lost text."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from nbrag.stores.duckdb import DuckDBDatabase, open_collection
from nbrag.types import ChunkKind, SummaryTree

from .store_processes import finish, start
from .store_samples import ids, plan, random_vectors

#: Replaces one of three documents, builds the tree anew, deletes a document: over and over.
GARDENER = """
import asyncio, sys
sys.path.insert(0, {here!r})
from store_samples import IDENTITY, random_vectors, sample
from nbrag.stores.duckdb import DuckDBDatabase, create_collection, list_collections, open_collection
from nbrag.types import Chunk, ChunkKind, TreeLink

async def main():
    database = DuckDBDatabase({path!r})
    if "docs" not in list_collections(database):
        create_collection(database, "docs", IDENTITY)
    collection = open_collection(database, "docs")
    print("ready", flush=True)
    for number in range({first}, {last}):
        texts = ["always the same", f"version {{number}}"]
        entry = sample(f"{{number % 3}}.md", texts, seed=number)
        await collection.writer().write_document(*entry, settings_hash="s")
        stored = await collection.chunks(await collection.original_ids())
        links, rows = [], []
        for place in range(len(stored)):
            some = [row for at, row in enumerate(stored.values()) if at in (place, place - 2)]
            links += [TreeLink(f"s{{place}}", row.id, 1) for row in some]
            text = " ".join(row.content for row in some)
            rows.append(Chunk(f"s{{place}}", "", text, kind=ChunkKind.BRANCH_SUMMARY))
        links += [TreeLink("root", row.id, 2) for row in rows]
        text = " ".join(row.content for row in rows)
        rows.append(Chunk("root", "", text, kind=ChunkKind.ROOT_SUMMARY))
        await collection.writer().write_tree(rows, random_vectors(len(rows), number), links)
        print(number, flush=True)
        if number % 4 == 3:
            gone = (await collection.documents())[f"{{number % 3}}.md"]
            await collection.delete_documents([gone.id])

asyncio.run(main())
"""


async def test_killed_at_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    moments = random.Random(11)
    last, seen = -1, 0
    for _ in range(4):
        process = start(GARDENER, path=str(path), first=last + 1, last=100_000)
        assert process.stdout is not None
        for _ in range(moments.randrange(2, 7)):
            last = int(process.stdout.readline())
        await asyncio.sleep(moments.random() * 0.05)
        said = [int(line) for line in finish(process, kill=True).split() if line.isdigit()]
        last = max([last, *said])
        with DuckDBDatabase(path) as database:
            collection = open_collection(database, "docs")
            tree = SummaryTree(await collection.tree())
            originals = set(await collection.original_ids())
            summaries = await collection.summary_ids()
            rows = await collection.chunks([*originals, *summaries])
            assert set(tree.passages) <= originals
            assert set(summaries) <= set(tree.summaries)
            for name in summaries:
                # What a summary says is what stands beneath it now, word for word.
                beneath = [rows[passage].content for passage in tree.passages_beneath(name)]
                for word in rows[name].content.split():
                    assert word in " ".join(beneath)
                seen += 1
            kinds = [ChunkKind.BRANCH_SUMMARY, ChunkKind.ROOT_SUMMARY]
            found = await collection.search(
                plan("version same", random_vectors(1, 1)[0], k=99, kinds=kinds)
            )
            assert set(ids(found, "vector")) == set(ids(found, "keyword")) == set(summaries)
    assert seen
