"""The stage ``route``: what each route does to the search, and who chooses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import nbrag
from nbrag.errors import (
    BudgetExceeded,
    ChatUnavailable,
    ConfigurationError,
    FilterError,
    ModelError,
    RateLimited,
    SpecificationError,
    StageError,
)
from nbrag.protocols import Collection
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.route import AdaptiveRouter, RouteOptions
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.stores.filters import parse_filter
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

QUESTION = "how long does Ostara keep backups"
RECORDS = [
    *(
        {
            "id": f"ostara-{i}",
            "text": f"The first product, note{i}.",
            "entities_technologies": ["Ostara", f"part{i}"],
            "entities_people": ["Mira Voss"] if i == 0 else [],
            "product": "ostara",
            "note": i,
        }
        for i in range(4)
    ),
    {
        "id": "lumen",
        "text": "The second product, alone.",
        "entities_technologies": ["Lumen Cloud"],
        "product": "lumen",
        "note": 1,
    },
    *(
        {
            "id": f"other-{i}",
            "text": f"how long does Ostara keep backups, words{i}",
            "product": "none",
            "note": i,
        }
        for i in range(8)
    ),
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", RECORDS)
        opened.ingest("plain", [{"id": str(i), "text": f"text number{i}"} for i in range(6)])
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
    return RetrievalPipelineBuilder(
        PipelineSpec("retrieval"), BuildContext(lambda: embedder, lambda: chat, strict)
    )


def reply(route: str = "simple", **fields: Any) -> str:
    return json.dumps({"route": route, "complexity": "one", **fields})


def search(
    chat: Any,
    collection: Collection,
    *,
    strict: bool = False,
    query: Any = QUESTION,
    top_k: int = 5,
    where: Any = None,
    **options: Any,
) -> RetrievalResults:
    pipeline = builder(chat, strict=strict).use_adaptive_routing(**options).build()
    return nbrag.run(pipeline.process(collection, query, top_k=top_k, where=where))


def routed(
    words: str, collection: Collection, query: RetrievalQuery | str = QUESTION, **options: Any
) -> RetrievalQuery:
    stage = AdaptiveRouter(ScriptedChatClient([words]), RouteOptions(**options))
    asked = RetrievalQuery(query) if isinstance(query, str) else query
    return nbrag.run(stage.process(asked, collection))


def sources(results: RetrievalResults) -> set[str]:
    return {str(chunk.record["product"]) for chunk in results}


# Simple and thematic -----------------------------------------------------------------------


def test_a_simple_question_is_searched_as_the_option_says(collection: Collection) -> None:
    words = reply("simple", reasoning="one fact is asked for")
    for simple, legs in (("hybrid", {"vector", "keyword"}), ("vector", {"vector"})):
        results = search(ScriptedChatClient([words]), collection, simple=simple)
        assert results.query.strategy == simple
        stages = {record.stage for record in results.trace.stages}
        assert stages & {"vector", "keyword"} == legs
        assert results.metadata == {
            "search_paradigm": "simple",
            "complexity": "one",
            "router_reasoning": "one fact is asked for",
        }
        assert not results.warnings
        assert results.query.filter is None


def test_no_reasoning_no_key(workspace: Workspace) -> None:
    query = routed(reply("simple", reasoning="  "), workspace["docs"])
    assert "router_reasoning" not in query.metadata


def test_a_thematic_question_asks_for_the_tree_and_falls_back_visibly(
    collection: Collection,
) -> None:
    query = routed(reply("thematic"), collection)
    assert query.strategy is Strategy.TREE
    assert query.fallback is not None
    assert query.fallback.strategy is None
    results = search(ScriptedChatClient([reply("thematic")]), collection)
    assert len(results) == 5
    assert results.metadata["search_paradigm"] == "thematic"
    (warning,) = results.warnings
    assert "summary tree" in warning
    assert "hybrid search was used instead" in warning
    with pytest.raises(StageError, match="summary tree"):
        search(ScriptedChatClient([reply("thematic")]), collection, strict=True)


# Entities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ostara", "OSTARA", " ostara ", "Ostara's"])
def test_an_entity_that_exists_filters_the_search(collection: Collection, name: str) -> None:
    words = reply("entity-specific", entities=[name])
    results = search(ScriptedChatClient([words]), collection, query=f"what is {name} about")
    assert sources(results) == {"ostara"}
    assert len(results) == 4
    assert results.metadata["router_entities"] == ["Ostara"]
    assert "router_unknown_entities" not in results.metadata
    assert str(results.query.filter) == '"Ostara" in entities_technologies'
    assert results.query.strategy is Strategy.HYBRID
    assert not results.warnings
    assert 'filter "Ostara" in entities_technologies' in results.trace.stage("route").explanation


def test_several_entities_widen_each_other(collection: Collection) -> None:
    words = reply("entity-specific", entities=["Ostara", "lumen cloud"])
    results = search(ScriptedChatClient([words]), collection, query="Ostara or Lumen-Cloud?")
    assert sources(results) == {"ostara", "lumen"}
    assert results.metadata["router_entities"] == ["Ostara", "Lumen Cloud"]


def test_an_entity_that_does_not_exist_filters_nothing(collection: Collection) -> None:
    words = reply("entity-specific", entities=["Zephyr"])
    results = search(ScriptedChatClient([words]), collection, query="how does Zephyr keep backups")
    assert results.query.filter is None
    assert results.query.fallback is None
    assert results.metadata["router_unknown_entities"] == ["Zephyr"]
    assert "router_entities" not in results.metadata
    assert sources(results) == {"none"}
    assert not results.warnings


def test_an_entity_that_the_question_does_not_name_filters_nothing(collection: Collection) -> None:
    query = routed(reply("entity", entities=["Lumen Cloud"]), collection)
    assert query.filter is None
    assert query.metadata["router_unknown_entities"] == ["Lumen Cloud"]


@pytest.mark.parametrize(("complexity", "filtered"), [("one", True), ("several", False)])
def test_a_comparison_with_something_unknown_is_not_narrowed(
    workspace: Workspace, complexity: str, filtered: bool
) -> None:
    words = reply("entity-specific", entities=["Ostara", "Zephyr"], complexity=complexity)
    query = routed(words, workspace["docs"], "how do Ostara and Zephyr compare")
    assert (query.filter is not None) is filtered
    assert query.metadata["router_entities"] == ["Ostara"]
    assert query.metadata["router_unknown_entities"] == ["Zephyr"]


def test_a_filter_that_is_there_already_holds_too(collection: Collection) -> None:
    words = reply("entity-specific", entities=["Ostara"])
    results = search(
        ScriptedChatClient([words]), collection, where="note >= 1", minimum=1, top_k=10
    )
    assert {chunk.record["note"] for chunk in results} == {1, 2, 3}
    assert sources(results) == {"ostara"}
    assert results.query.filter == (
        parse_filter("note >= 1") & parse_filter('"Ostara" in entities_technologies')
    )


def test_too_few_results_widen_the_search_with_a_warning(collection: Collection) -> None:
    words = reply("entity-specific", entities=["Lumen Cloud"])
    question = "how long does Lumen Cloud keep backups"
    results = search(ScriptedChatClient([words]), collection, query=question, where="note >= 1")
    assert len(results) == 5
    assert "none" in sources(results)
    assert results.query.filter == parse_filter("note >= 1")
    assert all(chunk.record["note"] >= 1 for chunk in results)
    assert results.query.strategy is None
    (warning,) = results.warnings
    assert warning.startswith(
        'route entity-specific ("Lumen Cloud" in entities_technologies) found 1 chunk'
    )
    narrow = search(ScriptedChatClient([words]), collection, query=question, minimum=1)
    assert sources(narrow) == {"lumen"}
    assert not narrow.warnings


def test_entities_may_be_in_fields_of_other_names(collection: Collection) -> None:
    words = reply("entity-specific", entities=["Lumen"])
    query = routed(words, collection, "where does lumen run", entity_fields=("product",))
    assert str(query.filter) == 'product == "lumen"'
    with pytest.raises(FilterError, match="prodct"):
        routed(words, collection, entity_fields=("prodct",))
    with pytest.raises(FilterError, match="no text"):
        routed(words, collection, entity_fields=("note",))


def test_a_collection_without_entities_is_searched_whole_with_a_warning(
    workspace: Workspace,
) -> None:
    words = reply("entity-specific", entities=["Ostara"])
    results = search(ScriptedChatClient([words]), workspace["plain"])
    assert len(results) == 5
    (warning,) = results.warnings
    assert "no entities to filter by" in warning


def test_names_among_too_many_values_are_not_missed_silently(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbrag.retrieval.processors._entities._MOST_VALUES", 1)
    known = routed(reply("entity", entities=["Ostara"]), workspace["docs"])
    assert known.filter is not None
    assert not known.warnings
    rare = routed(reply("entity", entities=["part3"]), workspace["docs"], "what is part3")
    assert rare.filter is None
    assert "field 'entities_technologies' has too many values" in rare.warnings[0]


# Complexity --------------------------------------------------------------------------------


def test_no_search_only_where_it_is_allowed(collection: Collection) -> None:
    words = reply("simple", complexity="none")
    results = search(ScriptedChatClient([words]), collection, allow_none=True)
    assert results.query.strategy is Strategy.NONE
    assert not results.chunks
    assert not results.warnings
    assert results.metadata["complexity"] == "none"
    assert len(search(ScriptedChatClient([words]), collection)) == 5


def test_sub_questions_are_searched_along(collection: Collection) -> None:
    questions = ["what is the second product", QUESTION.upper(), "", "which notes", "one more"]
    words = reply("simple", complexity="several", questions=questions)
    results = search(ScriptedChatClient([words]), collection, questions=2, weight=0.5)
    assert [(v.text, v.kind, v.weight) for v in results.query.variants] == [
        (QUESTION, VariantKind.ORIGINAL, 1.0),
        ("what is the second product", VariantKind.REWRITE, 0.5),
        ("which notes", VariantKind.REWRITE, 0.5),
    ]
    assert {"vector 3", "keyword 3"} <= {record.stage for record in results.trace.stages}


def test_sub_questions_of_one_step_are_not_taken(workspace: Workspace) -> None:
    assert not routed(reply("simple", questions=["a part of it"]), workspace["docs"]).variants


def test_earlier_variants_stay(workspace: Workspace) -> None:
    earlier = RetrievalQuery(
        QUESTION, variants=(QueryVariant(QUESTION), QueryVariant("own", VariantKind.REWRITE))
    )
    words = reply("simple", complexity="several", questions=["Own!", "a part of it"])
    query = routed(words, workspace["docs"], earlier)
    assert [v.text for v in query.variants] == [QUESTION, "own", "a part of it"]


# Replies that are not what was asked for ---------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        f"```json\n{reply('thematic')}\n```",
        f"I think: {reply('thematic')} because.",
        f"<think>{reply('simple')}</think>{reply('thematic')}",
        '{"route": "Thematic", "complexity": " ONE "}',
        '{"route": "thematic"}',
    ],
)
def test_a_wrapped_reply_is_understood(workspace: Workspace, words: str) -> None:
    query = routed(words, workspace["docs"])
    assert (query.metadata["search_paradigm"], query.metadata["complexity"]) == ("thematic", "one")


@pytest.mark.parametrize("word", ["entity", "Entity Specific", "entity_specific"])
def test_spellings_of_the_entity_route(workspace: Workspace, word: str) -> None:
    query = routed(reply(word, entities=["Ostara"]), workspace["docs"])
    assert query.metadata["search_paradigm"] == "entity-specific"
    assert query.filter is not None


@pytest.mark.parametrize(
    "failure",
    [
        "This is a simple question.",
        '{"route": "simple", "compl',
        "",
        "I'm sorry, but I can't help with that.",
        "<think>simple",
        reply("graph"),
        reply("simple", complexity="many"),
        '{"route": 3}',
        ChatUnavailable("the connection was dropped."),
        RateLimited("too many requests.", retry_after=1),
        BudgetExceeded("the budget of 3 calls is used up."),
    ],
)
def test_a_bad_answer_means_plain_search_with_a_warning(
    collection: Collection, failure: Any
) -> None:
    plain = nbrag.run(builder(None).build().process(collection, QUESTION))
    results = search(ScriptedChatClient(lambda _: failure), collection)
    assert [c.id for c in results] == [c.id for c in plain]
    assert "search_paradigm" not in results.metadata
    (warning,) = results.warnings
    assert warning.startswith("stage 'route' failed and was passed over: ")
    with pytest.raises(StageError, match="route"):
        search(ScriptedChatClient(lambda _: failure), collection, strict=True)


def test_a_hang_ends_at_the_time_limit(workspace: Workspace) -> None:
    class Hangs:
        model = "hangs"

        async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
            await asyncio.sleep(60)
            raise AssertionError("nobody waits this long")

    results = search(Hangs(), workspace["docs"], time_limit=0.05)
    assert len(results) == 5
    assert "longer than 0.05 seconds" in results.warnings[0]


def test_what_the_person_has_to_mend_is_raised(workspace: Workspace) -> None:
    with pytest.raises(ModelError, match="wrong key"):
        search(ScriptedChatClient([ModelError("wrong key")]), workspace["docs"])


def test_it_is_one_call_with_the_question_and_the_same_each_time(workspace: Workspace) -> None:
    chat = ScriptedChatClient(lambda _: reply())
    for _ in range(2):
        search(chat, workspace["docs"], temperature=0.2, questions=4)
    first, second = chat.calls
    assert first == second
    assert first.options["temperature"] == 0.2
    assert f'"{QUESTION}"' in first.text
    assert "4 sub-questions" in first.text


# Views -------------------------------------------------------------------------------------


def test_what_the_classifier_needs_must_be_there() -> None:
    with pytest.raises(ConfigurationError, match="a chat client"):
        AdaptiveRouter(None)
    with pytest.raises(ConfigurationError, match="an embedder"):
        AdaptiveRouter(None, RouteOptions(classifier="embedding"))


def test_without_a_model_no_chat_client_is_asked_for() -> None:
    def none_configured() -> Any:
        raise ConfigurationError("no chat model")

    context = BuildContext(HashEmbedder, none_configured)
    for classifier in ("rules", "embedding"):
        built = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
        assert built.use_adaptive_routing(classifier=classifier).build()
    with pytest.raises(ConfigurationError, match="no chat model"):
        RetrievalPipelineBuilder(PipelineSpec("retrieval"), context).use_adaptive_routing().build()


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("route", {}),
        (
            "route classifier=rules simple=vector entity_fields=product,entities_people minimum=2",
            {
                "classifier": "rules",
                "simple": "vector",
                "entity_fields": ("product", "entities_people"),
                "minimum": 2,
            },
        ),
        (
            'route classifier=embedding examples="my examples.jsonl" allow_none=true questions=5',
            {
                "classifier": "embedding",
                "examples": "my examples.jsonl",
                "allow_none": True,
                "questions": 5,
            },
        ),
        (
            "route temperature=0.5 weight=0.5 time_limit=5 entity_fields=none",
            {"temperature": 0.5, "weight": 0.5, "time_limit": 5.0},
        ),
    ],
)
def test_cell_builder_and_dict_are_one(written: str, options: dict[str, Any]) -> None:
    from_cell = PipelineSpec.from_cell(f"%%rag_pipeline pipeline\n{written}\nsearch mode=vector")
    built = builder(ScriptedChatClient([])).use_adaptive_routing(**options)
    spec = built.use_search(mode="vector").spec
    assert from_cell.stages == spec.stages
    assert PipelineSpec.from_dict(spec.to_dict()).stages == spec.stages
    assert PipelineSpec.from_cell(spec.to_cell()).stages == spec.stages
    assert from_cell.to_python() == spec.to_python()
    assert ".use_adaptive_routing(" in spec.to_python()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("route classifier=guess", "guess"),
        ("route minimum=0", "minimum"),
        ("route examples=a.jsonl", "classifier=embedding only"),
        ("route classifier=rules temperature=0.5", "classifier=model only"),
        ("route\nroute", "twice"),
    ],
)
def test_options_that_can_not_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        PipelineSpec.from_body("retrieval", text)
