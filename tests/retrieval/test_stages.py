"""Stages within a pipeline: failures, answers that are none, history, and running once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import nbrag
from nbrag.errors import ChatUnavailable, QueryError, SpecificationError, StageError
from nbrag.protocols import Collection, RetrievalQueryProcessor, RetrievalResultProcessor
from nbrag.retrieval import RetrievalPipeline, RetrievalPipelineBuilder, VectorStoreRetriever
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import (
    QueryVariant,
    RetrievalChunk,
    RetrievalQuery,
    RetrievalResults,
    Strategy,
    VariantKind,
)
from nbrag.workspace import Workspace

COPIES = 1_500


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", [{"id": str(i), "text": f"word{i} text"} for i in range(40)])
        copies = [{"id": f"copy-{i}", "text": "same text"} for i in range(COPIES)]
        others = [{"id": f"other-{i}", "text": f"unlike {i}"} for i in range(4)]
        opened.ingest("copies", [*copies, *others])
        yield opened


class OnResults(RetrievalResultProcessor):
    """A result stage that does what it is told."""

    def __init__(
        self,
        does: Callable[[RetrievalResults], Any],
        *,
        name: str = "stage",
        wants: int = 0,
        after_cut: bool = False,
    ) -> None:
        self.does, self.name, self.wants, self.after_cut = does, name, wants, after_cut
        self.seen: list[int] = []

    def candidates_needed(self, top_k: int) -> int:
        return max(self.wants, top_k)

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        self.seen.append(len(results))
        answer: RetrievalResults = self.does(results)
        return answer


class OnQuery(RetrievalQueryProcessor):
    """A query stage that does what it is told."""

    name = "rewrite"

    def __init__(self, does: Callable[[RetrievalQuery], Any]) -> None:
        self.does = does

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
        answer: RetrievalQuery = self.does(query)
        return answer


def search(
    workspace: Workspace,
    *stages: Any,
    collection: str = "docs",
    strict: bool = False,
    **options: Any,
) -> RetrievalResults:
    pipeline = RetrievalPipeline(
        lambda: workspace.embedder,
        query_processors=[s for s in stages if isinstance(s, RetrievalQueryProcessor)],
        result_processors=[s for s in stages if isinstance(s, RetrievalResultProcessor)],
        strict=strict,
    )
    return nbrag.run(pipeline.process(workspace[collection], "word3 text", **options))


def fail(error: Exception) -> Callable[[Any], Any]:
    def raises(_: Any) -> Any:
        raise error

    return raises


@pytest.mark.parametrize("kind", [OnQuery, OnResults])
@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (fail(ValueError("no luck")), "ValueError: no luck"),
        (fail(StageError("other", "prose came back")), "prose came back"),
        (lambda _: None, "it returned NoneType"),
        (lambda _: "text", "it returned str"),
        (lambda thing: replace(thing, nonsense=1), "TypeError"),
    ],
)
def test_a_failing_stage_is_passed_over_or_raises_when_strict(
    workspace: Workspace, kind: Any, does: Callable[[Any], Any], reason: str
) -> None:
    stage = kind(does)
    plain = search(workspace)
    results = search(workspace, stage)
    assert [c.id for c in results] == [c.id for c in plain]
    (warning,) = results.warnings
    assert warning.startswith(f"stage '{stage.name}' failed and was passed over: ")
    assert reason in warning
    assert results.trace.stage(stage.name).explanation == "failed and was passed over"
    with pytest.raises(StageError, match=reason):
        search(workspace, stage, strict=True)


def test_warnings_of_earlier_stages_are_never_lost(workspace: Workspace) -> None:
    results = search(
        workspace,
        OnQuery(fail(ValueError("first"))),
        OnQuery(lambda query: RetrievalQuery("other words").with_warning("second")),
        OnResults(fail(ValueError("third"))),
        OnResults(lambda results: RetrievalResults(results.query, results.chunks)),
    )
    first, second, third = results.warnings
    assert "first" in first
    assert second == "second"
    assert "third" in third
    assert results.query.text == "word3 text"


def test_each_stage_is_in_the_history_even_when_it_writes_none(workspace: Workspace) -> None:
    def scored(results: RetrievalResults) -> RetrievalResults:
        chunks = tuple(
            replace(chunk, score=100.0 - i) for i, chunk in enumerate(reversed(results.chunks))
        )
        return replace(results, chunks=chunks)

    def ranked(results: RetrievalResults) -> RetrievalResults:
        chunks = [c.ranked("own", i, 1 / i) for i, c in enumerate(results.chunks, start=1)]
        return replace(results, chunks=tuple(chunks))

    results = search(
        workspace,
        OnResults(scored, name="scored", wants=10),
        OnResults(ranked, name="own"),
        OnResults(lambda results: results, name="same"),
        OnResults(lambda results: results, name="same"),
        OnResults(lambda results: results, name="late", after_cut=True),
        top_k=3,
    )
    for rank, chunk in enumerate(results, start=1):
        stages = [entry.stage for entry in chunk.history]
        expected = ["search", "scored", "own", "same", "same", "result", "late"]
        assert stages[stages.index("search") :] == expected
        scores = {entry.stage: entry.score for entry in chunk.history}
        assert (scores["scored"], scores["same"], scores["late"]) == (101 - rank, None, None)
        assert chunk.history[-1].rank == rank
        assert chunk.score == 1 / rank


def test_legs_of_several_variants_are_told_apart(workspace: Workspace) -> None:
    def two(query: RetrievalQuery) -> RetrievalQuery:
        variants = (QueryVariant(query.text), QueryVariant("word9 text", VariantKind.REWRITE))
        return replace(query, variants=variants)

    results = search(workspace, OnQuery(two), top_k=40)
    entries = [{entry.stage: entry.rank for entry in chunk.history} for chunk in results]
    assert set().union(*entries) == {
        "vector 1", "vector 2", "keyword 1", "keyword 2", "search", "result"
    }  # fmt: skip
    by_text = {c.content: e for c, e in zip(results, entries, strict=True)}
    assert by_text["word3 text"]["keyword 1"] == by_text["word9 text"]["keyword 2"] == 1
    assert results.trace.stage("rewrite").explanation == "2 variants"


def test_what_a_stage_drops_stays_dropped_and_it_runs_once(workspace: Workspace) -> None:
    stage = OnResults(lambda r: replace(r, chunks=r.chunks[:2]), wants=12)
    results = search(workspace, stage, top_k=5)
    assert len(results) == 2
    assert stage.seen == [12]


def test_stages_see_each_text_once_however_many_copies_there_are(workspace: Workspace) -> None:
    stage = OnResults(lambda results: results, wants=5)
    results = search(workspace, stage, collection="copies", top_k=5)
    assert stage.seen == [5]
    assert len({chunk.content for chunk in results}) == len(results) == 5
    (copied,) = [chunk for chunk in results if chunk.content == "same text"]
    assert len(copied.record["also_in"]) == COPIES - 1
    assert [record.stage for record in results.trace.stages][-4:] == [
        "search", "distinct", "stage", "result"
    ]  # fmt: skip


def test_fewer_than_asked_when_there_are_no_more(workspace: Workspace) -> None:
    assert len(search(workspace, collection="copies", top_k=50)) == 5


def test_a_stage_may_bring_chunks_of_its_own_but_none_twice(workspace: Workspace) -> None:
    def supplement(results: RetrievalResults) -> RetrievalResults:
        foreign = RetrievalChunk("web-1", "web", "From elsewhere.", 9.0, {"source": "http://x"})
        copy = replace(results.chunks[0], id="web-2")
        return replace(results, chunks=(foreign, *results.chunks, results.chunks[0], copy))

    results = search(workspace, OnResults(supplement), top_k=50)
    assert results[0].id == "web-1"
    assert len(results) == 41
    assert len({chunk.id for chunk in results}) == 41


def test_a_strategy_that_there_is_not_falls_back_visibly(workspace: Workspace) -> None:
    tree = OnQuery(lambda query: replace(query, strategy=Strategy.TREE))
    results = search(workspace, tree, top_k=3)
    assert len(results) == 3
    assert "no summary tree" in results.warnings[0]
    assert "hybrid search was used instead" in results.warnings[0]
    with pytest.raises(StageError, match="no summary tree"):
        search(workspace, tree, strict=True)


def test_a_stage_may_decide_that_nothing_is_searched(workspace: Workspace) -> None:
    none = OnQuery(lambda query: replace(query, strategy=Strategy.NONE))
    assert len(search(workspace, none)) == 0


@pytest.mark.parametrize("top_k", [0, -1, 2.5, "3", None])
def test_top_k_is_a_whole_number_or_the_querys_own(workspace: Workspace, top_k: Any) -> None:
    retriever = VectorStoreRetriever(workspace["docs"], workspace.embedder)
    query = RetrievalQuery("word3", top_k=7)
    if top_k is None:
        assert len(nbrag.run(retriever.retrieve(query))) == 7
        assert len(nbrag.run(retriever.retrieve(query, top_k=2))) == 2
        assert len(nbrag.run(retriever.retrieve("word3"))) == 5
    else:
        with pytest.raises(QueryError, match="top_k"):
            nbrag.run(retriever.retrieve(query, top_k=top_k))


def test_half_a_surrogate_pair_is_refused_in_a_question_and_replaced_in_a_rewrite(
    workspace: Workspace,
) -> None:
    with pytest.raises(QueryError, match="surrogate"):
        workspace.search("word3 \ud800", collection="docs")
    variants = (QueryVariant("word3 \ud800 text", VariantKind.REWRITE),)
    results = search(workspace, OnQuery(lambda query: replace(query, variants=variants)))
    assert results[0].content == "word3 text"


@pytest.mark.parametrize("question", ["nul\0 byte", "😀" * 9, "שלום", "x" * 1_000_000, "a\u2028b"])
def test_strange_questions_are_searched_and_shown(workspace: Workspace, question: str) -> None:
    results = workspace.search(question, collection="docs")
    assert len(results) == 5
    for shown in (results, results.trace):
        assert all(len(text) < 50_000 for text in shown._repr_mimebundle_().values())


@pytest.mark.parametrize("question", [None, 5, b"word3", ["word3"]])
def test_a_question_is_text(workspace: Workspace, question: Any) -> None:
    retriever = VectorStoreRetriever(workspace["docs"], workspace.embedder)
    with pytest.raises(QueryError, match=type(question).__name__):
        nbrag.run(retriever.retrieve(question))


def test_shown_in_the_order_in_which_stages_run(workspace: Workspace) -> None:
    pipeline = (
        workspace.retrieval_pipeline("mine")
        .use_neighbours(before=2)
        .use(OnResults(lambda results: results, name="own"))
        .use_search(mode="vector")
        .use_filter(where="page >= 3")
        .build()
    )
    assert repr(pipeline) == "<RetrievalPipeline filter -> search -> own -> neighbours>"
    lines = pipeline._repr_mimebundle_()["text/plain"].splitlines()
    assert [line.split(maxsplit=1) for line in lines[3:]] == [
        ["filter", 'where="page >= 3"'],
        ["search", "mode=vector"],
        ["own", "an own object"],
        ["neighbours", "before=2"],
    ]
    with pytest.raises(SpecificationError, match="object"):
        pipeline.to_cell()
    unnamed = VectorStoreRetriever(workspace["docs"], workspace.embedder).pipeline
    assert "mode=vector" in unnamed._repr_mimebundle_()["text/plain"]
    with pytest.raises(SpecificationError, match="no specification"):
        unnamed.to_dict()


def test_the_trace_repeats_what_a_stage_says_about_the_whole_set(workspace: Workspace) -> None:
    class Saying(RetrievalResultProcessor):
        name = "saying"

        async def process(
            self, results: RetrievalResults, collection: Collection
        ) -> RetrievalResults:
            told = {**results.metadata, "path": "Correct", "score": 5, "long": "word " * 50}
            return replace(results, metadata=told)

    pipeline = RetrievalPipeline(lambda: workspace.embedder, result_processors=[Saying()])
    results = nbrag.run(pipeline.process(workspace[workspace.collections()[0]], "cat"))
    assert results.trace.stage("saying").explanation == "path Correct, score 5"


def test_a_strict_pipeline_is_built_fluently(workspace: Workspace) -> None:
    chat = ScriptedChatClient(lambda _: ChatUnavailable("no answer."))
    context = replace(workspace.context, chat=lambda: chat)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    stages = builder.use_query_expansion().use_llm_reranking()
    collection = workspace[workspace.collections()[0]]
    lenient = nbrag.run(stages.build().process(collection, "word3 text"))
    assert len(lenient.warnings) == 2
    with pytest.raises(StageError, match="stage 'expand': no answer"):
        nbrag.run(stages.build(strict=True).process(collection, "word3 text"))
    only_reranked = builder.use_llm_reranking().build(strict=True)
    with pytest.raises(StageError, match="stage 'rerank'"):
        nbrag.run(only_reranked.process(collection, "word3 text"))
