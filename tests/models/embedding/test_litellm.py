from __future__ import annotations

import asyncio

import numpy as np
import pytest

from nbrag.background import run
from nbrag.errors import ConfigurationError, ModelError
from nbrag.models.embedding.litellm import LiteLLMEmbedder
from nbrag.protocols import Embedder

SECRET = "sk-test-0123456789abcdef"
MODEL = "openai/text-embedding-3-small"


def embedder_of(server, **options) -> LiteLLMEmbedder:
    options = {"dimension": 5, "attempts": 3, "timeout": 5, **options}
    return LiteLLMEmbedder(options.pop("model", MODEL), api_base=server.url, **options)


def expected(texts):
    rows = np.array([[len(text) + 1, *([ord(text[0]) % 7] * 4)] for text in texts], dtype=float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def test_vectors_come_back_in_order_and_scaled(server):
    embedder = embedder_of(server, batch_size=3)
    texts = [f"{letter} text" * (place + 1) for place, letter in enumerate("abcdefg")]
    vectors = await embedder.embed_documents(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected(texts), atol=1e-6)
    assert sorted(len(request["input"]) for request in server.requests) == [1, 3, 3]
    assert server.keys == [f"Bearer {SECRET}"] * 3
    assert isinstance(embedder, Embedder)


async def test_a_reply_in_another_order_is_sorted(server):
    server.script.append(lambda rows: rows[::-1])
    vectors = await embedder_of(server).embed_documents(["aaa", "bb", "c"])
    np.testing.assert_allclose(vectors, expected(["aaa", "bb", "c"]), atol=1e-6)


async def test_prefixes_and_options_go_to_their_own_calls(server):
    embedder = embedder_of(
        server, query_prefix="query: ", document_prefix="passage: ", query_options={"user": "me"}
    )
    await embedder.embed_documents(["one"])
    await embedder.embed_queries(["two"])
    assert [request["input"] for request in server.requests] == [["passage: one"], ["query: two"]]
    assert [request.get("user") for request in server.requests] == [None, "me"]
    assert embedder.identity.query_prefix == "query: "


async def test_concurrency_is_bounded(server):
    server.pause = 0.05
    await embedder_of(server, batch_size=1, concurrency=2).embed_documents(list("abcdefgh"))
    assert len(server.requests) == 8
    assert server.most_active == 2


async def test_retry_after_is_waited_for(server):
    server.script.append((429, {"Retry-After": "1"}))
    vectors = await embedder_of(server).embed_documents(["a"])
    assert vectors.shape == (1, 5)
    assert len(server.times) == 2
    assert server.times[1] - server.times[0] >= 0.95


async def test_server_errors_are_tried_again_and_then_told(server):
    server.script.append((500, {}))
    assert (await embedder_of(server).embed_queries(["a"])).shape == (1, 5)
    assert len(server.requests) == 2
    server.script.extend([(500, {})] * 2)
    with pytest.raises(ModelError, match="it went wrong with 500") as caught:
        await embedder_of(server, attempts=2).embed_queries(["a"])
    assert len(server.requests) == 4
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_refused_key_is_told_at_once_without_the_key(server):
    server.script.append((401, {}))
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
        await embedder_of(server).embed_queries(["a"])
    assert len(server.requests) == 1
    assert "***" in caught.value.message
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_slow_server_times_out(server):
    server.script.append("slow")
    with pytest.raises(ModelError, match=r"(?i)time") as caught:
        await embedder_of(server, timeout=0.2, attempts=1).embed_queries(["a"])
    assert "timeout=" in caught.value.hint


async def test_no_server_is_told(server):
    embedder = LiteLLMEmbedder(MODEL, api_base="http://127.0.0.1:9/v1", attempts=1)
    with pytest.raises(ModelError, match=MODEL) as caught:
        await embedder.embed_queries(["a"])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], "answered 2 texts with 1 vectors"),
        (lambda rows: [*rows, rows[0]], "answered 2 texts with 3 vectors"),
        (lambda rows: [rows[0], rows[0]], "some of them twice"),
        (lambda rows: [row | {"embedding": [1.0]} for row in rows], "length 1, not 5"),
        (lambda rows: [row | {"embedding": [0.0] * 5} for row in rows], "zero"),
    ],
)
async def test_a_wrong_reply_is_refused(server, change, message):
    server.script.append(change)
    with pytest.raises(ModelError, match=message):
        await embedder_of(server).embed_documents(["a", "b"])
    assert len(server.requests) == 1


async def test_the_dimension_is_asked_for_where_it_is_given(server):
    embedder = embedder_of(server, dimension=3)
    assert (await embedder.embed_documents(["a"])).shape == (1, 3)
    assert server.requests[0]["dimensions"] == 3
    assert embedder.identity.dimension == 3


async def test_an_unknown_dimension_is_learnt(server):
    embedder = embedder_of(server, dimension=None, model="openai/made-up")
    await embedder.embed_documents(["a"])
    assert embedder.identity.dimension == 5
    assert len(server.requests) == 1
    probing = embedder_of(server, dimension=None, model="openai/made-up")
    assert probing.identity.dimension == 5
    assert len(server.requests) == 2
    assert (await probing.embed_documents([])).shape == (0, 5)


def test_a_known_dimension_and_limit_need_no_call():
    embedder = LiteLLMEmbedder()
    assert embedder.identity.dimension == 1536
    assert embedder.max_tokens == 8191
    assert LiteLLMEmbedder("openai/made-up").max_tokens == 512


async def test_long_texts_are_cut_and_empty_ones_are_filled(server):
    embedder = embedder_of(server, max_tokens=4)
    await embedder.embed_documents(["one two three four five six", "", "  "])
    assert server.requests[0]["input"] == ["one two three four", " ", " "]


@pytest.mark.parametrize("model", [MODEL, "ollama/nomic-embed-text"])
@pytest.mark.parametrize(
    "text",
    ["", "Größe: 5 km", "東京は日本の首都です。", "👩‍👩‍👧 family", "a\ud800b", "x = foo(bar)[3]"],
)
def test_token_spans_cover_the_text_in_order(model, text):
    embedder = LiteLLMEmbedder(model)
    spans = embedder.token_spans(text)
    assert embedder.count_tokens([text]) == [len(spans)]
    covered = "".join(text[start:end] for start, end in dict.fromkeys(spans))
    assert all(character in covered for character in text if not character.isspace())
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert all(start < end <= len(text) for start, end in spans)


def test_the_estimate_is_cautious():
    text = "Retrieval-augmented generation answers 404 questions, v3.0, über Größe: 東京 🎉."
    exact = LiteLLMEmbedder(MODEL).count_tokens([text])[0]
    estimated = LiteLLMEmbedder("voyage/voyage-3").count_tokens([text])[0]
    assert exact <= estimated <= 2 * exact


def test_it_works_from_a_script_and_from_another_loop(server):
    embedder = embedder_of(server)
    first = run(embedder.embed_queries(["a"]))
    second = asyncio.run(embedder.embed_queries(["a"]))
    np.testing.assert_array_equal(first, second)


async def test_cancelling_stops_the_requests(server):
    server.pause = 0.2
    task = asyncio.ensure_future(
        embedder_of(server, batch_size=1, concurrency=1).embed_documents(list("abcdefgh"))
    )
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.3)
    assert len(server.requests) < 4


@pytest.mark.parametrize(
    "options",
    [{"dimension": 0}, {"batch_size": 0}, {"concurrency": 0}, {"query_options": {"api_key": "x"}}],
)
def test_senseless_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        LiteLLMEmbedder(MODEL, **options)


def test_an_empty_name_is_refused():
    with pytest.raises(ConfigurationError, match="empty"):
        LiteLLMEmbedder(" ")
