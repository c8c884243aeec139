"""The stage ``hyde``: where hypothetical documents go, and where they must not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import nbrag
from nbrag.errors import (
    BudgetExceeded,
    ChatUnavailable,
    ConfigurationError,
    EmbedderMismatch,
    ModelError,
    RateLimited,
    ReplayMissing,
    SpecificationError,
    StageError,
)
from nbrag.protocols import Collection, RetrievalResultProcessor
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.hyde import HydeOptions, HydeQueryTransformer
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
PASSAGE = "The retention period of snapshots is thirty days."
RECORDS = [
    {"id": "retention", "text": "retention period of snapshots: thirty days"},
    {"id": "kept", "text": "backups are described elsewhere"},
    *({"id": f"other-{i}", "text": f"unlike words{i} matter{i} entirely{i}"} for i in range(12)),
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


def builder(
    chat: Any, *, strict: bool = False, embedder: HashEmbedder | None = None
) -> RetrievalPipelineBuilder:
    chosen = embedder or HashEmbedder()
    return RetrievalPipelineBuilder(
        PipelineSpec("retrieval"), BuildContext(lambda: chosen, lambda: chat, strict)
    )


def reply(passage: str = PASSAGE) -> str:
    return json.dumps({"passage": passage})


def numbered(answer: Callable[[int], Any]) -> ScriptedChatClient:
    """A model whose answer depends on which version is asked for; its calls run side by side."""

    def function(messages: Sequence[ChatMessage]) -> Any:
        text = "\n".join(message.content for message in messages)
        return answer(int(text.split("version ")[1].split()[0]))

    return ScriptedChatClient(function)


def search(
    chat: Any,
    collection: Collection,
    *,
    strict: bool = False,
    query: Any = QUESTION,
    **options: Any,
) -> RetrievalResults:
    pipeline = builder(chat, strict=strict).use_hyde(**options).build()
    return nbrag.run(pipeline.process(collection, query, top_k=3))


def transformed(
    chat: Any, query: RetrievalQuery, embedder: HashEmbedder | None = None, **options: Any
) -> RetrievalQuery:
    chosen = embedder or HashEmbedder()
    stage = HydeQueryTransformer(chat, HydeOptions(**options), embedder=lambda: chosen)
    return nbrag.run(stage.process(query, MemoryCollection("docs", HashEmbedder().identity)))


def vector_ids(results: RetrievalResults) -> list[str]:
    return [row.chunk_id for row in results.trace.stage("vector").rows]


def test_hypothetical_documents_lead_the_vector_search(collection: Collection) -> None:
    plain = nbrag.run(builder(None).build().process(collection, QUESTION, top_k=3))
    results = search(ScriptedChatClient(lambda _: reply()), collection)
    (right,) = [c.id for c in results if "retention" in c.source]
    assert vector_ids(results)[0] == right
    assert vector_ids(plain)[0] != right
    assert results.metadata["hyde_hypothetical"] == [PASSAGE] * 4
    assert not results.warnings


def test_the_vector_is_the_mean_of_documents_and_question() -> None:
    chat = numbered(lambda n: reply(f"passage number{n}"))
    embedder = HashEmbedder()
    changed = transformed(chat, RetrievalQuery(QUESTION), embedder, documents=3)
    (variant,) = changed.variants
    texts = [f"passage number{n}" for n in (1, 2, 3)]
    documents = nbrag.run(HashEmbedder().embed_documents(texts))
    own = nbrag.run(HashEmbedder().embed_queries([QUESTION]))
    mean = np.vstack([documents, own]).mean(axis=0)
    assert variant.vector is not None
    assert variant.vector.dtype == np.float32
    assert np.allclose(variant.vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert (variant.text, variant.kind, variant.weight) == (QUESTION, VariantKind.ORIGINAL, 1.0)
    # Each as what it is.
    assert embedder.embedded == texts
    assert embedder.queries == [QUESTION]
    assert changed.text == QUESTION
    assert changed.metadata["hyde_hypothetical"] == texts


def test_documents_stay_out_of_the_keyword_search(collection: Collection) -> None:
    chat = ScriptedChatClient(lambda _: reply())
    plain = nbrag.run(builder(None).build().process(collection, QUESTION, top_k=3))
    results = search(chat, collection)
    keyword = results.trace.stage("keyword")
    assert keyword.rows == plain.trace.stage("keyword").rows
    assert [r.stage for r in results.trace.stages].count("vector") == 1


class Sees(RetrievalResultProcessor):
    """Stands for a reranker: keeps what it was asked."""

    name = "rerank"

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        self.texts += [results.query.text, *(v.text for v in results.query.effective_variants)]
        return results


def test_documents_stay_out_of_reranking(workspace: Workspace) -> None:
    sees = Sees()
    chat = ScriptedChatClient(lambda _: reply())
    pipeline = builder(chat).use_hyde().use(sees).build()
    nbrag.run(pipeline.process(workspace["docs"], QUESTION))
    assert set(sees.texts) == {QUESTION}


def test_each_document_has_a_call_of_its_own_that_no_cache_can_answer() -> None:
    chat = ScriptedChatClient(lambda _: reply())
    transformed(chat, RetrievalQuery(QUESTION), documents=5)
    assert len({call.text for call in chat.calls}) == len(chat.calls) == 5
    assert {call.options["temperature"] for call in chat.calls} == {0.7}
    assert all("max_tokens" not in call.options for call in chat.calls)
    again = ScriptedChatClient(lambda _: reply())
    transformed(again, RetrievalQuery(QUESTION), documents=5)
    assert again.calls == chat.calls


def test_calls_run_side_by_side() -> None:
    class Waits:
        model = "waits"
        running = most = 0

        async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.01)
            self.running -= 1
            return ChatReply(reply())

    chat = Waits()
    transformed(chat, RetrievalQuery(QUESTION), documents=6)
    assert chat.most == 6


def test_tasks_and_languages_have_their_own_words() -> None:
    prompts = set()
    for task in ("web", "claim", "finance", "code"):
        for language in (None, "German"):
            chat = ScriptedChatClient(lambda _: reply())
            query = RetrievalQuery(QUESTION)
            transformed(chat, query, task=task, language=language, documents=1, max_tokens=512)
            (call,) = chat.calls
            assert call.options["max_tokens"] == 512
            assert f'"{QUESTION}"' in call.text
            assert ("in German" in call.text) is (language is not None)
            assert ("in the question's language" in call.text) is (language is None)
            prompts.add(call.text)
    assert len(prompts) == 8


# Together with expand ----------------------------------------------------------------------


REWRITES = json.dumps({"queries": ["retention of snapshots", "storage time"]})


@pytest.mark.parametrize("first", ["expand", "hyde"])
def test_only_the_question_s_own_vector_is_moved(first: str, collection: Collection) -> None:
    def answer(messages: Sequence[ChatMessage]) -> str:
        hyde = "version 1" in messages[-1].content
        return reply("thirty days") if hyde else REWRITES

    embedder = HashEmbedder()
    built = builder(ScriptedChatClient(answer), embedder=embedder)
    if first == "expand":
        built = built.use_query_expansion().use_hyde(documents=1)
    else:
        built = built.use_hyde(documents=1).use_query_expansion()
    results = nbrag.run(built.build().process(collection, QUESTION))
    original, *rewrites = results.query.variants
    assert (original.text, original.kind) == (QUESTION, VariantKind.ORIGINAL)
    assert original.vector is not None
    assert [v.text for v in rewrites] == ["retention of snapshots", "storage time"]
    assert all(v.vector is None for v in rewrites)
    assert sorted(embedder.queries) == sorted([QUESTION, "retention of snapshots", "storage time"])
    assert embedder.embedded == ["thirty days"]
    assert not results.warnings


def test_a_vector_that_the_question_has_already_lends_itself_to_the_mean() -> None:
    own = np.zeros(64, np.float32)
    own[0] = 1
    query = RetrievalQuery(QUESTION, variants=(QueryVariant(QUESTION, vector=own),))
    embedder = HashEmbedder()
    changed = transformed(ScriptedChatClient([reply()]), query, embedder, documents=1)
    (document,) = nbrag.run(HashEmbedder().embed_documents([PASSAGE]))
    mean = own + document
    vector = changed.variants[0].vector
    assert vector is not None
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert not embedder.queries


def test_vectors_that_cancel_each_other_leave_the_question_s_own() -> None:
    (document,) = nbrag.run(HashEmbedder().embed_documents([PASSAGE]))
    query = RetrievalQuery(QUESTION, variants=(QueryVariant(QUESTION, vector=-document),))
    changed = transformed(ScriptedChatClient([reply()]), query, documents=1)
    assert np.array_equal(np.asarray(changed.variants[0].vector), -document)


@pytest.mark.parametrize(
    "query",
    [
        RetrievalQuery(QUESTION, strategy=Strategy.NONE),
        RetrievalQuery(QUESTION, strategy=Strategy.KEYWORD),
        RetrievalQuery("", variants=(QueryVariant("", vector=np.ones(64, np.float32)),)),
        RetrievalQuery(QUESTION, variants=(QueryVariant(QUESTION, legs=frozenset(("keyword",))),)),
    ],
)
def test_nothing_is_paid_for_where_no_vector_is_searched(query: RetrievalQuery) -> None:
    chat = ScriptedChatClient([])
    assert transformed(chat, query) is query
    assert not chat.calls


def test_another_embedder_is_refused_before_anything_is_paid_for(workspace: Workspace) -> None:
    chat = ScriptedChatClient([])
    pipeline = builder(chat, embedder=HashEmbedder(32)).use_hyde().build()
    with pytest.raises(EmbedderMismatch):
        nbrag.run(pipeline.process(workspace["docs"], QUESTION))
    assert not chat.calls


# Replies that are not what was asked for ---------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        f"```json\n{reply()}\n```",
        f"Here it is: {reply()} I hope that helps.",
        f"<think>{reply('thoughts')}</think>\n{reply()}",
    ],
)
def test_a_wrapped_reply_is_understood(words: str) -> None:
    changed = transformed(ScriptedChatClient([words]), RetrievalQuery(QUESTION), documents=1)
    assert changed.metadata["hyde_hypothetical"] == [PASSAGE]


def test_half_a_surrogate_pair_does_not_reach_the_embedder() -> None:
    chat = ScriptedChatClient(['{"passage": "half of a \\ud83d pair"}'])
    embedder = HashEmbedder()
    changed = transformed(chat, RetrievalQuery(QUESTION), embedder, documents=1)
    assert changed.metadata["hyde_hypothetical"] == embedder.embedded == ["half of a \ufffd pair"]


JUNK = [
    "Backups are kept for thirty days.",
    '{"passage": "Backups are',
    "",
    "I'm sorry, but I can't help with that.",
    "<think>what now",
    '{"passage": "  "}',
    '{"passage": ":{ ok"}',
    '{"passage": ["a"]}',
    ChatUnavailable("the connection was dropped."),
    RateLimited("too many requests.", retry_after=1),
    BudgetExceeded("the budget of 3 calls is used up."),
]


@pytest.mark.parametrize("failure", JUNK)
def test_when_all_fail_the_question_goes_on_with_a_warning(
    collection: Collection, failure: Any
) -> None:
    plain = nbrag.run(builder(None).build().process(collection, QUESTION, top_k=3))
    results = search(ScriptedChatClient(lambda _: failure), collection)
    assert [c.id for c in results] == [c.id for c in plain]
    assert results.query.variants == ()
    assert "hyde_hypothetical" not in results.metadata
    (warning,) = results.warnings
    assert warning.startswith("stage 'hyde' failed and was passed over: ")
    with pytest.raises(StageError, match="hyde"):
        search(ScriptedChatClient(lambda _: failure), collection, strict=True)


@pytest.mark.parametrize("failure", JUNK)
def test_when_some_fail_the_others_are_used(workspace: Workspace, failure: Any) -> None:
    chat = numbered(lambda n: failure if n == 2 else reply(f"passage number{n}"))
    results = search(chat, workspace["docs"])
    assert results.metadata["hyde_hypothetical"] == [f"passage number{n}" for n in (1, 3, 4)]
    (warning,) = results.warnings
    assert warning.startswith("stage 'hyde': 1 of 4 hypothetical documents failed (")
    assert warning.endswith("; the other 3 were used")


class SomeHang:
    """A chat model that never answers for some versions, and counts those that it dropped."""

    model = "hangs"

    def __init__(self, hanging: Sequence[int]) -> None:
        self.hanging = hanging
        self.dropped = 0

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        number = int(messages[-1].content.split("version ")[1].split()[0])
        if number in self.hanging:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.dropped += 1
                raise
        return ChatReply(reply(f"passage number{number}"))


def test_a_hanging_document_is_left_out_in_time(workspace: Workspace) -> None:
    chat = SomeHang([1, 3])
    results = search(chat, workspace["docs"], time_limit=0.5)
    assert results.metadata["hyde_hypothetical"] == ["passage number2", "passage number4"]
    assert "2 of 4 hypothetical documents failed (no answer within 0.45 s" in results.warnings[0]
    assert chat.dropped == 2


def test_a_hang_ends_at_the_time_limit(workspace: Workspace) -> None:
    chat = SomeHang([1, 2, 3, 4])
    results = search(chat, workspace["docs"], time_limit=0.05)
    assert len(results) == 3
    assert "no answer within 0.045 seconds" in results.warnings[0]
    assert chat.dropped == 4


def test_a_cancelled_search_leaves_no_call_behind(workspace: Workspace) -> None:
    chat = SomeHang([1, 2, 3, 4])
    stage = HydeQueryTransformer(chat, embedder=lambda: workspace.embedder)

    async def cancelled() -> None:
        task = asyncio.create_task(stage.process(RetrievalQuery(QUESTION), workspace["docs"]))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    nbrag.run(cancelled())
    assert chat.dropped == 4


@pytest.mark.parametrize("error", [ModelError("wrong key"), ReplayMissing("not recorded")])
def test_what_the_person_has_to_mend_is_raised(workspace: Workspace, error: Exception) -> None:
    with pytest.raises(type(error)):
        search(numbered(lambda n: error if n > 2 else reply()), workspace["docs"])


# Views -------------------------------------------------------------------------------------


def test_no_chat_client_or_embedder_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a chat client"):
        HydeQueryTransformer(None, embedder=HashEmbedder)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="an embedder"):
        HydeQueryTransformer(ScriptedChatClient([]), embedder=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("hyde", {}),
        ("hyde  documents=8 task=claim", {"documents": 8, "task": "claim"}),
        (
            'hyde language="Brazilian Portuguese" temperature=0.2 max_tokens=512 time_limit=5',
            {
                "language": "Brazilian Portuguese",
                "temperature": 0.2,
                "max_tokens": 512,
                "time_limit": 5.0,
            },
        ),
        ("hyde language=none max_tokens=none", {}),
    ],
)
def test_cell_builder_and_dict_are_one(written: str, options: dict[str, Any]) -> None:
    from_cell = PipelineSpec.from_cell(f"%%rag_pipeline pipeline\n{written}\nsearch mode=vector")
    spec = builder(ScriptedChatClient([])).use_hyde(**options).use_search(mode="vector").spec
    assert from_cell.stages == spec.stages
    assert PipelineSpec.from_dict(spec.to_dict()).stages == spec.stages
    assert PipelineSpec.from_cell(spec.to_cell()).stages == spec.stages
    assert from_cell.to_python() == spec.to_python()
    assert ".use_hyde(" in spec.to_python()


@pytest.mark.parametrize("text", ["hyde documents=0", "hyde task=poem", "hyde\nhyde"])
def test_options_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(SpecificationError):
        PipelineSpec.from_body("retrieval", text)
