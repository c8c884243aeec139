"""What every collection does, wherever it keeps its rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbrag.errors import (
    ConfigurationError,
    DocumentNotFound,
    FilterError,
    QueryError,
    StoreError,
)
from nbrag.protocols import Collection
from nbrag.stores.filters import Field, as_filter
from nbrag.types import ChunkKind, QueryVariant, SearchPlan, Span, stable_hash

from .store_samples import (
    DIMENSION,
    IDENTITY,
    STORES,
    brute_force,
    ids,
    opened,
    plan,
    question_row,
    random_vectors,
    sample,
)

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(params=STORES)
async def collection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Collection]:
    with opened(request.param, tmp_path) as collection:
        yield collection


async def fill(collection: Collection, count: int = 12) -> None:
    documents = [
        sample(
            f"{folder}/{number}.md",
            [f"alpha word{number}", f"beta word{number}", f"gamma shared{number % 3}"],
            seed=number,
            metadata={"number": number, "tags": ["even" if number % 2 == 0 else "odd"]},
        )
        for number in range(count)
        for folder in ("ops" if number % 2 else "web",)
    ]
    await collection.writer().write_documents(documents, settings_hash="s")


async def all_vectors(collection: Collection, count: int = 12) -> dict[str, np.ndarray]:
    found = {}
    for number in range(count):
        folder = "ops" if number % 2 else "web"
        texts = [f"alpha word{number}", f"beta word{number}", f"gamma shared{number % 3}"]
        _, chunks, vectors = sample(f"{folder}/{number}.md", texts, seed=number)
        found.update({chunk.id: v for chunk, v in zip(chunks, vectors, strict=True)})
    return found


async def test_is_a_collection(collection: Collection) -> None:
    assert isinstance(collection, Collection)
    assert collection.name == "docs"
    assert collection.identity == IDENTITY


async def test_empty_collection_answers_with_empty_lists(collection: Collection) -> None:
    found = await collection.search(plan("word", random_vectors(1, 1)[0]))
    assert [(ranked.leg, ranked.items) for ranked in found] == [("vector", ()), ("keyword", ())]
    assert await collection.count() == (0, 0)
    assert await collection.documents() == {}
    assert await collection.chunks(["nothing"]) == {}
    assert await collection.vectors(["nothing"]) == {}
    assert await collection.neighbours("nothing", 1, 1) == []


async def test_vector_search_equals_brute_force(collection: Collection) -> None:
    await fill(collection)
    stored = await all_vectors(collection)
    for seed in range(5):
        query = random_vectors(1, 100 + seed)[0]
        found = await collection.search(plan(vector=query, k=7))
        assert ids(found, "vector") == brute_force(stored, query, 7)
        scores = [item.score for item in found[0].items]
        assert scores == sorted(scores, reverse=True)


async def test_length_of_vectors_does_not_count(collection: Collection) -> None:
    document, chunks, vectors = sample("a.md", ["one", "two", "three"], seed=3)
    await collection.writer().write_document(
        document, chunks, vectors * np.float32([[1], [100], [0.01]]), settings_hash="s"
    )
    query = random_vectors(1, 5)[0]
    found = await collection.search(plan(vector=query * 50, k=3))
    expected = brute_force({c.id: v for c, v in zip(chunks, vectors, strict=True)}, query, 3)
    assert ids(found, "vector") == expected
    assert all(-1.001 <= item.score <= 1.001 for item in found[0].items)
    stored = (await collection.vectors([chunks[1].id]))[chunks[1].id]
    np.testing.assert_allclose(stored, vectors[1] * 100, rtol=1e-6)


async def test_rare_filter_finds_all_that_pass_in_true_order(collection: Collection) -> None:
    await fill(collection, 40)
    stored = await all_vectors(collection, 40)
    rare = {sample(f"ops/{n}.md", [f"alpha word{n}"], seed=n)[1][0].id for n in (7, 19, 33)}
    query = -sum(stored[chunk_id] for chunk_id in rare)
    where = 'number in [7, 19, 33] and ordinal == 0 and source.startswith("ops/")'
    [found] = await collection.search(plan(vector=query, k=10, where=where))
    near = {chunk_id: vector for chunk_id, vector in stored.items() if chunk_id in rare}
    assert [item.chunk_id for item in found.items] == brute_force(near, query, 10)
    assert found.explanation == "exact over 3 rows"


async def test_filters_hold_for_both_legs(collection: Collection) -> None:
    await fill(collection)
    where = Field("tags").contains("odd") & (Field("number") >= 5)
    found = await collection.search(plan("alpha beta", random_vectors(1, 1)[0], k=50, where=where))
    for leg, count in (("vector", 12), ("keyword", 8)):
        chunks = await collection.chunks(ids(found, leg))
        assert len(chunks) == count
        assert all(chunk.record["number"] in {5, 7, 9, 11} for chunk in chunks.values())


async def test_filter_that_nothing_passes(collection: Collection) -> None:
    await fill(collection, 2)
    found = await collection.search(plan("alpha", random_vectors(1, 1)[0], where="number > 99"))
    assert [ranked.items for ranked in found] == [(), ()]


async def test_unknown_field_says_which_is_near(collection: Collection) -> None:
    await fill(collection, 2)
    with pytest.raises(FilterError, match="did you mean 'number'"):
        await collection.search(plan("alpha", where="nunber == 3"))
    with pytest.raises(FilterError, match="whole number"):
        await collection.search(plan("alpha", where='number == "3"'))


async def test_keyword_finds_only_rows_that_share_a_term(collection: Collection) -> None:
    await fill(collection)
    found = await collection.search(plan("word3", k=10))
    assert len(ids(found, "keyword")) == 2
    assert ids(await collection.search(plan("nowhere")), "keyword") == []


async def test_written_rows_are_found_at_once_in_both_legs(collection: Collection) -> None:
    await fill(collection, 3)
    await collection.search(plan("alpha", random_vectors(1, 1)[0]))
    document, chunks, vectors = sample("new.md", ["error 40321 in v3.0", "C# code"], seed=77)
    await collection.writer().write_document(document, chunks, vectors, settings_hash="s")
    for text, chunk in (("40321", chunks[0]), ("v3.0", chunks[0]), ("C#", chunks[1])):
        assert ids(await collection.search(plan(text)), "keyword")[0] == chunk.id
    found = await collection.search(plan(vector=vectors[1], k=1))
    assert ids(found, "vector") == [chunks[1].id]


async def test_replacing_a_document_replaces_all_of_it(collection: Collection) -> None:
    await fill(collection, 3)
    old, old_chunks, vectors = sample("x.md", ["lavender one", "lavender two"], seed=50)
    await collection.writer().write_document(old, old_chunks, vectors, settings_hash="s")
    assert len(ids(await collection.search(plan("lavender")), "keyword")) == 2
    new, new_chunks, vectors = sample("x.md", ["lavender one", "saffron"], seed=51)
    assert new.id == old.id
    assert new_chunks[0].id == old_chunks[0].id
    await collection.writer().write_document(new, new_chunks, vectors, settings_hash="t")
    found = await collection.search(plan("lavender saffron", vectors[1], k=50))
    assert set(ids(found, "keyword")) == {chunk.id for chunk in new_chunks}
    assert old_chunks[1].id not in ids(found, "vector")
    stored = (await collection.documents())["x.md"]
    assert (stored.settings_hash, stored.chunk_count) == ("t", 2)
    assert await collection.count() == (4, 11)


async def test_deleting_takes_everything_out_of_every_leg(collection: Collection) -> None:
    await fill(collection, 3)
    document, chunks, vectors = sample("gone.md", ["lavender field", "lavender oil"], seed=60)
    question = question_row(chunks[0], "what smells of lavender")
    await collection.writer().write_document(
        document, [*chunks, question], np.vstack([vectors, vectors[:1]]), settings_hash="s"
    )
    assert await collection.delete_documents([document.id, "unknown"]) == 1
    kinds = tuple(ChunkKind)
    found = await collection.search(plan("lavender", vectors[0], k=50, kinds=kinds))
    assert ids(found, "keyword") == []
    assert len(ids(found, "vector")) == 9
    assert await collection.chunks([chunk.id for chunk in chunks]) == {}
    assert "gone.md" not in await collection.documents()
    with pytest.raises(DocumentNotFound):
        await collection.document_text(document.id)


async def test_idf_follows_a_delete(collection: Collection) -> None:
    kept = sample("kept.md", ["common rare", "common", "other"], seed=1)
    gone = sample("gone.md", ["common rare"] * 1 + ["rare words"], seed=2)
    writer = collection.writer()
    await writer.write_document(*kept, settings_hash="s")
    [before] = await collection.search(plan("rare", k=10))
    await writer.write_document(*gone, settings_hash="s")
    [between] = await collection.search(plan("rare", k=10))
    await collection.delete_documents([gone[0].id])
    [after] = await collection.search(plan("rare", k=10))
    assert after.items == before.items
    assert between.items != before.items


async def test_derived_rows_go_with_what_they_are_derived_from(collection: Collection) -> None:
    source, chunks, _vectors = sample("source.md", ["about tides"], seed=8)
    question = question_row(chunks[0], "when is high water")
    other, other_chunks, _ = sample("tree.md", ["unrelated"], seed=9)
    summary = question_row(question, "a summary over questions", ChunkKind.BRANCH_SUMMARY)
    writer = collection.writer()
    await writer.write_document(
        source, [chunks[0], question], random_vectors(2, 1), settings_hash="s"
    )
    await writer.write_document(
        other, [other_chunks[0], summary], random_vectors(2, 2), settings_hash="s"
    )
    assert await collection.count() == (2, 4)
    await writer.write_document(*sample("source.md", ["about moons"], seed=8), settings_hash="s")
    assert set(await collection.chunks([question.id, summary.id])) == set()
    assert await collection.count() == (2, 2)


async def test_only_asked_kinds_are_found(collection: Collection) -> None:
    document, chunks, vectors = sample("a.md", ["tides", "moons"], seed=8)
    summary = question_row(chunks[0], "when tides are high", ChunkKind.BRANCH_SUMMARY)
    await collection.writer().write_document(
        document, [*chunks, summary], np.vstack([vectors, -vectors[:1]]), settings_hash="s"
    )
    query = -vectors[0]
    found = await collection.search(plan("tides", query))
    assert ids(found, "keyword") == [chunks[0].id]
    assert set(ids(found, "vector")) == {chunk.id for chunk in chunks}
    found = await collection.search(plan("tides", query, kinds=[ChunkKind.BRANCH_SUMMARY]))
    assert ids(found, "keyword") == ids(found, "vector") == [summary.id]
    filtered = plan("tides", query, where="ordinal == 0", kinds=tuple(ChunkKind))
    assert set(ids(await collection.search(filtered), "vector")) == {chunks[0].id, summary.id}
    row = (await collection.chunks([summary.id]))[summary.id]
    assert (row.parent_id, row.span) == (chunks[0].id, None)


async def test_equal_vectors_come_in_the_order_in_which_they_were_written(
    collection: Collection,
) -> None:
    vector = random_vectors(1, 4)
    expected = []
    for number in range(9):
        document, chunks, _ = sample(f"{number}.md", ["same", "same too"], seed=number)
        expected += [chunk.id for chunk in chunks]
        await collection.writer().write_document(
            document, chunks, np.repeat(vector, 2, axis=0), settings_hash="s"
        )
    found = await collection.search(plan(vector=random_vectors(1, 5)[0], k=18))
    assert ids(found, "vector") == expected


async def test_variants_have_a_list_each(collection: Collection) -> None:
    await fill(collection)
    query = random_vectors(2, 1)
    variants = (
        QueryVariant("word1", vector=query[0]),
        QueryVariant("", weight=0.5, legs=frozenset({"vector"}), vector=query[1]),
        QueryVariant("word2", weight=0.25, legs=frozenset({"keyword"})),
        QueryVariant("word4", weight=0.0, vector=query[1]),
    )
    both = frozenset({"vector", "keyword"})
    found = await collection.search(SearchPlan(variants, both, 4))
    assert [(ranked.leg, ranked.variant, ranked.weight) for ranked in found] == [
        ("vector", 0, 1.0),
        ("vector", 1, 0.5),
        ("keyword", 0, 1.0),
        ("keyword", 2, 0.25),
    ]
    assert all(len(ranked.items) <= 4 and ranked.explanation for ranked in found)


async def test_lists_tell_their_scores_of_rows_that_others_found(collection: Collection) -> None:
    await fill(collection, 20)
    removed = sample("web/4.md", ["alpha word4"], seed=4)[0].id
    await collection.delete_documents([removed])
    query = random_vectors(2, 1)
    variants = (
        QueryVariant("word1 shared2", vector=query[0]),
        QueryVariant("gamma", weight=0.5, vector=query[1] * 3),
        QueryVariant("nothing has these words", legs=frozenset({"keyword"})),
    )
    both = frozenset({"vector", "keyword"})
    where = "number != 7"
    shallow = await collection.search(SearchPlan(variants, both, 3, as_filter(where)))
    deep = await collection.search(SearchPlan(variants, both, 100, as_filter(where)))
    found = {item.chunk_id for ranked in shallow for item in ranked.items}
    assert len(found) > 6
    for ranked, whole in zip(shallow, deep, strict=True):
        truth = {item.chunk_id: item.score for item in whole.items}
        told = {item.chunk_id: item.score for item in ranked.items + ranked.others}
        assert set(told) == found
        assert len(told) == len(ranked.items) + len(ranked.others)
        missing = None if ranked.leg == "vector" else 0.0
        assert told == {
            chunk_id: pytest.approx(truth.get(chunk_id, missing), rel=1e-5) for chunk_id in found
        }


async def test_values_of_a_field_most_frequent_first(collection: Collection) -> None:
    await fill(collection, 5)
    assert await collection.field_values("tags") == ["even", "odd"]
    assert await collection.field_values("number", limit=3) == [0, 1, 2]
    assert await collection.field_values("page", limit=2) == [1, 2]
    assert await collection.field_values("number", limit=2, start=2) == [2, 3]
    assert await collection.field_values("tags", containing="DD") == ["odd"]
    assert await collection.field_values("number", containing="4") == [4]
    assert await collection.field_values("tags", containing="%") == []
    with pytest.raises(FilterError, match=r"no field 'nunber'.*did you mean 'number'"):
        await collection.field_values("nunber")


@pytest.mark.parametrize(
    "vector", [None, np.zeros(DIMENSION), np.full(DIMENSION, np.nan), np.ones(DIMENSION + 1)]
)
async def test_unusable_query_vectors_are_refused(collection: Collection, vector: Any) -> None:
    await fill(collection, 1)
    variant = QueryVariant("alpha", vector=vector)
    with pytest.raises(QueryError):
        await collection.search(SearchPlan((variant,), frozenset({"vector"}), 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v * np.float32([[1.0], [0.0]]), "vector 1 is zero"),
        (lambda v: v * np.float32([[np.nan], [1.0]]), "vector 0 is not finite"),
        (lambda v: v[:, :-1], "shape"),
        (lambda v: v[:1], "shape"),
    ],
)
async def test_unusable_vectors_are_refused_and_nothing_changes(
    collection: Collection, change: Any, message: str
) -> None:
    document, chunks, vectors = sample("a.md", ["one", "two"], seed=1)
    with np.errstate(invalid="ignore"), pytest.raises(StoreError, match=message):
        await collection.writer().write_document(
            document, chunks, change(vectors), settings_hash="s"
        )
    assert await collection.count() == (0, 0)


async def test_taken_chunk_ids_are_refused(collection: Collection) -> None:
    document, chunks, vectors = sample("a.md", ["one"], seed=1)
    await collection.writer().write_document(document, chunks, vectors, settings_hash="s")
    other, _, _ = sample("b.md", ["one"], seed=1)
    with pytest.raises(StoreError, match="Another document"):
        await collection.writer().write_document(other, chunks, vectors, settings_hash="s")
    twice = [chunks[0], chunks[0]]
    with pytest.raises(StoreError, match="Two chunks"):
        await collection.writer().write_document(
            document, twice, random_vectors(2, 1), settings_hash="s"
        )
    assert await collection.count() == (1, 1)
    assert ids(await collection.search(plan("one")), "keyword") == [chunks[0].id]


async def test_a_document_twice_in_one_batch_is_written_once(collection: Collection) -> None:
    first, second = sample("a.md", ["old"], seed=1), sample("a.md", ["new", "newer"], seed=2)
    await collection.writer().write_documents([first, second], settings_hash="s")
    assert await collection.count() == (1, 2)
    assert ids(await collection.search(plan("old")), "keyword") == []


async def test_a_document_without_chunks_is_kept(collection: Collection) -> None:
    document, _, _ = sample("empty.md", ["x"], seed=1)
    none = np.empty((0, DIMENSION), np.float32)
    await collection.writer().write_document(document, [], none, settings_hash="s")
    assert (await collection.documents())["empty.md"].chunk_count == 0
    assert await collection.document_text(document.id) == "x"


async def test_reading_rows_back(collection: Collection) -> None:
    await fill(collection, 4)
    document, chunks, _ = sample("ops/3.md", ["alpha word3", "beta word3", "gamma shared0"], seed=3)
    wanted = [chunks[2].id, "unknown", chunks[0].id]
    found = await collection.chunks(wanted)
    assert list(found) == [chunks[2].id, chunks[0].id]
    chunk = found[chunks[0].id]
    assert (chunk.document_id, chunk.source, chunk.score, chunk.history) == (
        document.id, "ops/3.md", 0.0, (),
    )  # fmt: skip
    assert (chunk.content, chunk.span, chunk.page) == ("alpha word3", Span(0, 11, 1), 1)
    assert chunk.heading_path == ("Top", "Part 0")
    assert chunk.record["title"] == "About ops/3.md"
    assert (chunk.record["number"], list(chunk.record["tags"])) == (3, ["odd"])
    assert "row" not in chunk.record
    assert "embedding" not in chunk.record
    assert await collection.document_text(document.id, chunk.span) == chunk.content
    around = await collection.neighbours(chunks[1].id, 1, 5)
    assert [one.id for one in around] == [one.id for one in chunks]
    assert [one.id for one in await collection.neighbours(chunks[2].id, 0, 0)] == [chunks[2].id]


async def test_neighbours_of_a_derived_row_are_those_of_its_parent(collection: Collection) -> None:
    document, chunks, vectors = sample("a.md", ["one", "two", "three"], seed=1)
    question = question_row(chunks[1], "which one")
    await collection.writer().write_document(
        document, [*chunks, question], np.vstack([vectors, vectors[:1]]), settings_hash="s"
    )
    around = await collection.neighbours(question.id, 1, 0)
    assert [one.id for one in around] == [chunks[0].id, chunks[1].id]


async def test_another_field_can_be_the_text(collection: Collection) -> None:
    document, chunks, vectors = sample(
        "a.md", ["one", "two"], seed=1, chunk_metadata=[{"summary": "short"}, {"lines": ["a", "b"]}]
    )
    await collection.writer().write_document(document, chunks, vectors, settings_hash="s")
    wanted = [chunk.id for chunk in chunks]
    found = await collection.chunks(wanted, content="summary")
    assert [chunk.content for chunk in found.values()] == ["short", "two"]
    found = await collection.chunks(wanted, content="lines")
    assert [chunk.content for chunk in found.values()] == ["one", "a\nb"]
    with pytest.raises(ConfigurationError, match="did you mean 'summary'"):
        await collection.chunks(wanted, content="sumary")


async def test_metadata_types_widen(collection: Collection) -> None:
    writer = collection.writer()
    values: list[dict[str, Any]] = [
        {"size": 1, "mark": True, "label": "a", "Topic": "x", "page": "first"},
        {"size": 2.5, "mark": "yes", "label": ["b", "c"], "topic": "y"},
        {"size": None, "label": 7},
    ]
    for number, metadata in enumerate(values):
        await writer.write_document(
            *sample(f"{number}.md", ["text"], seed=number, metadata=metadata), settings_hash="s"
        )
    fields = await collection.fields()
    assert {name: fields[name] for name in ("size", "mark", "label", "Topic", "page_")} == {
        "size": "DOUBLE", "mark": "VARCHAR", "label": "VARCHAR[]", "Topic": "VARCHAR",
        "page_": "VARCHAR",
    }  # fmt: skip
    assert fields["page"] == "BIGINT"
    assert "topic" not in fields
    for where, sources in (
        ("size >= 1", ["0.md", "1.md"]),
        ("size is None", ["2.md"]),
        ('mark == "true"', ["0.md"]),
        ('"a" in label or "7" in label', ["0.md", "2.md"]),
        ('Topic != "x"', ["1.md", "2.md"]),
        ('page_ == "first" and page == 1', ["0.md"]),
    ):
        found = ids(await collection.search(plan("text", where=where)), "keyword")
        rows = await collection.chunks(found)
        assert sorted(chunk.source for chunk in rows.values()) == sources, where


async def test_strange_texts_and_names_are_kept(collection: Collection) -> None:
    metadata = {'quo"te; DROP TABLE x': "v", "from": 3, "naïve": "é", "half": "\ud800"}
    text = "nul \0 emoji 😀 and half \udc00 end"
    entry = sample("ä'\"/b.md", [text], seed=1, metadata=metadata)
    await collection.writer().write_document(*entry, settings_hash="s")
    where = 'field("from") == 3 and field("quo\\"te; DROP TABLE x") == "v" and half == "?"'
    [found] = ids(await collection.search(plan("emoji", where=where)), "keyword")
    chunk = (await collection.chunks([found]))[found]
    assert chunk.content == text.replace("\udc00", "?")
    assert chunk.source == "ä'\"/b.md"


async def test_staged_vectors_are_known_until_they_are_used(collection: Collection) -> None:
    writer = collection.writer()
    document, chunks, vectors = sample("a.md", ["one", "two"], seed=1)
    hashes = [stable_hash(chunk.embedding_text) for chunk in chunks]
    await writer.stage_vectors([hashes[0], "other"], random_vectors(2, 9))
    await writer.stage_vectors([], np.empty((0, DIMENSION), np.float32))
    await writer.stage_vectors([hashes[0]], random_vectors(1, 10))
    known = await writer.known_vectors([*hashes, "unknown"])
    assert set(known) == {hashes[0]}
    np.testing.assert_array_equal(known[hashes[0]], random_vectors(2, 9)[0])
    assert ids(await collection.search(plan(vector=vectors[0])), "vector") == []
    await writer.write_document(document, chunks, vectors, settings_hash="s")
    known = await writer.known_vectors([*hashes, "other", *hashes])
    assert set(known) == {*hashes, "other"}
    np.testing.assert_array_equal(known[hashes[1]], vectors[1])
    await collection.delete_documents([document.id])
    assert set(await writer.known_vectors([*hashes, "other"])) == {"other"}
    assert await writer.known_vectors([]) == {}


async def test_searches_beside_writes_see_whole_documents(collection: Collection) -> None:
    stop = False
    problems: list[str] = []

    async def look() -> None:
        while not stop:
            found = await collection.search(plan("lavender", random_vectors(1, 1)[0], k=100))
            if len(ids(found, "keyword")) != 3:
                problems.append(f"{len(ids(found, 'keyword'))} of 3 by keyword")
            if len(ids(found, "vector")) != 3:
                problems.append(f"{len(ids(found, 'vector'))} of 3 by vector")

    entry = sample("a.md", ["lavender one", "lavender two", "lavender three"], seed=0)
    await collection.writer().write_document(*entry, settings_hash="s")
    lookers = [asyncio.create_task(look()) for _ in range(2)]
    for number in range(15):
        texts = [f"lavender {number} {part}" for part in range(3)]
        await collection.writer().write_document(
            *sample("a.md", texts, seed=number), settings_hash="s"
        )
    stop = True
    await asyncio.gather(*lookers)
    assert problems == []
