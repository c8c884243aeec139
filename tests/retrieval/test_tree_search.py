"""Searching a summary tree: both ways through it, budget, filters, states of the tree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbrag
from nbrag.errors import FilterError, SpecificationError, StageError
from nbrag.protocols import (
    Collection,
    RetrievalQueryProcessor,
    RetrievalResultProcessor,
    Retriever,
)
from nbrag.retrieval import RetrievalPipeline, SearchOptions, TreeSearchRetriever, source_passages
from nbrag.stores.duckdb import DuckDBDatabase, create_collection
from nbrag.stores.memory import MemoryCollection
from nbrag.testing import HashEmbedder
from nbrag.types import (
    Chunk,
    ChunkKind,
    Document,
    RetrievalQuery,
    RetrievalResults,
    Span,
    Strategy,
    SummaryTree,
    TreeLink,
)
from nbrag.workspace import Workspace

EMBEDDER = HashEmbedder(256)
Ways = [
    {"traversal": "collapsed"},
    {"traversal": "collapsed", "ranking": "vector"},
    {"traversal": "top_down"},
]


@pytest.fixture(params=["memory", "duckdb"])
def collection(request: pytest.FixtureRequest) -> Iterator[Collection]:
    if request.param == "memory":
        yield MemoryCollection("docs", EMBEDDER.identity)
        return
    with DuckDBDatabase() as database:
        yield create_collection(database, "docs", EMBEDDER.identity)


def vectors(texts: Sequence[str]) -> np.ndarray:
    if not texts:
        return np.empty((0, EMBEDDER.identity.dimension), np.float32)
    return asyncio.run(EMBEDDER.embed_documents(list(texts)))


def store(collection: Collection, uri: str, texts: Sequence[str], **metadata: Any) -> list[str]:
    """Store a document of passages called ``uri-0`` and so on, of ten tokens each."""
    document = Document(uri, "\n".join(texts), title=uri, metadata=metadata)
    chunks, start = [], 0
    for number, text in enumerate(texts):
        span = Span(start, start + len(text))
        chunks.append(
            Chunk(f"{uri}-{number}", document.id, text, number, span, token_count=10,
                  metadata={"part": number})
        )  # fmt: skip
        start += len(text) + 1
    nbrag.run(
        collection.writer().write_document(document, chunks, vectors(texts), settings_hash="")
    )
    return [chunk.id for chunk in chunks]


def grow(
    collection: Collection,
    beneath: dict[str, tuple[int, list[str]]],
    texts: dict[str, str],
    *,
    missing: Sequence[str] = (),
    documents: dict[str, str] | None = None,
) -> None:
    """Write a tree: level and children of each summary."""
    links = [
        TreeLink(parent, child, level)
        for parent, (level, children) in beneath.items()
        for child in children
    ]
    rows = [
        Chunk(
            name,
            (documents or {}).get(name, ""),
            texts.get(name, name),
            kind=ChunkKind.BRANCH_SUMMARY,
            token_count=20,
            metadata={"level": level},
        )
        for name, (level, _) in beneath.items()
        if name not in missing
    ]
    made = vectors([row.content for row in rows])
    nbrag.run(collection.writer().write_tree(rows, made, links))


@pytest.fixture
def garden(collection: Collection) -> Collection:
    """Return two documents beneath two clusters and a root; each has a summary of its own."""
    store(collection, "fruit", [f"apple pear fruit{n}" for n in range(4)], kind_of="food")
    store(collection, "tools", [f"spade rake tool{n}" for n in range(4)], kind_of="iron")
    grow(
        collection,
        {
            "fruits": (1, [f"fruit-{n}" for n in range(4)]),
            "tooling": (1, [f"tools-{n}" for n in range(4)] + ["fruit-3"]),
            "of-fruit": (1, [f"fruit-{n}" for n in range(4)]),
            "root": (2, ["fruits", "tooling", "of-fruit"]),
        },
        {
            "fruits": "orchard apple pear overview",
            "tooling": "shed spade rake overview",
            "of-fruit": "everything about apple and pear",
            "root": "garden orchard shed overview",
        },
        documents={"of-fruit": Document("fruit", "").id},
    )
    return collection


def find(collection: Collection, question: str, **options: Any) -> RetrievalResults:
    asking = {name: options.pop(name) for name in ("top_k", "where") if name in options}
    retriever = TreeSearchRetriever(collection, EMBEDDER, **options)
    return nbrag.run(retriever.retrieve(question, **asking))


def found(results: RetrievalResults) -> list[str]:
    return [chunk.id for chunk in results]


def test_is_a_retriever(garden: Collection) -> None:
    assert isinstance(TreeSearchRetriever(garden, EMBEDDER), Retriever)


@pytest.mark.parametrize("way", Ways)
def test_all_levels_are_found_and_told(garden: Collection, way: dict[str, Any]) -> None:
    results = find(garden, "orchard apple overview", top_k=20, **way)
    assert not results.warnings
    assert set(found(results)) == {
        "fruits", "tooling", "of-fruit", "root",
        *(f"fruit-{n}" for n in range(4)), *(f"tools-{n}" for n in range(4)),
    }  # fmt: skip
    assert results[0].id == "fruits"
    by_id = {chunk.id: chunk for chunk in results}
    assert by_id["root"].record["level"] == 2
    assert by_id["root"].record["summary_children"] == ["fruits", "tooling", "of-fruit"]
    assert by_id["root"].record["summary_passages"] == 8
    assert "summary_passages" not in by_id["fruit-0"].record
    for chunk in results:
        stages = [entry.stage for entry in chunk.history]
        level = chunk.record.get("level", 0)
        assert f"level {level}" in stages
        assert stages[-2:] == ["search", "result"]
    assert [row.chunk_id for row in results.trace.stage("level 2").rows] == ["root"]
    assert len(results.trace.stage("level 1").rows) == 3
    assert "tree" in results.trace.stage("search").explanation
    assert results.trace.stage("result").explanation == "160 tokens of 2000"
    scores = [chunk.score for chunk in results]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("way", Ways)
def test_display_says_what_a_summary_sums_up(garden: Collection, way: dict[str, Any]) -> None:
    results = find(garden, "orchard apple overview", top_k=3, **way)
    shown = results._repr_mimebundle_()
    assert "summary of 4 passages (level 1)" in shown["text/plain"]
    assert "summary of 4 passages (level 1)" in shown["text/html"]
    assert "Summary of 4 passages (level 1)" in repr(results[0])
    assert "Summary of 4 passages (level 1)" in results.trace._repr_mimebundle_()["text/plain"]
    row = results.to_dicts()[0]
    assert row["level"] == 1
    assert results.to_arrow().column("summary_children")[0].as_py() == row["summary_children"]


def test_sources_of_a_summary(garden: Collection) -> None:
    passages = nbrag.run(source_passages(garden, "tooling"))
    assert [p.id for p in passages] == [f"tools-{n}" for n in range(4)] + ["fruit-3"]
    assert passages[0].source == "tools"
    assert passages[0].span is not None
    assert [p.id for p in nbrag.run(source_passages(garden, "fruit-1"))] == ["fruit-1"]
    assert nbrag.run(source_passages(garden, "nothing")) == []


@pytest.mark.parametrize("way", Ways)
def test_top_k_and_budget_both_bound(garden: Collection, way: dict[str, Any]) -> None:
    everything = find(garden, "orchard apple overview", top_k=20, **way)
    assert found(find(garden, "orchard apple overview", top_k=3, **way)) == found(everything)[:3]
    results = find(garden, "orchard apple overview", top_k=20, token_budget=65, **way)
    kept, used = [], 0
    for chunk in everything:
        size = chunk.record["token_count"]
        if used + size <= 65:
            kept.append(chunk.id)
            used += size
    assert found(results) == kept
    assert results.metadata["tree_tokens"] == used
    # Too small for anything: the first alone, rather than nothing.
    assert found(find(garden, "orchard apple overview", token_budget=1, **way)) == ["fruits"]


@pytest.mark.parametrize("way", Ways)
def test_leaves_only(garden: Collection, way: dict[str, Any]) -> None:
    results = find(garden, "shed spade tool2", top_k=20, leaves_only=True, **way)
    assert set(found(results)) == {f"{d}-{n}" for d in ("fruit", "tools") for n in range(4)}
    assert results[0].id == "tools-2"


def test_way_down_follows_the_best_of_each_level(garden: Collection) -> None:
    results = find(garden, "shed spade rake", top_k=3, traversal="top_down", branch=1)
    # One of each level: the root, the cluster of tools, its best passage.
    assert {"root", "tooling"} < set(found(results))
    [leaf] = [chunk for chunk in results if "level" not in chunk.record]
    assert leaf.source == "tools"
    levels = [r for r in results.trace.stages if r.stage.startswith("level")]
    assert [(r.stage, len(r.rows), r.explanation) for r in levels] == [
        ("level 2", 1, "1 were looked at"),
        ("level 1", 1, "3 were looked at"),
        ("level 0", 1, "5 were looked at"),
    ]
    # The same width does for no more than three: it is doubled until there are enough.
    assert len(find(garden, "shed spade rake", top_k=7, traversal="top_down", branch=1)) == 7


def test_way_down_gets_no_wider_than_the_token_budget_needs(garden: Collection) -> None:
    def widths(**options: Any) -> list[int]:
        results = find(garden, "shed spade rake", traversal="top_down", branch=1, **options)
        stages = [r for r in results.trace.stages if r.stage.startswith("level")]
        return [len(r.rows) for r in stages]

    # One of each level has 50 tokens; however many are asked for, no more fit.
    assert widths(top_k=100, token_budget=50) == [1, 1, 1]
    assert widths(top_k=100, token_budget=51) == [1, 2, 2]
    assert widths(top_k=100, token_budget=1000) == [1, 3, 8]
    assert len(find(garden, "spade", traversal="top_down", top_k=100, token_budget=50)) >= 3


def test_repeated_texts_fill_no_token_budget(collection: Collection) -> None:
    store(collection, "own", ["apple", "apple", "apple", "apple pear"])
    grow(collection, {"top": (1, [f"own-{n}" for n in range(4)])}, {"top": "fruit"})
    asked = {"traversal": "top_down", "branch": 3, "leaves_only": True, "top_k": 9}
    results = find(collection, "apple", token_budget=20, **asked)
    assert [chunk.content for chunk in results] == ["apple", "apple pear"]


def test_a_stage_that_chooses_among_more_gets_them_beyond_the_budget(garden: Collection) -> None:
    class Last(RetrievalResultProcessor):
        name = "last"

        def candidates_needed(self, top_k: int) -> int:
            return 12

        async def process(
            self, results: RetrievalResults, collection: Collection
        ) -> RetrievalResults:
            return replace(results, chunks=results.chunks[::-1])

    options = SearchOptions(mode="tree", traversal="top_down", token_budget=30, branch=1)
    pipeline = RetrievalPipeline(lambda: EMBEDDER, search=options, result_processors=[Last()])
    results = nbrag.run(pipeline.process(garden, "shed spade rake", top_k=2))
    assert len(results.trace.stage("search").rows) == 12


def test_chunk_beneath_two_summaries_counts_once(garden: Collection) -> None:
    results = find(garden, "apple pear fruit3", top_k=20, traversal="top_down")
    assert found(results).count("fruit-3") == 1


@pytest.mark.parametrize("way", Ways)
def test_filter_on_documents(garden: Collection, way: dict[str, Any]) -> None:
    results = find(garden, "orchard overview", top_k=20, where='kind_of == "food"', **way)
    # Clusters and root mix documents; only the document's own summary has its fields.
    assert set(found(results)) == {"of-fruit", *(f"fruit-{n}" for n in range(4))}


@pytest.mark.parametrize("way", Ways)
def test_filter_on_passages_hides_every_summary(garden: Collection, way: dict[str, Any]) -> None:
    results = find(garden, "orchard overview", top_k=20, where="part == 3", **way)
    assert set(found(results)) == {"fruit-3", "tools-3"}
    # A negation passes rows without the field: what stands beneath them decides.
    results = find(garden, "orchard overview", top_k=20, where="part != 3", **way)
    assert set(found(results)) == {f"{d}-{n}" for d in ("fruit", "tools") for n in range(3)}
    results = find(garden, "orchard overview", top_k=20, where='kind_of != "iron"', **way)
    assert set(found(results)) == {"fruits", "of-fruit", *(f"fruit-{n}" for n in range(4))}
    with pytest.raises(FilterError):
        find(garden, "orchard", where="prt == 3", **way)


def test_filter_still_lets_hidden_summaries_lead(garden: Collection) -> None:
    results = find(garden, "spade", top_k=1, where="part == 2", traversal="top_down", branch=1)
    assert found(results) == ["tools-2"]
    assert [row.chunk_id for row in results.trace.stage("level 1").rows] == ["tooling"]


@pytest.mark.parametrize("way", Ways)
def test_missing_summary_is_passed_through(garden: Collection, way: dict[str, Any]) -> None:
    store(garden, "tools", ["spade rake tool0", "wholly new", "spade rake tool2"], kind_of="iron")
    results = find(garden, "spade rake", top_k=20, **way)
    left = {"fruits", "of-fruit", *(f"fruit-{n}" for n in range(4))}
    assert set(found(results)) == left | {"tools-0", "tools-1", "tools-2"}
    first, second = results.warnings
    assert "2 summaries of 4 are missing" in first
    assert "1 passage stands beneath no summary" in second
    assert "%%rag_ingest" in first
    assert "stage tree" in second


def test_many_passages_beneath_no_summary_are_looked_for_by_a_search(
    collection: Collection,
) -> None:
    store(collection, "own", ["apple one", "apple two"])
    store(collection, "many", [f"word{n} other" for n in range(620)])
    grow(collection, {"top": (1, ["own-0", "own-1"])}, {"top": "apple"})
    results = find(collection, "word77 other", traversal="top_down", leaves_only=True, top_k=4)
    assert results[0].id == "many-77"
    assert len(results) == 4
    assert "620 passages stand beneath no summary" in results.warnings[0]
    results = find(collection, "apple", traversal="top_down", top_k=800, token_budget=100_000)
    assert len(results) == 623
    results = find(
        collection, "word77", traversal="top_down", top_k=9, where='source == "many" and part > 600'
    )
    assert len(results) == 9
    assert all(chunk.record["part"] > 600 for chunk in results)


@pytest.mark.parametrize("way", Ways)
def test_collection_without_a_tree(collection: Collection, way: dict[str, Any]) -> None:
    store(collection, "fruit", [f"apple pear fruit{n}" for n in range(4)])
    results = find(collection, "fruit2", top_k=3, **way)
    assert results[0].id == "fruit-2"
    assert len(results) == 3
    [warning] = results.warnings
    assert "there is no summary tree to search" in warning
    assert "hybrid search was used instead" in warning
    assert "stage tree of %%rag_ingest" in warning
    with pytest.raises(StageError, match="no summary tree"):
        find(collection, "fruit2", strict=True, **way)


class Chosen(RetrievalQueryProcessor):
    """Has the query searched in the tree, as a route does."""

    name = "chosen"

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
        return replace(query, strategy=Strategy.TREE)


def test_a_stage_may_choose_the_tree(garden: Collection) -> None:
    pipeline = RetrievalPipeline(
        lambda: EMBEDDER,
        search=SearchOptions(mode="vector", token_budget=30),
        query_processors=[Chosen()],
    )
    results = nbrag.run(pipeline.process(garden, "orchard apple overview", top_k=9))
    assert found(results)[0] == "fruits"
    assert results.metadata["tree_tokens"] <= 30
    prepared = RetrievalQuery("orchard apple overview", strategy=Strategy.TREE)
    plain = RetrievalPipeline(lambda: EMBEDDER)
    assert found(nbrag.run(plain.process(garden, prepared)))[0] == "fruits"
    # Without it summaries are no part of the search.
    assert all(
        "level" not in chunk.record
        for chunk in nbrag.run(plain.process(garden, "overview", top_k=50))
    )


def test_cell_and_builder() -> None:
    with Workspace(embedder=EMBEDDER) as workspace:
        workspace.ingest("docs", [{"id": "a", "text": "apple pear"}])
        built = workspace.retrieval_pipeline().use_search(
            mode="tree", traversal="top_down", branch=3, token_budget=500
        )
        cell = built.build().to_cell()
        assert "search  mode=tree" in cell
        assert nbrag.PipelineSpec.from_cell(cell).to_cell() == cell
        results = nbrag.run(built.build().process(workspace["docs"], "apple"))
        assert "stage tree of %%rag_ingest" in results.warnings[0]
        with pytest.raises(SpecificationError):
            workspace.retrieval_pipeline().use_search(mode="tree", token_budget=0)


# Any tree ----------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """Draw passages, and levels of summaries with several parents, holes and gaps."""
    count = draw(st.integers(1, 14))
    passages = [f"d-{n}" for n in range(count)]
    beneath: dict[str, tuple[int, list[str]]] = {}
    lower = list(passages)
    for level in range(1, draw(st.integers(1, 4)) + 1):
        names = [f"s{level}{n}" for n in range(draw(st.integers(1, 3)))]
        pool = st.lists(st.sampled_from(lower), min_size=1, max_size=6, unique=True)
        for name in names:
            beneath[name] = (level, draw(pool))
        lower = [*lower, *names] if draw(st.booleans()) else names
    missing = draw(st.lists(st.sampled_from(list(beneath)), unique=True))
    return {"count": count, "beneath": beneath, "missing": missing}


def planted(drawn: dict[str, Any]) -> Collection:
    chance = random.Random(str(drawn))
    collection = MemoryCollection("docs", EMBEDDER.identity)
    words = ["apple", "pear", "spade", "rake", "shed"]
    store(collection, "d", [f"{chance.choice(words)} n{n}" for n in range(drawn["count"])])
    texts = {name: f"{chance.choice(words)} {name}" for name in drawn["beneath"]}
    grow(collection, drawn["beneath"], texts, missing=drawn["missing"])
    return collection


@settings(max_examples=60, deadline=None)
@given(
    trees(),
    st.sampled_from(Ways),
    st.integers(1, 4),
    st.integers(1, 30),
    st.one_of(st.integers(1, 120), st.just(100_000)),
)
def test_any_tree(
    drawn: dict[str, Any], way: dict[str, Any], branch: int, top_k: int, budget: int
) -> None:
    collection = planted(drawn)
    present = set(drawn["beneath"]) - set(drawn["missing"])
    nodes = {f"d-{n}" for n in range(drawn["count"])} | present
    results = find(
        collection, "apple spade", top_k=top_k, token_budget=budget, branch=branch, **way
    )
    ids = found(results)
    assert len(ids) == len(set(ids)) <= top_k
    assert set(ids) <= nodes
    tokens = [chunk.record["token_count"] for chunk in results]
    assert ids
    assert sum(tokens) <= budget or len(tokens) == 1
    assert results.metadata["tree_tokens"] == sum(tokens)
    if budget > 1000:
        assert len(ids) == min(top_k, len(nodes))
    # With room enough every passage and every summary that is there is reached.
    everything = find(
        collection, "apple spade", top_k=100, token_budget=100_000, branch=branch, **way
    )
    assert set(found(everything)) == nodes
    leaves = find(collection, "apple", top_k=100, leaves_only=True, branch=branch, **way)
    assert set(found(leaves)) == {node for node in nodes if node.startswith("d-")}


@settings(max_examples=40, deadline=None)
@given(trees(), st.sampled_from(Ways), st.sets(st.integers(0, 13), min_size=1))
def test_nothing_of_what_a_filter_leaves_out_is_shown(
    drawn: dict[str, Any], way: dict[str, Any], parts: set[int]
) -> None:
    collection = planted(drawn)
    passing = {f"d-{n}" for n in parts if n < drawn["count"]}
    listed = ", ".join(str(n) for n in sorted(set(range(14)) - parts))
    where = f"part not in [{listed}]" if listed else "part != 99"
    # Summaries lack the field, so their own rows pass the negation.
    results = find(collection, "apple", top_k=100, token_budget=10_000, where=where, **way)
    tree = SummaryTree(nbrag.run(collection.tree()))
    expected = {
        name
        for name in set(drawn["beneath"]) - set(drawn["missing"])
        if passing.issuperset(tree.passages_beneath(name))
    }
    assert set(found(results)) == passing | expected
