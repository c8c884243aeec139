"""Summary trees in every store: what is written, what a lost passage takes along."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbrag.errors import DatabaseReadOnly, FilterError, StoreError
from nbrag.protocols import Collection
from nbrag.stores.duckdb import (
    DuckDBDatabase,
    create_collection,
    drop_collection,
    open_collection,
)
from nbrag.types import (
    Chunk,
    ChunkKind,
    MetadataKeys,
    QueryVariant,
    SearchPlan,
    TreeLink,
    stable_hash,
)

from .store_samples import IDENTITY, STORES, ids, opened, plan, question_row, random_vectors, sample

SUMMARIES = (ChunkKind.BRANCH_SUMMARY, ChunkKind.ROOT_SUMMARY)


@pytest.fixture(params=STORES)
async def collection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Collection]:
    with opened(request.param, tmp_path) as collection:
        yield collection


def summary(name: str, level: int, *, document_id: str = "", root: bool = False) -> Chunk:
    return Chunk(
        name,
        document_id,
        f"summary called {name}",
        kind=ChunkKind.ROOT_SUMMARY if root else ChunkKind.BRANCH_SUMMARY,
        token_count=3,
        metadata={MetadataKeys.LEVEL: level, "derived_by": "tree"},
    )


def vectors_of(rows: Sequence[Chunk]) -> np.ndarray:
    made = [random_vectors(1, int(stable_hash(row.id)[:6], 16))[0] for row in rows]
    return np.stack(made) if made else np.empty((0, IDENTITY.dimension), np.float32)


class Forest:
    """Three documents of three passages, clusters across them, one root.

    ``left`` has a0 a1 b0, ``right`` has b0 b1 c0 c1 (b0 is in both), ``own`` is of document c.
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.documents = {
            name: sample(
                f"{name}.md", [f"{name} text {n}" for n in range(3)], seed=seed,
                metadata={"product": name.upper()},
            )
            for seed, name in enumerate("abc")
        }  # fmt: skip
        self.at = {
            f"{name}{n}": chunk.id
            for name, (_, chunks, _) in self.documents.items()
            for n, chunk in enumerate(chunks)
        }
        self.summaries = [
            summary("left", 1),
            summary("right", 1),
            summary("own", 1, document_id=self.documents["c"][0].id),
            summary("root", 2, root=True),
        ]
        beneath = {
            "left": ["a0", "a1", "b0"], "right": ["b0", "b1", "c0", "c1"], "own": ["c0", "c2"]
        }  # fmt: skip
        self.links = [
            TreeLink(parent, self.at[child], 1)
            for parent, children in beneath.items()
            for child in children
        ] + [TreeLink("root", child, 2) for child in ("left", "right", "own")]

    async def plant(self) -> None:
        writer = self.collection.writer()
        await writer.write_documents(list(self.documents.values()), settings_hash="s")
        await self.write()

    async def write(self) -> None:
        await self.collection.writer().write_tree(
            self.summaries, vectors_of(self.summaries), self.links
        )

    async def rewrite(self, name: str, texts: list[str], **options: Any) -> None:
        options = {"metadata": {"product": name.upper()}, **options}
        document, chunks, vectors = sample(f"{name}.md", texts, seed=50, **options)
        await self.collection.writer().write_document(document, chunks, vectors, settings_hash="s")

    async def there(self) -> set[str]:
        """Return the summaries that are left, the same in every leg."""
        listed = set(await self.collection.summary_ids())
        found = await self.collection.search(
            plan("summary", random_vectors(1, 9)[0], k=50, kinds=SUMMARIES)
        )
        assert set(ids(found, "vector")) == set(ids(found, "keyword")) == listed
        assert set(await self.collection.chunks([s.id for s in self.summaries])) == listed
        return listed

    def links_without(self, *gone: str) -> list[TreeLink]:
        dead = {self.at.get(name, name) for name in gone}
        return [link for link in self.links if link.child not in dead and link.parent not in dead]


@pytest.fixture
async def forest(collection: Collection) -> Forest:
    planted = Forest(collection)
    await planted.plant()
    return planted


async def test_tree_is_read_as_it_was_written(forest: Forest) -> None:
    collection = forest.collection
    assert await collection.tree() == forest.links
    assert await forest.there() == {"left", "right", "own", "root"}
    assert await collection.original_ids() == list(forest.at.values())
    assert await collection.count() == (3, 13)
    documents = await collection.documents()
    # The summary of document c alone is none of its chunks.
    assert {uri: stored.chunk_count for uri, stored in documents.items()} == {
        "a.md": 3, "b.md": 3, "c.md": 3
    }  # fmt: skip
    rows = await collection.chunks(["left", "root", "own"])
    assert rows["left"].document_id == rows["left"].source == ""
    assert rows["left"].record["title"] == "Summary of 3 passages (level 1)"
    assert rows["root"].record["title"] == "Summary of 7 passages (level 2)"
    assert rows["root"].record["kind"] == "root_summary"
    assert rows["root"].record["level"] == 2
    assert rows["own"].source == "c.md"
    assert rows["own"].record["product"] == "C"
    assert await collection.neighbours("left", 1, 1) == []
    stored = await collection.vectors(["root"])
    np.testing.assert_allclose(stored["root"], vectors_of([forest.summaries[3]])[0], rtol=1e-6)


async def test_collection_without_a_tree(collection: Collection) -> None:
    assert await collection.tree() == []
    assert await collection.summary_ids() == []
    await collection.writer().write_tree([], vectors_of([]), [])
    assert await collection.count() == (0, 0)


async def test_ids_pass_a_filter(forest: Forest) -> None:
    collection = forest.collection
    where = 'product in ["B", "C"] and ordinal < 1'
    assert await collection.original_ids(where=where) == [forest.at["b0"], forest.at["c0"]]
    assert await collection.summary_ids(where='product == "C"') == ["own"]
    assert set(await collection.summary_ids(where="level >= 2")) == {"root"}
    with pytest.raises(FilterError):
        await collection.original_ids(where="prodct == 1")
    with pytest.raises(FilterError):
        await collection.summary_ids(where="prodct == 1")
    # What several documents share is no value of a field.
    assert await collection.field_values("source") == ["c.md", "a.md", "b.md"]
    assert await collection.field_values("product") == ["C", "A", "B"]


async def test_search_finds_summaries_only_where_they_are_asked_for(forest: Forest) -> None:
    vector = random_vectors(1, 3)[0]
    for kinds in ((), (ChunkKind.ORIGINAL,), (ChunkKind.ORIGINAL, ChunkKind.HYPOTHETICAL_QUERY)):
        found = await forest.collection.search(plan("summary text", vector, k=50, kinds=kinds))
        assert set(ids(found, "vector")) == set(ids(found, "keyword")) == set(forest.at.values())
    everything = (ChunkKind.ORIGINAL, *SUMMARIES)
    found = await forest.collection.search(plan("summary text", vector, k=50, kinds=everything))
    assert len(ids(found, "vector")) == len(ids(found, "keyword")) == 13


async def test_deleted_passage_takes_every_summary_above_it(forest: Forest) -> None:
    document = forest.documents["a"][0]
    assert await forest.collection.delete_documents([document.id, ""]) == 1
    # right and own had nothing of it, though they stand beneath the root that went.
    assert await forest.there() == {"right", "own"}
    assert await forest.collection.tree() == forest.links_without("a0", "a1")
    left = await forest.collection.search(plan("text", k=50))
    assert len(ids(left, "keyword")) == 6


async def test_deleted_documents_own_summary_leaves_no_link(forest: Forest) -> None:
    await forest.collection.delete_documents([forest.documents["c"][0].id])
    assert await forest.there() == {"left"}
    assert await forest.collection.tree() == forest.links_without("c0", "c1", "c2", "own")


async def test_everything_goes_with_the_last_document(forest: Forest) -> None:
    gone = [document.id for document, _, _ in forest.documents.values()]
    await forest.collection.delete_documents(gone)
    assert await forest.collection.count() == (0, 0)
    assert await forest.collection.tree() == []
    assert await forest.there() == set()


async def test_replaced_passage_takes_only_what_stands_above_it(forest: Forest) -> None:
    await forest.rewrite("a", ["a text 0", "a text 1", "changed"])
    # a2 hung on nothing: the other passages came back as they were.
    assert await forest.there() == {"left", "right", "own", "root"}
    assert await forest.collection.tree() == forest.links
    await forest.rewrite("b", ["b text 0", "changed", "b text 2"])
    assert await forest.there() == {"left", "own"}
    assert await forest.collection.tree() == forest.links_without("b1")


async def test_own_summary_stays_when_its_document_comes_back_the_same(forest: Forest) -> None:
    await forest.rewrite("c", [f"c text {n}" for n in range(3)])
    assert await forest.there() == {"left", "right", "own", "root"}
    await forest.rewrite("c", [f"c text {n}" for n in range(3)], metadata={"product": "Z"})
    # Its row would still say that it is about C; its shape is kept.
    assert await forest.there() == {"left", "right", "root"}
    assert await forest.collection.tree() == forest.links


async def test_own_summary_goes_with_a_passage_of_its_document(forest: Forest) -> None:
    await forest.rewrite("c", ["c text 0", "c text 1", "changed"])
    assert await forest.there() == {"left", "right"}
    assert await forest.collection.tree() == forest.links_without("c2")


async def test_same_id_with_another_text_is_a_change(forest: Forest) -> None:
    document, chunks, vectors = forest.documents["a"]
    changed = [replace(chunks[0], content="something else"), *chunks[1:]]
    await forest.collection.writer().write_document(document, changed, vectors, settings_hash="s")
    assert await forest.there() == {"right", "own"}
    assert await forest.collection.tree() == forest.links_without("a0")


async def test_what_was_derived_from_a_lost_summary_goes_too(forest: Forest) -> None:
    document, chunks, vectors = forest.documents["b"]
    question = question_row(forest.summaries[0], "what does left say")
    await forest.collection.writer().write_document(
        document, [*chunks, question], np.vstack([vectors, vectors[:1]]), settings_hash="s"
    )
    assert question.id in await forest.collection.chunks([question.id])
    await forest.collection.delete_documents([forest.documents["a"][0].id])
    assert await forest.collection.chunks([question.id]) == {}


async def test_unchanged_summaries_stay_as_they_are(forest: Forest) -> None:
    collection = forest.collection
    before = await collection.vectors(["left", "right", "root"])
    forest.summaries[1] = replace(forest.summaries[1], content="summary anew")
    forest.summaries[3] = replace(forest.summaries[3], metadata={"level": 2, "derived_by": "x"})
    other = random_vectors(len(forest.summaries), 777)
    await collection.writer().write_tree(forest.summaries, other, forest.links)
    after = await collection.vectors(["left", "right", "root"])
    # A row that stays keeps its vector: its text is the same, so its vector is.
    np.testing.assert_array_equal(before["left"], after["left"])
    np.testing.assert_allclose(after["right"], other[1], rtol=1e-6)
    np.testing.assert_allclose(after["root"], other[3], rtol=1e-6)
    rows = await collection.chunks(["right", "root"])
    assert rows["right"].content == "summary anew"
    assert rows["root"].record["derived_by"] == "x"
    assert await collection.count() == (3, 13)
    assert await forest.there() == {"left", "right", "own", "root"}


async def test_smaller_tree_replaces_the_larger_one(forest: Forest) -> None:
    forest.links = [link for link in forest.links if link.parent == "left"]
    forest.summaries = forest.summaries[:1]
    await forest.write()
    assert await forest.there() == {"left"}
    assert await forest.collection.tree() == forest.links
    await forest.collection.writer().write_tree([], vectors_of([]), [])
    assert await forest.collection.tree() == []
    assert await forest.collection.count() == (3, 9)


async def test_missing_summary_is_written_anew(forest: Forest) -> None:
    await forest.rewrite("b", ["b text 0", "changed", "b text 2"])
    rest = await forest.collection.tree()
    forest.links = rest
    await forest.write()
    assert await forest.there() == {"left", "right", "own", "root"}
    assert await forest.collection.tree() == rest


async def test_link_to_a_summary_that_could_not_be_made(forest: Forest) -> None:
    forest.summaries = [s for s in forest.summaries if s.id != "right"]
    await forest.write()
    assert await forest.there() == {"left", "own", "root"}
    assert await forest.collection.tree() == forest.links


async def test_passage_deleted_before_its_summary_is_written(forest: Forest) -> None:
    await forest.collection.delete_documents([forest.documents["a"][0].id])
    await forest.write()
    assert await forest.there() == {"right", "own"}
    assert await forest.collection.tree() == forest.links_without("a0", "a1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s, _: s.append(replace(s[0], id="other")), "no link to what it sums up"),
        (lambda s, _: s.append(s[0]), "same id"),
        (lambda s, _: s.append(replace(s[0], kind=ChunkKind.ORIGINAL, id="x")), "not a summary"),
        (lambda _, links: links.append(TreeLink("left", "root", 1)), "no lower"),
        (lambda _, links: links.append(TreeLink("left", "left", 1)), "no lower"),
        (lambda _, links: links.append(TreeLink("left", "right", 3)), "no single level"),
        (lambda _, links: links.append(TreeLink("fresh", "right", 0)), "no single level"),
        (lambda s, _: s.append(replace(s[2], document_id="nowhere", id="x")), "no link"),
    ],
)
async def test_no_tree_is_refused_and_changes_nothing(
    forest: Forest, change: Any, words: str
) -> None:
    summaries, links = list(forest.summaries), list(forest.links)
    change(summaries, links)
    with pytest.raises(StoreError, match=words):
        await forest.collection.writer().write_tree(summaries, vectors_of(summaries), links)
    assert await forest.collection.tree() == forest.links
    assert await forest.there() == {"left", "right", "own", "root"}


async def test_taken_ids_and_strange_documents_are_refused(forest: Forest) -> None:
    writer = forest.collection.writer()
    a0, a1 = forest.at["a0"], forest.at["a1"]
    taken = summary(a0, 1)
    with pytest.raises(StoreError, match="has the id"):
        await writer.write_tree([taken], vectors_of([taken]), [TreeLink(a0, a1, 1)])
    strange = summary("x", 1, document_id="nowhere")
    with pytest.raises(StoreError, match="not stored"):
        await writer.write_tree([strange], vectors_of([strange]), [TreeLink("x", a1, 1)])
    with pytest.raises(StoreError):
        await writer.write_tree([], random_vectors(1, 1), [])
    assert await forest.there() == {"left", "right", "own", "root"}


async def test_fields_of_summaries_widen_like_any_others(forest: Forest) -> None:
    forest.summaries[0] = replace(forest.summaries[0], metadata={"level": 1, "product": ["A", "B"]})
    await forest.write()
    rows = await forest.collection.chunks(["left", "own", forest.at["a0"]])
    assert [rows[name].record["product"] for name in ("left", "own")] == [["A", "B"], ["C"]]
    assert rows[forest.at["a0"]].record["product"] == ["A"]
    assert await forest.there() == {"left", "right", "own", "root"}
    before = await forest.collection.tree()
    await forest.write()
    assert await forest.collection.tree() == before


# What only a file has ---------------------------------------------------------------------


async def test_tree_is_there_after_reopening_also_for_reading_only(tmp_path: Path) -> None:
    with opened("duckdb-file", tmp_path) as collection:
        forest = Forest(collection)
        await forest.plant()
    with DuckDBDatabase(tmp_path / "store.duckdb", read_only=True) as database:
        forest.collection = open_collection(database, "docs")
        assert await forest.collection.tree() == forest.links
        assert await forest.there() == {"left", "right", "own", "root"}
        with pytest.raises(DatabaseReadOnly):
            forest.collection.writer()
        rows = database.execute("SELECT level, count(*) FROM docs.tree GROUP BY level ORDER BY 1")
        assert rows == [(1, 9), (2, 3)]


async def test_file_of_before_there_were_trees(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    with opened("duckdb-file", tmp_path) as collection:
        forest = Forest(collection)
        await collection.writer().write_documents(
            list(forest.documents.values()), settings_hash="s"
        )
        collection.database.execute("DROP TABLE docs.tree")  # type: ignore[attr-defined]
    with DuckDBDatabase(path, read_only=True) as database:
        forest.collection = open_collection(database, "docs")
        assert await forest.collection.tree() == []
        assert await forest.there() == set()
    with opened("duckdb-file", tmp_path) as collection:
        assert collection.database.execute("SELECT * FROM docs.tree") == []  # type: ignore[attr-defined]
        forest.collection = collection
        await forest.write()
        assert await collection.tree() == forest.links


async def test_own_table_of_that_name_is_not_touched(tmp_path: Path) -> None:
    with opened("duckdb-file", tmp_path) as collection:
        forest = Forest(collection)
        await collection.writer().write_documents(
            list(forest.documents.values()), settings_hash="s"
        )
        database: DuckDBDatabase = collection.database  # type: ignore[attr-defined]
        database.execute("DROP TABLE docs.tree")
        database.execute("CREATE TABLE docs.tree AS SELECT 'oak' AS kind")
    with opened("duckdb-file", tmp_path) as collection:
        assert await collection.tree() == []
        forest.collection = collection
        with pytest.raises(StoreError, match="table of your own"):
            await forest.write()
        await collection.delete_documents([forest.documents["a"][0].id])
        assert collection.database.execute("SELECT kind FROM docs.tree") == [("oak",)]  # type: ignore[attr-defined]


async def test_dropped_collection_takes_its_tree(tmp_path: Path) -> None:
    with DuckDBDatabase(tmp_path / "x.duckdb") as database:
        forest = Forest(create_collection(database, "docs", IDENTITY))
        await forest.plant()
        drop_collection(database, "docs")
        left = database.execute("SELECT * FROM duckdb_tables() WHERE schema_name = 'docs'")
        assert left == []
        again = create_collection(database, "docs", IDENTITY)
        assert await again.tree() == []


async def test_failed_write_leaves_rows_links_and_indices_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbrag.stores.duckdb import writer

    with opened("duckdb-file", tmp_path) as collection:
        forest = Forest(collection)
        await forest.plant()

        def broken(*_: Any) -> str:
            raise RuntimeError("the power went")

        kept = list(forest.links)
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_advance", broken)
            with pytest.raises(RuntimeError):
                await collection.writer().write_tree([], vectors_of([]), [])
            with pytest.raises(RuntimeError):
                await collection.delete_documents([forest.documents["a"][0].id])
            with pytest.raises(RuntimeError):
                await forest.rewrite("b", ["wholly", "new"])
        assert await collection.tree() == kept
        assert await forest.there() == {"left", "right", "own", "root"}
        assert await collection.count() == (3, 13)


async def test_two_openers_see_one_tree(tmp_path: Path) -> None:
    with opened("duckdb-file", tmp_path) as one, opened("duckdb-file", tmp_path) as other:
        forest = Forest(one)
        await forest.plant()
        assert await other.tree() == forest.links
        await other.delete_documents([forest.documents["a"][0].id])
        assert await one.tree() == forest.links_without("a0", "a1")
        assert await one.original_ids() == [forest.at[f"{d}{n}"] for d in "bc" for n in range(3)]
        listed = await one.tree()
        listed.clear()
        assert await one.tree() == forest.links_without("a0", "a1")


async def test_weightless_plan_of_summaries_alone(forest: Forest) -> None:
    found = await forest.collection.search(
        SearchPlan(
            (QueryVariant("called root"),),
            frozenset(("keyword",)),
            5,
            kinds=frozenset((ChunkKind.ROOT_SUMMARY,)),
        )
    )
    assert ids(found, "keyword") == ["root"]
