"""The stages of retrieval on made-up results: diversity, widening."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import nbrag
from nbrag.protocols import Collection
from nbrag.retrieval.processors.mmr import MmrOptions, MmrProcessor
from nbrag.retrieval.processors.neighbours import NeighbourOptions, NeighbourProcessor
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults, Span

TEXT = "".join(chr(ord("a") + i % 26) for i in range(200))
WIDTH = 5


class Shelf:
    """One document of forty chunks, as far as these stages look at a collection."""

    def __init__(self, vectors: dict[str, Any] | None = None) -> None:
        self._vectors = vectors or {}

    async def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        return {chunk: self._vectors[chunk] for chunk in ids if chunk in self._vectors}

    async def neighbours(self, chunk_id: str, before: int, after: int) -> list[RetrievalChunk]:
        place = int(chunk_id)
        return [part(i) for i in range(max(place - before, 0), min(place + after + 1, 40))]

    async def document_text(self, document_id: str, span: Span) -> str:
        return TEXT[span.start : span.end]


def part(place: int) -> RetrievalChunk:
    span = Span(place * WIDTH, (place + 1) * WIDTH)
    return RetrievalChunk(str(place), "d", TEXT[span.start : span.end], 1.0, {}, None, span)


def run(stage: Any, chunks: Sequence[RetrievalChunk], shelf: Shelf) -> tuple[RetrievalChunk, ...]:
    results = RetrievalResults(RetrievalQuery("q"), tuple(chunks))
    changed: RetrievalResults = nbrag.run(stage.process(results, cast("Collection", shelf)))
    return changed.chunks


@given(st.lists(st.integers(0, 39), unique=True, max_size=12), st.integers(0, 6), st.integers(0, 6))
def test_widened_results_never_overlap_and_hold_every_hit(
    places: list[int], before: int, after: int
) -> None:
    stage = NeighbourProcessor(NeighbourOptions(before=before, after=after))
    widened = run(stage, [part(place) for place in places], Shelf())
    spans = sorted((c.span.start, c.span.end) for c in widened if c.span)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    for chunk in widened:
        assert chunk.span is not None
        assert chunk.content == TEXT[chunk.span.start : chunk.span.end]
        for start, end in chunk.record["hit_spans"]:
            assert chunk.span.start <= start < end <= chunk.span.end
    hits = sorted(hit for chunk in widened for hit in chunk.record["hit_spans"])
    assert hits == sorted((place * WIDTH, place * WIDTH + WIDTH) for place in places)
    # What was joined stands where its best part stood, under that part's id.
    assert [c.id for c in widened] == [str(p) for p in places if str(p) in {c.id for c in widened}]


def test_a_result_that_bridges_two_makes_them_one() -> None:
    stage = NeighbourProcessor(NeighbourOptions(before=1, after=1))
    (whole,) = run(stage, [part(10), part(14), part(12)], Shelf())
    assert whole.id == "10"
    assert whole.span == Span(9 * WIDTH, 16 * WIDTH)
    assert len(whole.record["hit_spans"]) == 3


def test_what_has_no_place_in_a_document_is_not_widened() -> None:
    foreign = RetrievalChunk("web", "web", "from elsewhere", 1.0)
    stage = NeighbourProcessor(NeighbourOptions())
    kept, widened = run(stage, [foreign, part(3)], Shelf())
    assert kept.content == "from elsewhere"
    assert len(widened.content) == 3 * WIDTH


def _scored(name: str, score: float) -> RetrievalChunk:
    return RetrievalChunk(name, name, name, score)


VECTORS = {
    "a": np.array([1.0, 0.0], np.float32),
    "b": np.array([0.8, 0.6], np.float32),
    "c": np.array([0.0, 1.0], np.float32),
}


def test_mmr_follows_its_formula() -> None:
    chunks = [_scored("a", 3.0), _scored("b", 2.0), _scored("c", 1.0)]
    ordered = run(MmrProcessor(MmrOptions(diversity=0.5)), chunks, Shelf(VECTORS))
    # a: 0.5; then b: 0.25 - 0.5 * 0.8 against c: 0 - 0; then b: 0.25 - 0.5 * 0.8.
    assert [c.id for c in ordered] == ["a", "c", "b"]
    assert np.allclose([c.score for c in ordered], [0.5, 0.0, -0.15])


def test_mmr_keeps_what_has_no_vector_at_the_end() -> None:
    chunks = [_scored("web", 9.0), _scored("a", 3.0), _scored("b", 2.0), _scored("x", 1.0)]
    ordered = run(MmrProcessor(MmrOptions()), chunks, Shelf(VECTORS))
    assert [c.id for c in ordered] == ["a", "b", "web", "x"]


@given(st.lists(st.sampled_from("abcxyz"), unique=True), st.floats(0, 1))
def test_mmr_loses_and_invents_nothing(names: list[str], diversity: float) -> None:
    chunks = [_scored(name, 1.0 / (i + 1)) for i, name in enumerate(names)]
    ordered = run(MmrProcessor(MmrOptions(diversity=diversity)), chunks, Shelf(VECTORS))
    assert sorted(c.id for c in ordered) == sorted(names)
