"""Ordering for a prompt: the best at both ends, and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbrag
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.order import EndsFirstOrder
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.testing import HashEmbedder
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults
from nbrag.workspace import Workspace


def ordered(count: int) -> list[int]:
    chunks = tuple(RetrievalChunk(str(i), "d", f"text {i}", 1 / i) for i in range(1, count + 1))
    results = RetrievalResults(RetrievalQuery("q"), chunks)
    nothing: Any = None
    return [int(chunk.id) for chunk in nbrag.run(EndsFirstOrder().process(results, nothing))]


@pytest.mark.parametrize(
    ("count", "order"), [(0, []), (1, [1]), (2, [1, 2]), (5, [1, 3, 5, 4, 2]), (4, [1, 3, 4, 2])]
)
def test_the_best_stand_at_both_ends(count: int, order: list[int]) -> None:
    assert ordered(count) == order


@given(st.integers(0, 50))
def test_ranks_fall_towards_the_middle_from_both_sides(count: int) -> None:
    order = ordered(count)
    assert sorted(order) == list(range(1, count + 1))
    middle = order.index(count) if order else 0
    assert order[: middle + 1] == sorted(order[: middle + 1])
    assert order[middle:] == sorted(order[middle:], reverse=True)


def test_it_is_the_last_word_in_a_pipeline() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", [{"id": str(i), "text": f"word{i} text"} for i in range(9)])
        context = BuildContext(lambda: workspace.embedder, lambda: None)
        builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
        pipeline = builder.use_order().use_mmr().build()
        results = nbrag.run(pipeline.process(workspace["docs"], "word3 text"))
        ranks = [next(e.rank for e in c.history if e.stage == "result") for c in results]
        assert ranks == [1, 3, 5, 4, 2]
        assert [c.history[-1].rank for c in results] == [1, 2, 3, 4, 5]
