from __future__ import annotations

import asyncio
import json
import logging
import threading
import time

import pytest

from nbrag.background import run
from nbrag.errors import (
    ChatError,
    ChatUnavailable,
    ConfigurationError,
    ModelError,
    RateLimited,
)
from nbrag.models.chat import LiteLLMChatClient, PricedChatClient, TokenPrice
from nbrag.models.chat import litellm as module
from nbrag.protocols import ChatClient, StreamingChatClient
from nbrag.types import ChatMessage, ChatReply, TokenProbability

# LiteLLM's own use of pydantic while it streams; Python shows it to nobody by default.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

SECRET = "sk-test-0123456789abcdef"
MODEL = "openai/made-up"
PRICED = "openai/gpt-4o-mini"
HELLO = [ChatMessage("system", "be short"), ChatMessage("user", "hello")]
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
}


@pytest.fixture(autouse=True)
def forget_refusals(monkeypatch):
    monkeypatch.setattr(module, "_refused", set())


def client_of(server, model=MODEL, **options) -> LiteLLMChatClient:
    return LiteLLMChatClient(model, **{"timeout": 5, "api_base": server.url, **options})


async def test_prose_comes_back_with_its_account(server):
    client = client_of(server, temperature=0)
    reply = await client.complete(HELLO, max_tokens=20)
    assert reply == ChatReply("echo: hello", 7, 3, None, "made-up", "stop")
    (request,) = server.requests
    assert request["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hello"},
    ]
    assert (request["temperature"], request["max_tokens"]) == (0, 20)
    assert server.keys == [f"Bearer {SECRET}"]
    assert isinstance(client, ChatClient | StreamingChatClient | PricedChatClient)
    assert isinstance(client, StreamingChatClient)
    assert client.model == MODEL
    assert SECRET not in repr(client)


async def test_json_is_asked_for_and_comes_back(server, answer):
    server.script.append(answer('{"a": 1}'))
    reply = await client_of(server).complete(HELLO, response_format=FORMAT)
    assert reply.text == '{"a": 1}'
    assert server.requests[0]["response_format"] == FORMAT


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refused_response_format_is_left_out_from_then_on(server, answer, caplog, status):
    server.script.append(answer(status=status, error="'response_format' is not supported here"))
    client = client_of(server)
    with caplog.at_level(logging.WARNING, "nbrag.models"):
        assert (await client.complete(HELLO, response_format=FORMAT)).text == "echo: hello"
        assert (await client.complete(HELLO, response_format=FORMAT)).text == "echo: hello"
    assert ["response_format" in request for request in server.requests] == [True, False, False]
    assert [record.message for record in caplog.records] == [
        f"{MODEL} refuses response_format: it is not sent from now on"
    ]
    # Another model of the same server is asked anew.
    await client_of(server, "openai/other").complete(HELLO, response_format=FORMAT)
    assert "response_format" in server.requests[-1]


async def test_probabilities_come_where_the_provider_gives_them(server, answer):
    tokens = [
        {"token": "Ja", "logprob": -0.25, "top_logprobs": [{"token": "Nein", "logprob": -1e30}]},
        {"token": "!", "logprob": 0.0, "top_logprobs": []},
    ]
    whole = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "made-up",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Ja!"},
                "logprobs": {"content": tokens},
            }
        ],
    }
    server.script.append(answer(raw=json.dumps(whole).encode()))
    client = client_of(server)
    reply = await client.complete(HELLO, logprobs=True, top_logprobs=5)
    assert (server.requests[0]["logprobs"], server.requests[0]["top_logprobs"]) == (True, 5)
    assert reply.tokens == (
        TokenProbability("Ja", -0.25, {"Nein": -9999.0}),
        TokenProbability("!", 0.0),
    )
    assert (await client.complete(HELLO, logprobs=True)).tokens == ()


async def test_refused_probabilities_are_not_asked_for_again(server, answer):
    server.script.append(answer(status=400, error="'top_logprobs' needs another plan"))
    server.script.append(answer(status=400, error="this model does not give logprobs"))
    client = client_of(server)
    for _ in range(2):
        assert (await client.complete(HELLO, logprobs=True, top_logprobs=5)).text == "echo: hello"
    sent = [("logprobs" in one, "top_logprobs" in one) for one in server.requests]
    assert sent == [(True, True), (True, False), (False, False), (False, False)]


async def test_another_bad_request_is_told_and_not_repeated(server, answer):
    server.script.append(answer(status=400, error="temperature must be below 2"))
    with pytest.raises(ChatError, match="temperature must be below 2") as caught:
        await client_of(server).complete(HELLO, response_format=FORMAT, temperature=9)
    assert type(caught.value) is ChatError
    assert len(server.requests) == 1


async def test_cost_is_known_only_where_tokens_and_price_are(server, answer):
    assert (await client_of(server, PRICED).complete(HELLO)).cost == pytest.approx(
        7 * 0.15e-6 + 3 * 0.6e-6
    )
    # LiteLLM guesses what kind of model this is, and says that it costs 0.
    assert (await client_of(server, "openai/gpt-9-made-up").complete(HELLO)).cost is None
    assert (await client_of(server).complete(HELLO)).cost is None
    server.script.append(answer(usage=False))
    reply = await client_of(server, PRICED).complete(HELLO)
    assert (reply.input_tokens, reply.output_tokens, reply.cost) == (None, None, None)


async def test_prices_are_looked_up_offline():
    assert await LiteLLMChatClient(PRICED).price() == TokenPrice(0.15e-6, 0.6e-6)
    assert await LiteLLMChatClient(MODEL).price() is None
    assert await LiteLLMChatClient("openai/gpt-9-made-up").price() is None


async def test_a_refusal_is_the_reply_and_nothing_is_an_empty_one(server, answer):
    server.script.append(answer(None, message={"refusal": "I'd rather not"}))
    assert (await client_of(server).complete(HELLO)).text == "I'd rather not"
    server.script.append(answer(None))
    assert (await client_of(server).complete(HELLO)).text == ""


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        ({"status": 401}, ModelError, "went wrong with 401"),
        ({"status": 402}, ModelError, "went wrong with 402"),
        ({"status": 403}, ModelError, "went wrong with 403"),
        ({"status": 404}, ModelError, "went wrong with 404"),
        ({"status": 400}, ChatError, "went wrong with 400"),
        ({"status": 413}, ChatError, "went wrong with 413"),
        ({"status": 429}, RateLimited, "no more requests"),
        ({"status": 500}, ChatUnavailable, "went wrong with 500"),
        ({"status": 502}, ChatUnavailable, "went wrong with 502"),
        ({"status": 503}, ChatUnavailable, "went wrong with 503"),
        ({"status": 504}, ChatUnavailable, "went wrong with 504"),
        ({"status": 529}, ChatUnavailable, "went wrong with 529"),
        ({"cut": True}, ChatUnavailable, "onnection"),
        ({"raw": b"<html>maintenance</html>"}, ChatUnavailable, "failed"),
        ({"raw": b"{}"}, ChatUnavailable, "choices"),
        (
            {"raw": b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[]}'},
            ChatError,
            "no usable answer",
        ),
        ({"text": "", "finish": "content_filter"}, ChatError, "filter withheld"),
        ({"status": 400, "error": "maximum context length is 5 tokens"}, ChatError, "context"),
    ],
)
async def test_what_went_wrong_is_told_in_one_line_without_the_key(
    server, answer, step, kind, words
):
    server.script.append(answer(**step))
    with pytest.raises(ModelError, match=words) as caught:
        await client_of(server).complete(HELLO)
    assert type(caught.value) is kind
    assert len(server.requests) == 1  # one attempt, whatever LiteLLM would do by itself
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


async def test_a_refused_key_says_where_keys_come_from(server, answer):
    server.script.append(answer(status=401))
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
        await client_of(server).complete(HELLO)
    assert "***" in caught.value.message


async def test_the_wait_that_is_asked_for_is_told(server, answer):
    server.script.append(answer(status=429, headers={"Retry-After": "7"}))
    with pytest.raises(RateLimited) as caught:
        await client_of(server).complete(HELLO)
    assert caught.value.retry_after == 7


async def test_a_hang_ends_in_time(server, answer):
    await client_of(server).complete(HELLO)
    server.script.append(answer(pause=1.5))
    started = time.monotonic()
    with pytest.raises(ChatUnavailable, match=r"within 0\.3 seconds.*timeout="):
        await client_of(server, timeout=0.3).complete(HELLO)
    assert time.monotonic() - started < 1


async def test_no_server_is_told():
    client = LiteLLMChatClient(MODEL, api_base="http://127.0.0.1:9/v1", timeout=5)
    with pytest.raises((ChatUnavailable, ModelError), match=MODEL) as caught:
        await client.complete(HELLO)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/made-up", "OPENAI_API_KEY"),
        ("gemini/gemini-2.0-flash", "GEMINI_API_KEY"),
        ("anthropic/claude-3-5-haiku-latest", "ANTHROPIC_API_KEY"),
    ],
)
async def test_a_missing_key_is_for_the_person_to_mend(monkeypatch, model, variable):
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError, match=variable) as caught:
        await LiteLLMChatClient(model, timeout=5).complete(HELLO)
    assert not isinstance(caught.value, ChatError)
    assert "Traceback" not in str(caught.value)


async def test_a_model_without_its_provider_is_told(server):
    with pytest.raises(ModelError, match=r"which provider.*provider/model") as caught:
        await client_of(server, "made-up").complete(HELLO)
    assert not isinstance(caught.value, ChatError)


async def test_pieces_come_as_they_are_made_and_the_account_at_the_end(server, answer):
    server.script.append(answer("one two three"))
    stream = client_of(server, PRICED).stream(HELLO, temperature=0)
    pieces = [piece async for piece in stream]
    assert pieces == ["one", " two", " three"]
    assert stream.reply is not None
    assert (stream.reply.text, stream.reply.finish_reason) == ("one two three", "stop")
    assert (stream.reply.input_tokens, stream.reply.output_tokens) == (7, 3)
    assert stream.reply.cost == pytest.approx(7 * 0.15e-6 + 3 * 0.6e-6)
    assert server.requests[0]["stream"] is True


async def test_a_stream_without_an_account_has_none(server, answer):
    server.script.append(answer(status=400, error="unknown field stream_options"))
    stream = client_of(server, PRICED).stream(HELLO)
    assert "".join([piece async for piece in stream]) == "echo: hello"
    assert len(server.requests) == 2
    assert stream.reply is not None
    assert (stream.reply.input_tokens, stream.reply.cost) == (None, None)


@pytest.mark.parametrize("step", [{"status": 500}, {"text": "a b c d e f", "cut": True}])
async def test_a_stream_that_breaks_raises(server, answer, step):
    server.script.append(answer(**step))
    with pytest.raises(ChatUnavailable) as caught:
        async for _ in client_of(server).stream(HELLO):
            pass
    assert SECRET not in str(caught.value)


async def test_a_stream_can_be_left(server, answer):
    server.script.append(answer("one two three"))
    stream = client_of(server).stream(HELLO)
    assert await anext(stream) == "one"
    await stream.aclose()
    assert stream.reply is None
    assert [piece async for piece in stream] == []


def test_it_works_from_a_script_and_from_other_loops_at_once(server):
    client = client_of(server)
    assert run(client.complete(HELLO)).text == "echo: hello"
    texts: list[str] = []

    def ask() -> None:
        texts.append(asyncio.run(client.complete(HELLO)).text)

    async def read() -> str:
        return "".join([piece async for piece in client.stream(HELLO)])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["echo: hello"] * 4
    assert asyncio.run(read()) == "echo: hello"


def test_what_an_answer_depends_on_holds_no_secret():
    client = LiteLLMChatClient(MODEL, api_base="http://me:hunter2@host/v1", temperature=0)
    assert client.options == {"temperature": 0, "api_base": "http://host/v1"}


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": "x"},
        {"timeout": 0},
        {"extra_headers": {"Authorization": "Bearer x"}},
        {"aws_secret_access_key": "x"},
        {"hf_token": "x"},
    ],
)
def test_senseless_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        LiteLLMChatClient(MODEL, **options)


async def test_a_key_is_refused_in_a_call_too(server):
    with pytest.raises(ConfigurationError, match="environment"):
        await client_of(server).complete(HELLO, api_key="x")
    assert LiteLLMChatClient(MODEL, max_tokens=5, prompt_cache_key="p").options["max_tokens"] == 5


def test_an_empty_name_is_refused():
    with pytest.raises(ConfigurationError, match="empty"):
        LiteLLMChatClient(" ")
