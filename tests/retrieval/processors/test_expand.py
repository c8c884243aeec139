"""The stage ``expand``: which rewrites are searched, and what bad replies come to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbrag
from nbrag.errors import (
    BudgetExceeded,
    ChatUnavailable,
    ConfigurationError,
    ModelError,
    RateLimited,
    SpecificationError,
    StageError,
)
from nbrag.protocols import Collection, RetrievalQueryProcessor, RetrievalResultProcessor
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors._questions import clean_rewrites, words_of
from nbrag.retrieval.processors.expand import ExpandOptions, MultiQueryExpander
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.stores.memory import MemoryCollection
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import (
    ChatMessage,
    ChatReply,
    QueryVariant,
    RetrievalQuery,
    RetrievalResults,
    Strategy,
    VariantKind,
)
from nbrag.workspace import Workspace

QUESTION = "how long are backups kept"
RECORDS = [
    {"id": "kept", "text": "how long are backups kept: not here"},
    {"id": "retention", "text": "retention period of snapshots: thirty days"},
    *({"id": f"other-{i}", "text": f"unlike words{i} matter{i}"} for i in range(12)),
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", RECORDS)
        yield opened


@pytest.fixture(scope="module", params=["duckdb", "memory"])
def collection(request: pytest.FixtureRequest, workspace: Workspace) -> Collection:
    if request.param == "duckdb":
        return workspace["docs"]
    memory = MemoryCollection("docs", workspace.embedder.identity)
    nbrag.run(workspace.ingestion_pipeline().build().run(RECORDS, memory))
    return memory


def builder(chat: Any, *, strict: bool = False) -> RetrievalPipelineBuilder:
    embedder = HashEmbedder()
    context = BuildContext(lambda: embedder, lambda: chat, strict)
    return RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)


def reply(*queries: str) -> str:
    return json.dumps({"queries": queries})


def search(
    chat: Any,
    collection: Collection,
    *,
    strict: bool = False,
    query: Any = QUESTION,
    **options: Any,
) -> RetrievalResults:
    pipeline = builder(chat, strict=strict).use_query_expansion(**options).build()
    return nbrag.run(pipeline.process(collection, query, top_k=3))


def variants_for(words: str, question: Any = QUESTION, **options: Any) -> list[tuple[str, str]]:
    stage = MultiQueryExpander(ScriptedChatClient([words]), ExpandOptions(**options))
    query = question if isinstance(question, RetrievalQuery) else RetrievalQuery(question)
    changed = nbrag.run(stage.process(query, MemoryCollection("x", HashEmbedder().identity)))
    return [(variant.text, variant.kind.value) for variant in changed.variants]


def test_rewrites_find_what_the_question_does_not(collection: Collection) -> None:
    chat = ScriptedChatClient([reply("retention period of snapshots")])
    plain = nbrag.run(builder(None).build().process(collection, QUESTION, top_k=3))
    assert "retention" not in [c.source.removeprefix("record:") for c in plain][:2]
    results = search(chat, collection)
    sources = [chunk.source for chunk in results]
    assert any("retention" in source for source in sources[:2])
    assert any("kept" in source for source in sources[:2])
    assert results.query.text == QUESTION
    assert not results.warnings
    assert results.trace.stage("expand").explanation == "2 variants"


def test_every_form_is_searched_on_both_legs_and_fused_once(collection: Collection) -> None:
    chat = ScriptedChatClient([reply("retention period", "snapshots thirty days")])
    results = search(chat, collection)
    names = [record.stage for record in results.trace.stages]
    assert [n for n in names if n.startswith("vector")] == ["vector 1", "vector 2", "vector 3"]
    assert [n for n in names if n.startswith("keyword")] == ["keyword 1", "keyword 2", "keyword 3"]
    assert names.count("search") == 1
    assert results.query.variants[0].text == QUESTION


class SeesAll(RetrievalResultProcessor):
    """Stands for a reranker: keeps what it was given to rank."""

    name = "rerank"

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        self.calls.append((results.query.text, len({chunk.id for chunk in results.chunks})))
        return results


def test_reranking_happens_once_after_it_with_the_question_as_asked(workspace: Workspace) -> None:
    reranker = SeesAll()
    chat = ScriptedChatClient([reply("retention period of snapshots", "thirty days")])
    pipeline = builder(chat).use_query_expansion().use(reranker).build()
    nbrag.run(pipeline.process(workspace["docs"], QUESTION, top_k=3))
    assert reranker.calls == [(QUESTION, 3)]


def test_the_question_comes_first_and_keeps_its_full_weight() -> None:
    stage = MultiQueryExpander(
        ScriptedChatClient([reply("retention period", QUESTION)]), ExpandOptions(weight=0.4)
    )
    changed = nbrag.run(
        stage.process(RetrievalQuery(QUESTION), MemoryCollection("x", HashEmbedder().identity))
    )
    assert [(v.text, v.weight, v.kind) for v in changed.variants] == [
        (QUESTION, 1.0, VariantKind.ORIGINAL),
        ("retention period", 0.4, VariantKind.REWRITE),
    ]


@pytest.mark.parametrize(
    ("queries", "kept"),
    [
        (["", "  ", "retention period"], ["retention period"]),
        (["How long are  BACKUPS kept?", "retention period"], ["retention period"]),
        (["retention period", "Retention-Period!", "retention\nperiod"], ["retention period"]),
        (["a", "?!", "ab", "retention"], ["retention"]),
        (["備份", "備"], ["備份"]),
        (["x" * 2000, "retention"], ["retention"]),
        (["sort in C", "sort in C#", "sort in C++"], ["sort in C", "sort in C#", "sort in C++"]),
        (["1. retention", "2) snapshots kept"], ["retention", "snapshots kept"]),
        (["3. Oktober Feiertag", "snapshots kept"], ["3. Oktober Feiertag", "snapshots kept"]),
        (["half \ud83d pair"], ["half \ufffd pair"]),
        (["one aa", "two bb", "three cc", "four dd"], ["one aa", "two bb", "three cc"]),
    ],
)
def test_what_is_no_further_question_is_dropped(queries: list[str], kept: list[str]) -> None:
    expected = [(QUESTION, "original"), *((text, "rewrite") for text in kept)]
    assert variants_for(reply(*queries)) == expected


@given(st.lists(st.text(max_size=20)), st.integers(1, 5), st.text(max_size=20))
def test_clean_rewrites_are_few_distinct_and_no_repeats(
    texts: list[str], most: int, question: str
) -> None:
    kept = clean_rewrites(texts, [question], most)
    keys = [words_of(text) for text in kept]
    assert len(kept) <= most
    assert len(set(keys)) == len(keys)
    assert words_of(question) not in keys
    assert all(key.strip() for key in keys)


def test_forms_of_earlier_stages_and_their_vectors_stay() -> None:
    import numpy as np

    vector = np.ones(64, np.float32)
    earlier = RetrievalQuery(
        QUESTION,
        variants=(
            QueryVariant("a hint", VariantKind.HYPOTHETICAL, legs=frozenset(("vector",))),
            QueryVariant(QUESTION, vector=vector),
        ),
    )
    stage = MultiQueryExpander(ScriptedChatClient([reply("retention period", "A hint!")]))
    changed = nbrag.run(stage.process(earlier, MemoryCollection("x", HashEmbedder().identity)))
    assert [v.text for v in changed.variants] == [QUESTION, "a hint", "retention period"]
    assert changed.variants[0].vector is vector


def test_the_question_is_added_to_prepared_forms_that_lack_it() -> None:
    prepared = RetrievalQuery(QUESTION, variants=(QueryVariant("own form", VariantKind.REWRITE),))
    assert variants_for(reply("retention period"), prepared) == [
        (QUESTION, "original"),
        ("own form", "rewrite"),
        ("retention period", "rewrite"),
    ]


@pytest.mark.parametrize(
    "query", [RetrievalQuery(QUESTION, strategy=Strategy.NONE), RetrievalQuery("  ")]
)
def test_nothing_is_paid_for_a_query_that_is_not_searched_by_words(query: RetrievalQuery) -> None:
    chat = ScriptedChatClient([])
    stage = MultiQueryExpander(chat)
    changed = nbrag.run(stage.process(query, MemoryCollection("x", HashEmbedder().identity)))
    assert changed == query
    assert not chat.calls


def test_the_prompt_holds_the_question_and_as_many_forms_as_asked(workspace: Workspace) -> None:
    chat = ScriptedChatClient([reply("retention period"), reply("retention period")])
    for _ in range(2):
        search(chat, workspace["docs"], variants=5, temperature=0.3)
    first, second = chat.calls
    assert first == second
    assert first.options["temperature"] == 0.3
    assert f'"{QUESTION}"' in first.text
    lines = first.text.splitlines()
    assert [line[0] for line in lines if line[:1].isdigit()] == list("12345")
    forms = [line[3:] for line in lines if line[:1].isdigit()]
    assert len(set(forms[:3])) == 3


# Replies that are not what was asked for ---------------------------------------------------


GOOD = reply("retention period of snapshots")


@pytest.mark.parametrize(
    "words",
    [
        f"```json\n{GOOD}\n```",
        f"Sure! Here you are:\n{GOOD}\nAnything else?",
        f'<think>{{"queries": ["wrong one"]}} or not</think>{GOOD}',
        '["retention period of snapshots"]',
    ],
)
def test_a_wrapped_reply_is_understood(words: str) -> None:
    assert variants_for(words)[1:] == [("retention period of snapshots", "rewrite")]


def test_the_second_try_counts() -> None:
    stage = MultiQueryExpander(ScriptedChatClient(["no JSON, sorry", GOOD]))
    query = RetrievalQuery(QUESTION)
    changed = nbrag.run(stage.process(query, MemoryCollection("x", HashEmbedder().identity)))
    assert len(changed.variants) == 2


JUNK = [
    "You could ask for the retention period.",
    '{"queries": ["retention',
    "",
    "I'm sorry, but I can't help with that.",
    "<think>what now",
    '{"queries": []}',
    '{"queries": "retention"}',
    reply(QUESTION.upper(), "  "),
    ChatReply("", finish_reason="content_filter"),
]
FAILURES = [
    ChatUnavailable("the connection was dropped."),
    RateLimited("too many requests.", retry_after=1),
    BudgetExceeded("the budget of 3 calls is used up."),
]


@pytest.mark.parametrize("failure", [*JUNK, *FAILURES])
def test_a_bad_answer_leaves_the_question_alone_with_a_warning(
    collection: Collection, failure: Any
) -> None:
    plain = nbrag.run(builder(None).build().process(collection, QUESTION, top_k=3))
    results = search(ScriptedChatClient(lambda _: failure), collection)
    assert [c.id for c in results] == [c.id for c in plain]
    assert results.query.variants == ()
    (warning,) = results.warnings
    assert warning.startswith("stage 'expand' failed and was passed over: ")
    with pytest.raises(StageError, match="expand"):
        search(ScriptedChatClient(lambda _: failure), collection, strict=True)


class Hangs:
    """A chat model that never answers."""

    model = "hangs"

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        await asyncio.sleep(60)
        raise AssertionError("nobody waits this long")


def test_a_hang_ends_at_the_time_limit(workspace: Workspace) -> None:
    results = search(Hangs(), workspace["docs"], time_limit=0.05)
    assert len(results) == 3
    assert "longer than 0.05 seconds" in results.warnings[0]


def test_what_the_person_has_to_mend_is_raised(workspace: Workspace) -> None:
    with pytest.raises(ModelError, match="wrong key"):
        search(ScriptedChatClient([ModelError("wrong key")]), workspace["docs"])


# Views -------------------------------------------------------------------------------------


def test_no_chat_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expand"):
        MultiQueryExpander(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("expand", {}),
        ("expand  variants=5  weight=0.5  temperature=0.3", None),
        ("expand variants=4 time_limit=5", {"variants": 4, "time_limit": 5.0}),
    ],
)
def test_cell_builder_and_dict_are_one(written: str, options: dict[str, Any] | None) -> None:
    if options is None:
        options = {"variants": 5, "weight": 0.5, "temperature": 0.3}
    from_cell = PipelineSpec.from_cell(f"%%rag_pipeline pipeline\n{written}\nsearch mode=vector")
    built = builder(ScriptedChatClient([])).use_query_expansion(**options)
    spec = built.use_search(mode="vector").spec
    assert from_cell.stages == spec.stages
    assert PipelineSpec.from_dict(spec.to_dict()).stages == spec.stages
    assert PipelineSpec.from_cell(spec.to_cell()).stages == spec.stages
    assert from_cell.to_python() == spec.to_python()
    assert ".use_query_expansion(" in spec.to_python()


@pytest.mark.parametrize("text", ["expand variants=0", "expand weight=1.5", "expand\nexpand"])
def test_options_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(SpecificationError):
        PipelineSpec.from_body("retrieval", text)


def test_it_is_a_query_processor() -> None:
    assert isinstance(MultiQueryExpander(ScriptedChatClient([])), RetrievalQueryProcessor)
