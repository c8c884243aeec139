"""The retrieval pipeline over a real store: counts, history, warnings, views."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbrag
from nbrag.errors import (
    BudgetExceeded,
    ChatError,
    ChatUnavailable,
    EmbedderMismatch,
    FilterError,
    MissingDependency,
    QueryError,
    RateLimited,
    SpecificationError,
    StageError,
)
from nbrag.protocols import Collection, RetrievalQueryProcessor, RetrievalResultProcessor
from nbrag.retrieval import RetrievalPipeline, SearchOptions, VectorStoreRetriever
from nbrag.spec import ModelStageOptions
from nbrag.stores.filters import Field
from nbrag.testing import HashEmbedder
from nbrag.types import (
    Chunk,
    ChunkKind,
    Document,
    Fallback,
    QueryVariant,
    RetrievalQuery,
    RetrievalResults,
    Span,
    Strategy,
    VariantKind,
)
from nbrag.workspace import Workspace

ANIMALS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
RECORDS = [
    {"id": f"{animal}-{i}", "text": f"The {animal} number {i} eats food{i}.", "animal": animal}
    for i in range(5)
    for animal in ANIMALS
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("zoo", RECORDS)
        doubles = [{"id": f"copy-{i}", "text": "The same words."} for i in range(30)]
        others = [{"id": f"other-{i}", "text": f"Other words {i}."} for i in range(8)]
        opened.ingest("doubles", [*doubles, *others])
        yield opened


def ask(workspace: Workspace, question: str, **options: Any) -> RetrievalResults:
    return workspace.search(question, collection=options.pop("collection", "zoo"), **options)


@settings(max_examples=25)
@given(
    st.sampled_from(["cat", "food3", "what does the fox eat", "nothing like it"]),
    st.integers(1, 60),
    st.sampled_from(["hybrid", "vector"]),
)
def test_as_many_as_asked_in_order_once_each(
    workspace: Workspace, question: str, top_k: int, mode: str
) -> None:
    pipeline = workspace.retrieval_pipeline().use_search(mode=mode).build()
    results = nbrag.run(pipeline.process(workspace["zoo"], question, top_k=top_k))
    assert len(results) == min(top_k, 40)
    assert len({chunk.id for chunk in results}) == len(results)
    scores = [chunk.score for chunk in results]
    assert scores == sorted(scores, reverse=True)
    for rank, chunk in enumerate(results, start=1):
        stages = [entry.stage for entry in chunk.history]
        assert stages[-2:] == ["search", "result"]
        assert chunk.history[-1].rank == rank
        assert set(stages[:-2]) <= {"vector", "keyword"}


@given(st.sampled_from(["cat", "food3 number", "what does the fox eat"]), st.integers(1, 39))
def test_scores_do_not_depend_on_how_many_are_asked_for(
    workspace: Workspace, question: str, top_k: int
) -> None:
    pipeline = workspace.retrieval_pipeline().use_search(candidates=top_k).build()
    few = nbrag.run(pipeline.process(workspace["zoo"], question, top_k=top_k))
    deep = nbrag.run(pipeline.process(workspace["zoo"], question, top_k=40))
    scores = {chunk.id: chunk.score for chunk in deep}
    for chunk in few:
        assert chunk.score == pytest.approx(scores[chunk.id], rel=1e-6)


def test_a_narrowed_search_that_finds_too_little_is_widened_visibly(workspace: Workspace) -> None:
    narrow = RetrievalQuery(
        "what does the fox eat",
        strategy=Strategy.KEYWORD,
        filter=Field("animal") == "yak",
        fallback=Fallback(3, 'route entity (animal == "yak")', None, Field("animal") == "fox"),
    )
    pipeline = workspace.retrieval_pipeline().build()
    results = nbrag.run(pipeline.process(workspace["zoo"], narrow, top_k=4))
    assert {chunk.record["animal"] for chunk in results} == {"fox"}
    assert len(results) == 4
    [warning] = results.warnings
    assert warning.startswith('route entity (animal == "yak") found 0 chunks; ')
    within = workspace.retrieval_pipeline().use_filter(where='source.endswith("fox-2")').build()
    both = nbrag.run(within.process(workspace["zoo"], narrow, top_k=4))
    assert [chunk.content for chunk in both] == ["The fox number 2 eats food2."]
    enough = replace(narrow, filter=Field("animal") == "fox")
    kept = nbrag.run(pipeline.process(workspace["zoo"], enough, top_k=4))
    assert not kept.warnings
    assert len(kept) == 4


@pytest.fixture(scope="module")
def asked_about(workspace: Workspace) -> tuple[str, str]:
    """A passage of a collection of its own, and the question row that leads to it."""
    workspace.ingest("asked", [{"id": f"note-{i}", "text": f"Plain words {i}."} for i in range(6)])
    chosen = workspace.search("words 3", collection="asked", top_k=1)[0]
    document = Document("note-3", "Plain words 3.")
    passage = Chunk(chosen.id, document.id, "Plain words 3.", span=Span(0, 14))
    question = Chunk(
        "question-3", document.id, "who painted zebras", kind=ChunkKind.HYPOTHETICAL_QUERY,
        parent_id=passage.id,
    )  # fmt: skip

    async def write() -> None:
        vectors = await workspace.embedder.embed_documents([passage.content, question.content])
        writer = workspace["asked"].writer()
        await writer.write_document(
            document, [passage, question], np.asarray(vectors), settings_hash=""
        )

    nbrag.run(write())
    return passage.id, question.id


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
def test_a_question_leads_to_its_passage_and_is_no_result(
    workspace: Workspace, asked_about: tuple[str, str], mode: str
) -> None:
    passage, question = asked_about
    pipeline = workspace.retrieval_pipeline().use_search(mode=mode, candidates=1).build()
    results = nbrag.run(pipeline.process(workspace["asked"], "who painted zebras", top_k=6))
    assert results[0].id == passage
    assert len({chunk.id for chunk in results}) == len(results) == (1 if mode == "keyword" else 6)
    assert question not in {chunk.id for chunk in results}
    legs = [entry for entry in results[0].history if entry.stage in {"vector", "keyword"}]
    assert legs
    assert all((entry.rank, entry.via) == (1, question) for entry in legs)
    assert all(entry.via is None for chunk in results[1:] for entry in chunk.history)
    assert results.trace is not None
    noted = {record.stage: record.explanation for record in results.trace.stages}
    for entry in legs:
        assert noted[entry.stage].endswith("over 7 rows, 1 question among them")
    assert question not in {row["chunk_id"] for row in results.trace.rows()}


def test_questions_can_be_left_out(workspace: Workspace, asked_about: tuple[str, str]) -> None:
    pipeline = workspace.retrieval_pipeline().use_search(questions=False).build()
    results = nbrag.run(pipeline.process(workspace["asked"], "who painted zebras", top_k=6))
    assert len(results) == 6
    assert asked_about[1] not in {chunk.id for chunk in results}
    assert {entry.stage for chunk in results for entry in chunk.history} == {
        "vector", "search", "result",
    }  # fmt: skip
    assert all(entry.via is None for chunk in results for entry in chunk.history)
    assert results.trace is not None
    assert results.trace.stage("vector").explanation == "exact over 6 rows"
    alone = workspace.retrieval_pipeline().use_search(mode="keyword", questions=False).build()
    assert not nbrag.run(alone.process(workspace["asked"], "who painted zebras"))


def test_a_stage_that_takes_too_long_is_passed_over(workspace: Workspace) -> None:
    class Slow(RetrievalQueryProcessor):
        name = "slow"
        options = ModelStageOptions(time_limit=0.05)

        async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
            await asyncio.sleep(30)
            raise AssertionError

    def found(*, strict: bool) -> RetrievalResults:
        pipeline = RetrievalPipeline(
            lambda: workspace.embedder, query_processors=[Slow()], strict=strict
        )
        return nbrag.run(pipeline.process(workspace["zoo"], "cat"))

    results = found(strict=False)
    assert len(results) == 5
    [warning] = results.warnings
    assert "stage 'slow' failed and was passed over: it took longer than 0.05 seconds" in warning
    with pytest.raises(StageError, match=r"longer than 0\.05 seconds"):
        found(strict=True)


@pytest.mark.parametrize(
    "error", [ChatUnavailable("no answer."), RateLimited("too many."), BudgetExceeded("spent.")]
)
def test_a_model_that_fails_is_a_warning_unless_strict(
    workspace: Workspace, error: ChatError
) -> None:
    class Asking(RetrievalResultProcessor):
        name = "asking"

        async def process(
            self, results: RetrievalResults, collection: Collection
        ) -> RetrievalResults:
            raise error

    def found(*, strict: bool) -> RetrievalResults:
        pipeline = RetrievalPipeline(
            lambda: workspace.embedder, result_processors=[Asking()], strict=strict
        )
        return nbrag.run(pipeline.process(workspace["zoo"], "cat"))

    [warning] = found(strict=False).warnings
    assert warning == f"stage 'asking' failed and was passed over: {error.message}"
    with pytest.raises(StageError, match=error.message):
        found(strict=True)


def test_keyword_search_returns_only_what_shares_a_word(workspace: Workspace) -> None:
    pipeline = workspace.retrieval_pipeline().use_search(mode="keyword").build()
    results = nbrag.run(pipeline.process(workspace["zoo"], "gnu", top_k=20))
    assert {chunk.record["animal"] for chunk in results} == {"gnu"}
    assert len(results) == 5


def test_duplicates_do_not_take_places(workspace: Workspace) -> None:
    results = ask(workspace, "same words", collection="doubles", top_k=5)
    assert len(results) == 5
    assert len({chunk.content for chunk in results}) == 5
    first = next(chunk for chunk in results if chunk.content == "The same words.")
    assert len(first.record["also_in"]) == 29


def test_filter_in_all_three_places(workspace: Workspace) -> None:
    by_text = ask(workspace, "food1", where='animal == "hen"', top_k=9)
    stage = workspace.retrieval_pipeline().use_filter(where='animal == "hen"').build()
    by_stage = nbrag.run(stage.process(workspace["zoo"], "food1", top_k=9))
    both = nbrag.run(stage.process(workspace["zoo"], "food1", top_k=9, where='animal == "ant"'))
    assert [c.id for c in by_text] == [c.id for c in by_stage]
    assert {c.record["animal"] for c in by_text} == {"hen"}
    assert len(both) == 0


@pytest.mark.parametrize(
    ("question", "options", "error", "words"),
    [
        ("", {}, QueryError, "empty"),
        (" \n ", {}, QueryError, "empty"),
        ("x", {"top_k": 0}, QueryError, "top_k"),
        ("x", {"where": "anmal == 'cat'"}, FilterError, "animal"),
        ("x", {"where": "animal =="}, FilterError, ""),
    ],
)
def test_wrong_questions(
    workspace: Workspace, question: str, options: dict[str, Any], error: type, words: str
) -> None:
    with pytest.raises(error) as caught:
        ask(workspace, question, **options)
    assert words in str(caught.value)


def test_other_embedder_is_refused_only_where_vectors_are_needed(workspace: Workspace) -> None:
    other = HashEmbedder(dimension=16)
    with pytest.raises(EmbedderMismatch, match="zoo"):
        nbrag.run(VectorStoreRetriever(workspace["zoo"], other).retrieve("cat"))
    words = VectorStoreRetriever(workspace["zoo"], other, mode="keyword")
    assert len(nbrag.run(words.retrieve("cat", top_k=3))) == 3


class _Fails(RetrievalResultProcessor):
    name = "fails"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        raise self.error


def test_a_failing_stage_is_a_warning_unless_strict(workspace: Workspace) -> None:
    pipeline = workspace.retrieval_pipeline().use(_Fails(ValueError("no luck"))).build()
    results = nbrag.run(pipeline.process(workspace["zoo"], "cat"))
    assert len(results) == 5
    (warning,) = results.warnings
    assert "'fails'" in warning
    assert "no luck" in warning
    strict = RetrievalPipeline(
        lambda: workspace.embedder, result_processors=[_Fails(ValueError("no luck"))], strict=True
    )
    with pytest.raises(StageError, match="no luck"):
        nbrag.run(strict.process(workspace["zoo"], "cat"))


def test_what_the_person_must_mend_is_never_a_warning(workspace: Workspace) -> None:
    error = MissingDependency("reranking", "somepackage", "extra")
    pipeline = workspace.retrieval_pipeline().use(_Fails(error)).build()
    with pytest.raises(MissingDependency):
        nbrag.run(pipeline.process(workspace["zoo"], "cat"))


class _Rewrites(RetrievalQueryProcessor):
    name = "rewrites"

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
        variants = (
            QueryVariant(query.text),
            QueryVariant("hen", VariantKind.REWRITE),
            QueryVariant("bee bee", VariantKind.HYPOTHETICAL, legs=frozenset({"vector"})),
        )
        return replace(query, text="changed", variants=variants, metadata={"route": "x"})


def test_variants_search_but_the_question_stays(workspace: Workspace) -> None:
    pipeline = workspace.retrieval_pipeline().use(_Rewrites()).build()
    results = nbrag.run(pipeline.process(workspace["zoo"], "cat", top_k=15))
    assert results.query.text == "cat"
    assert results.metadata["route"] == "x"
    names = {record.stage for record in results.trace.stages}
    assert {"vector 1", "vector 2", "vector 3", "keyword 1", "keyword 2"} <= names
    assert "keyword 3" not in names
    assert {"cat", "hen", "bee"} <= {chunk.record["animal"] for chunk in results}


class _WantsMany(RetrievalResultProcessor):
    name = "wants"
    seen = 0

    def candidates_needed(self, top_k: int) -> int:
        return top_k * 6

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        self.seen = len(results)
        return replace(results, chunks=tuple(reversed(results.chunks)))


def test_stages_get_the_candidates_they_ask_for(workspace: Workspace) -> None:
    stage = _WantsMany()
    pipeline = workspace.retrieval_pipeline().use(stage).build()
    results = nbrag.run(pipeline.process(workspace["zoo"], "cat", top_k=5))
    assert stage.seen == 30
    assert len(results) == 5


def test_mmr_prefers_difference() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        texts = ["apple pie recipe", "apple pie recipe now", "apple pie recipe again", "apple tree"]
        workspace.ingest("docs", [{"id": str(i), "text": t} for i, t in enumerate(texts)])
        plain = workspace.retrieval_pipeline().use_search(mode="vector")
        relevant = nbrag.run(plain.build().process(workspace["docs"], "apple pie recipe", top_k=2))
        varied = plain.use_mmr(diversity=0.9).build()
        diverse = nbrag.run(varied.process(workspace["docs"], "apple pie recipe", top_k=2))
        same = plain.use_mmr(diversity=0).build()
        unchanged = nbrag.run(same.process(workspace["docs"], "apple pie recipe", top_k=2))
    assert relevant[0].content == diverse[0].content == "apple pie recipe"
    assert diverse[1].content == "apple tree"
    assert [c.id for c in unchanged] == [c.id for c in relevant]


LONG = "\n\n".join(
    f"# Part {part}\n\n"
    + "\n\n".join(f"Sentence {part}{i} about {w}." for i, w in enumerate(ANIMALS))
    for part in "AB"
)


@pytest.mark.parametrize(("within", "sections"), [("section", 1), ("document", 2)])
def test_neighbours_widen_and_merge(within: str, sections: int, tmp_path: Any) -> None:
    (tmp_path / "long.md").write_text(LONG, encoding="utf-8")
    with Workspace(embedder=HashEmbedder()) as workspace:
        spec = nbrag.PipelineSpec("ingestion", "docs").with_stage("chunk", max_tokens=24)
        workspace.ingest("docs", tmp_path, spec=spec)
        pipeline = (
            workspace.retrieval_pipeline()
            .use_search(mode="keyword")
            .use_neighbours(before=9, after=9, within=within)
            .build()
        )
        results = nbrag.run(pipeline.process(workspace["docs"], "Sentence B0 ant", top_k=1))
        (chunk,) = results
        text = nbrag.run(workspace["docs"].document_text(chunk.document_id))
        assert chunk.span is not None
        assert text[chunk.span.start : chunk.span.end] == chunk.content
        assert ("Sentence A7" in chunk.content) is (sections == 2)
        assert all(f"Sentence B{i}" in chunk.content for i in range(8))
        ((start, end),) = chunk.record["hit_spans"]
        assert "Sentence B0" in text[start:end]
        merged = nbrag.run(pipeline.process(workspace["docs"], "Sentence B0 B7", top_k=2))
        assert len(merged) == 1
        assert len(merged[0].record["hit_spans"]) == 2


def test_content_names_the_field_that_is_the_text(workspace: Workspace) -> None:
    results = ask(workspace, "cat", content="animal", top_k=3)
    assert all(chunk.content in ANIMALS for chunk in results)


def test_magics_await_and_scripts_mix(workspace: Workspace) -> None:
    pipeline = workspace.retrieval_pipeline().use_search(mode="hybrid").build()
    retriever = pipeline.as_retriever(workspace["zoo"])

    async def cell() -> list[str]:
        found = await asyncio.gather(*(retriever.retrieve(a, top_k=1) for a in ANIMALS))
        return [results[0].record["animal"] for results in found]

    assert asyncio.run(cell()) == ANIMALS
    assert nbrag.run(cell()) == ANIMALS
    assert [nbrag.run(retriever.retrieve(a, top_k=1))[0].record["animal"] for a in ANIMALS] == (
        ANIMALS
    )


def test_pipeline_is_a_context_manager_and_closes_its_stages(workspace: Workspace) -> None:
    closed = []

    class Holds(_WantsMany):
        async def aclose(self) -> None:
            closed.append(self.name)

    with workspace.retrieval_pipeline().use(Holds()).build() as pipeline:
        nbrag.run(pipeline.process(workspace["zoo"], "cat"))
    assert closed == ["wants"]


def test_views_round_trip_and_run_alike(workspace: Workspace) -> None:
    builder = (
        workspace.retrieval_pipeline("mine")
        .use_filter(where='animal in ["cat", "dog"]')
        .use_search(mode="hybrid", fusion="rrf")
        .use_mmr(diversity=0.2)
    )
    again = nbrag.PipelineSpec.from_cell(builder.build().to_cell())
    workspace.save_pipeline(again)
    first = nbrag.run(builder.build().process(workspace["zoo"], "food2 cat"))
    second = ask(workspace, "food2 cat", pipeline="mine")
    assert [(c.id, c.score) for c in first] == [(c.id, c.score) for c in second]
    assert again == workspace.pipeline_spec("mine")
    with pytest.raises(SpecificationError, match="filter"):
        workspace.retrieval_pipeline().use_filter(where="animal ==")


def test_each_stage_logs_one_structured_line(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="nbrag.retrieval"):
        ask(workspace, "cat")
    names = [record.message for record in caplog.records]
    assert names == ["nbrag.stage search", "retrieval zoo"]
    assert caplog.records[0].nbrag["milliseconds"] > 0
    assert "cat" not in str([record.nbrag for record in caplog.records])


def test_trace_has_every_candidate(workspace: Workspace) -> None:
    results = ask(workspace, "cat food1", top_k=3)
    rows = results.trace.rows()
    assert {row["stage"] for row in rows} == {"vector", "keyword", "search", "result"}
    assert sum(row["stage"] == "vector" for row in rows) == 40
    assert [r["chunk_id"] for r in rows if r["stage"] == "result"] == [c.id for c in results]
    with pytest.raises(LookupError, match="vector"):
        results.trace.stage("nonsense")
    text = results.trace._repr_mimebundle_()["text/plain"]
    assert "exact over 40 rows" in text


def test_search_options_have_bounds() -> None:
    with pytest.raises(ValueError, match="vector_weight"):
        SearchOptions(vector_weight=2)
