"""Hypothetical questions lead to the chunks that they were made from, in every store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbrag.protocols import Collection
from nbrag.stores.analysis import Analyzer
from nbrag.stores.keyword import KeywordIndex
from nbrag.types import Chunk, ChunkKind, Document, RankedList, SearchPlan

from .store_samples import STORES, ids, opened, plan, question_row, random_vectors, sample

BOTH = (ChunkKind.ORIGINAL, ChunkKind.HYPOTHETICAL_QUERY)
WORDS = ["tide", "moon", "salt", "harbour", "wind"]


@pytest.fixture(params=STORES)
async def collection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Collection]:
    with opened(request.param, tmp_path) as collection:
        yield collection


async def write(collection: Collection, document: Document, rows: list, vectors: Any) -> None:
    await collection.writer().write_document(document, rows, np.vstack(vectors), settings_hash="s")


@dataclass(frozen=True)
class Stored:
    """A row as the oracle knows it."""

    chunk: Chunk
    vector: np.ndarray
    mark: int

    @property
    def is_question(self) -> bool:
        return self.chunk.kind is ChunkKind.HYPOTHETICAL_QUERY


@dataclass(frozen=True)
class Asked:
    """A search for passages and questions, of one mark or of any."""

    text: str
    vector: np.ndarray
    k: int
    mark: int | None

    @property
    def plan(self) -> SearchPlan:
        where = None if self.mark is None else f"mark == {self.mark}"
        return plan(self.text, self.vector, k=self.k, where=where, kinds=BOTH)


def truth(
    rows: list[Stored], leg: str, text: str, vector: np.ndarray, mark: int | None
) -> list[tuple[str, float, str | None]]:
    """Return (passage, best score, question that has it) by trying every row, best first."""
    if leg == "vector":
        scores = [float(row.vector.astype(float) @ vector) for row in rows]
    else:
        index = KeywordIndex(Analyzer(language="english"))
        derived = np.array([row.is_question for row in rows])
        index.add(np.arange(len(rows)), [row.chunk.embedding_text for row in rows], derived)
        found = dict(zip(*(part.tolist() for part in index.search(text, 10_000)), strict=True))
        scores = [found.get(place, 0.0) for place in range(len(rows))]
    passing = [mark is None or row.mark == mark for row in rows]
    passages = {
        row.chunk.id for row, ok in zip(rows, passing, strict=True) if ok and not row.is_question
    }
    best: dict[str, tuple[str, float, str | None]] = {}
    for place in sorted(range(len(rows)), key=lambda place: (-scores[place], place)):
        row = rows[place]
        parent = row.chunk.parent_id if row.is_question else row.chunk.id
        if passing[place] and parent in passages:
            via = row.chunk.id if row.is_question else None
            best.setdefault(parent, (parent, scores[place], via))
    return list(best.values())


def check(found: list[RankedList], rows: list[Stored], asked: Asked) -> None:
    text, vector, k, mark = asked.text, asked.vector, asked.k, asked.mark
    assert [ranked.leg for ranked in found] == ["vector", "keyword"]
    union = {item.chunk_id for ranked in found for item in ranked.items}
    for ranked in found:
        everything = truth(rows, ranked.leg, text, vector, mark)
        hits = [hit for hit in everything if ranked.leg == "vector" or hit[1] > 0][:k]
        assert [(item.chunk_id, item.via) for item in ranked.items] == [
            (chunk_id, via) for chunk_id, _, via in hits
        ]
        scores = {chunk_id: score for chunk_id, score, _ in everything}
        told = {item.chunk_id: item.score for item in (*ranked.items, *ranked.others)}
        assert len(told) == len(ranked.items) + len(ranked.others)
        assert told == {i: pytest.approx(scores[i], rel=1e-4, abs=1e-5) for i in union}


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
question = st.tuples(texts, st.integers(0, 1))
passage = st.tuples(texts, st.integers(0, 1), st.lists(question, max_size=4))
steps = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.none(), st.lists(passage, min_size=1, max_size=4))),
    min_size=1,
    max_size=7,
)


asked = st.builds(
    Asked,
    texts,
    st.integers(1000, 1099).map(lambda seed: random_vectors(1, seed)[0]),
    st.integers(1, 9),
    st.sampled_from([None, 0, 1]),
)


def entry(number: int, passages: list, seed: int) -> tuple[Document, list[Stored]]:
    """Return a document's rows, each passage followed by its questions, one led nowhere."""
    document, chunks, _ = sample(f"{number}.md", [text for text, _, _ in passages])
    rows: list[tuple[Chunk, int]] = []
    for chunk, (_, mark, questions) in zip(chunks, passages, strict=True):
        rows.append((chunk, mark))
        for place, (text, own) in enumerate(questions):
            row = question_row(chunk, f"{text} q{place}")
            rows.append((row, own))
    lost = replace(question_row(chunks[0], "tide tide"), parent_id="nothing", id=f"lost {number}")
    rows.insert(0, (lost, 1))
    vectors = random_vectors(len(rows), seed)
    return document, [
        Stored(replace(chunk, metadata={"mark": mark}), vector, mark)
        for (chunk, mark), vector in zip(rows, vectors, strict=True)
    ]


@pytest.mark.parametrize("store", STORES)
@settings(max_examples=25)
@given(steps, asked, st.integers(0, 99))
def test_equals_trying_every_row(store: str, steps: list, asked: Asked, seed: int) -> None:
    async def look(collection: Collection, rows: list[Stored]) -> None:
        if rows:
            # The second answer comes from what the first one left behind.
            for _ in range(2):
                check(await collection.search(asked.plan), rows, asked)

    async def run(folder: Path) -> None:
        documents: dict[int, list[Stored]] = {}
        with opened(store, folder) as collection:
            for turn, (number, passages) in enumerate(steps):
                before = documents.pop(number, None)
                if passages is not None:
                    document, rows = entry(number, passages, seed * 100 + turn)
                    documents[number] = rows
                    chunks, vectors = [r.chunk for r in rows], [r.vector for r in rows]
                    await write(collection, document, chunks, vectors)
                elif before is not None:
                    await collection.delete_documents([before[1].chunk.document_id])
                if turn % 3 == 0:
                    await look(collection, [row for rows in documents.values() for row in rows])
            everything = [row for rows in documents.values() for row in rows]
            await look(collection, everything)
        if store not in ("memory", "duckdb"):
            with opened(store, folder) as reopened:
                await look(reopened, everything)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def test_a_hit_on_a_question_is_one_on_its_passage(collection: Collection) -> None:
    document, chunks, vectors = sample("a.md", ["tides", "moons"], seed=8)
    question = question_row(chunks[1], "when is high water")
    await write(collection, document, [*chunks, question], [vectors, -vectors[:1]])
    for kinds in (BOTH, [ChunkKind.HYPOTHETICAL_QUERY]):
        vector, keyword = await collection.search(plan("high water", -vectors[0], kinds=kinds))
        assert [item.chunk_id for item in vector.items] == [chunks[1].id, chunks[0].id]
        assert vector.items[0].score == pytest.approx(1)
        assert (vector.items[0].via, vector.items[1].via) == (question.id, None)
        assert [(item.chunk_id, item.via) for item in keyword.items] == [
            (chunks[1].id, question.id)
        ]
        assert [item.chunk_id for item in keyword.others] == [chunks[0].id]
        assert vector.explanation.endswith(", 1 question among them")
        assert keyword.explanation == "BM25 over 3 rows, 1 question among them"
    found = await collection.search(plan("high water", -vectors[0]))
    assert ids(found, "keyword") == []
    assert all("question" not in ranked.explanation for ranked in found)


async def test_questions_of_one_chunk_do_not_crowd_out_the_others(collection: Collection) -> None:
    texts = [f"passage {number}" for number in range(31)]
    document, chunks, vectors = sample("a.md", texts, seed=1)
    query = random_vectors(1, 7)[0]
    many = [question_row(chunks[0], f"tide {number}") for number in range(60)]
    few = [question_row(chunk, "tide tide wind wind rain") for chunk in chunks[1:]]
    near = query + 0.01 * random_vectors(60, 2)
    await write(collection, document, [*chunks, *many, *few], [vectors, near, vectors[1:]])
    vector, keyword = await collection.search(plan("tide", query, k=5, kinds=BOTH))
    order = sorted(range(1, 31), key=lambda place: -float(vectors[place] @ query))
    assert ids([vector], "vector") == [chunks[place].id for place in [0, *order[:4]]]
    assert len(set(ids([keyword], "keyword"))) == 5
    found = await collection.search(plan("tide", query, k=100, kinds=BOTH))
    assert [len(set(ids(found, leg))) for leg in ("vector", "keyword")] == [31, 31]


async def test_a_question_waits_for_its_passage(collection: Collection) -> None:
    later, chunks, vectors = sample("later.md", ["tides"], seed=1)
    early, others, _ = sample("early.md", ["moons"], seed=2)
    question = replace(question_row(chunks[0], "high water"), document_id=early.id)
    nested = question_row(question, "high water again")
    rows = [*others, question, nested]
    await write(collection, early, rows, [random_vectors(3, 3)])
    asked = plan("high water", random_vectors(1, 4)[0], kinds=BOTH)
    found = await collection.search(asked)
    assert (ids(found, "vector"), ids(found, "keyword")) == ([others[0].id], [])
    await write(collection, later, chunks, [vectors])
    found = await collection.search(asked)
    assert set(ids(found, "vector")) == {others[0].id, chunks[0].id}
    assert ids(found, "keyword") == [chunks[0].id]
    assert found[1].explanation == "BM25 over 3 rows, 1 question among them"
    await collection.delete_documents([later.id])
    assert ids(await collection.search(asked), "keyword") == []
    assert await collection.count() == (1, 1)


async def test_a_large_graph_of_passages_and_questions(tmp_path: Path) -> None:
    document, chunks, vectors = sample("a.md", [f"p{n}" for n in range(1500)], seed=1)
    questions = [question_row(chunk, f"q{n}") for chunk in chunks for n in range(3)]
    asked = random_vectors(len(questions), 2)
    with opened("duckdb-hnsw", tmp_path) as collection:
        await write(collection, document, [*chunks, *questions], [vectors, asked])
        new = sample("new.md", ["new"], seed=9)
        extra = question_row(new[1][0], "newer")
        await write(collection, new[0], [*new[1], extra], [new[2], random_vectors(1, 10)])
        best = np.concatenate([vectors[:, None], asked.reshape(1500, 3, -1)], axis=1)
        right = 0
        for seed in range(20):
            query = random_vectors(1, 100 + seed)[0]
            [found] = await collection.search(plan(vector=query, k=20, kinds=BOTH))
            assert found.explanation.startswith("hnsw ef=")
            assert found.explanation.endswith(", 4,501 questions among them")
            listed = ids([found], "vector")
            assert len(set(listed)) == 20
            order = np.argsort(-(best @ query).max(axis=1))[:20]
            right += len({chunks[place].id for place in order} & set(listed))
        assert right >= 0.9 * 400
        assert (await collection.search(plan(vector=new[2][0], k=1, kinds=BOTH)))[0].items[
            0
        ].chunk_id == new[1][0].id
