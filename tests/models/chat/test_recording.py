"""Recorded replies: stable lines, the same course in replay, misses that show what was asked."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import ChatUnavailable, ModelError, ModelInvalid, ModelNotFound, ReplayMissing
from nbrag.models.chat import (
    Budget,
    LiteLLMChatClient,
    ManagedChatClient,
    RecordingChatClient,
    ReplayChatClient,
    TokenPrice,
)
from nbrag.protocols import ChatClient, StreamingChatClient
from nbrag.testing import ScriptedChatClient
from nbrag.types import ChatMessage, ChatReply, TokenProbability

ASKED = [ChatMessage("system", "Be short."), ChatMessage("user", "Wie groß?")]


def asked(text: str) -> list[ChatMessage]:
    return [ChatMessage("user", text)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


async def record(path: Path, *pairs: tuple[str, str], **options: Any) -> None:
    client = RecordingChatClient(ScriptedChatClient([reply for _, reply in pairs]), path)
    for question, _ in pairs:
        await client.complete(asked(question), **options)


async def test_probabilities_of_tokens_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    reply = ChatReply("Ja", tokens=(TokenProbability("Ja", -0.25, {"Ja": -0.25, "Nein": -2.5}),))
    await RecordingChatClient(ScriptedChatClient([reply]), path).complete(ASKED, logprobs=True)
    assert lines(path)[0]["reply"]["tokens"] == [["Ja", -0.25, {"Ja": -0.25, "Nein": -2.5}]]
    replayed = await ReplayChatClient(path).complete(ASKED, logprobs=True)
    assert replayed.tokens == reply.tokens
    line = {**lines(path)[0], "reply": {"text": "Ja", "tokens": [["Ja"]]}}
    path.write_text(json.dumps(line))
    with pytest.raises(ModelInvalid, match="line 1"):
        ReplayChatClient(path)


async def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "replies.jsonl"
    reply = ChatReply("330\nm – ‘hoch’\u2028", 12, 3, 0.25, "provider/m-1", "stop")
    client = RecordingChatClient(ScriptedChatClient([reply], model="provider/m"), path)
    assert client.model == "provider/m"
    assert await client.complete(ASKED, temperature=0) == reply
    replayed = await ReplayChatClient(path).complete(ASKED, temperature=0)
    assert replayed == ChatReply("330\nm – ‘hoch’\u2028", 12, 3, 0.0, "provider/m-1", "stop", True)
    assert isinstance(client, StreamingChatClient)
    assert isinstance(ReplayChatClient(path), StreamingChatClient)


async def test_lines_are_stable_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    client = RecordingChatClient(ScriptedChatClient(["330 m"]), path, about="a test's own")
    await client.complete(ASKED, top_p=1, temperature=0.0, timeout=3.5)
    text = path.read_text("utf-8")
    found = lines(path)[1]["request"]
    assert len(found) == 64
    assert text == (
        '{"about": "a test\'s own"}\n'
        '{"messages": [{"content": "Be short.", "role": "system"}, '
        '{"content": "Wie groß?", "role": "user"}], "options": {"temperature": 0, "top_p": 1}, '
        '"reply": {"input_tokens": 4, "output_tokens": 2, "text": "330 m"}, '
        f'"request": "{found}"}}\n'
    )
    assert ReplayChatClient(path).about == "a test's own"


@given(st.permutations([("a", 1), ("b", {"x": 1, "y": [2.0, None]}), ("c", "z"), ("d", 0.0)]))
def test_the_order_of_options_is_no_difference(pairs: list[tuple[str, Any]]) -> None:
    from nbrag.models.chat._reply_file import Request

    def turned(value: Any) -> Any:
        return dict(reversed(value.items())) if isinstance(value, dict) else value

    wanted = {"a": 1.0, "b": {"y": [2, None], "x": 1}, "c": "z", "d": 0}
    options = {name: turned(value) for name, value in pairs}
    assert Request.of(ASKED, options).key == Request.of(ASKED, wanted).key
    assert Request.of(ASKED, {**options, "a": 2}).key != Request.of(ASKED, wanted).key


async def test_what_only_says_how_to_send_is_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    await record(path, ("q", "a"), temperature=0, timeout=5)
    replay = ReplayChatClient(path)
    assert (await replay.complete(asked("q"), temperature=0.0, timeout=9)).text == "a"
    with pytest.raises(ReplayMissing, match=r"Line 1 asks the same with temperature='0', not '1'"):
        await replay.complete(asked("q"), temperature=1)


async def test_the_model_is_no_difference_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"
    for model in ("one", "two"):
        client = RecordingChatClient(ScriptedChatClient([model], model=model), path)
        assert (await client.complete(ASKED)).text == "one"
    assert len(lines(path)) == 1
    path = tmp_path / "each.jsonl"
    for model in ("one", "two"):
        chat = ScriptedChatClient([model], model=model)
        await RecordingChatClient(chat, path, by_model=True).complete(ASKED)
    assert [line["model"] for line in lines(path)] == ["one", "two"]
    for model in ("one", "two"):
        replay = ReplayChatClient(path, model=model)
        assert replay.model == model
        assert (await replay.complete(ASKED)).text == model
    with pytest.raises(ReplayMissing, match="the model 'one', not 'any'"):
        await ReplayChatClient(path).complete(ASKED)
    assert ReplayChatClient(path).model == "replay:each.jsonl"


async def test_a_request_is_kept_once_and_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    chat = ScriptedChatClient(["first", "second"])
    client = RecordingChatClient(chat, path)
    first = await client.complete(ASKED)
    again = await client.complete(ASKED)
    later = await RecordingChatClient(chat, path).complete(ASKED)
    assert [first.text, again.text, later.text] == ["first"] * 3
    assert [first.cached, again.cached, later.cached] == [False, True, True]
    assert len(chat.calls) == len(lines(path)) == 1


async def test_the_same_request_twice_at_a_time_takes_one_course(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    answers = iter(["first", "second"])

    class Slow:
        model = "slow"

        async def complete(self, messages: Any, **options: Any) -> ChatReply:
            text = next(answers)
            await asyncio.sleep(0.01)
            return ChatReply(text)

    client = RecordingChatClient(Slow(), path)
    replies = await asyncio.gather(client.complete(ASKED), client.complete(ASKED))
    assert [reply.text for reply in replies] == ["first", "first"]
    assert len(lines(path)) == 1


async def test_errors_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    client = RecordingChatClient(ScriptedChatClient([ChatUnavailable("down"), "up"]), path)
    with pytest.raises(ChatUnavailable):
        await client.complete(ASKED)
    assert not path.exists()
    assert (await client.complete(ASKED)).text == "up"


async def test_half_a_line_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    await record(path, ("one", "1"))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    await record(path, ("two", "2"))
    assert [line["reply"]["text"] for line in lines(path)] == ["1", "2"]


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    client = RecordingChatClient(ScriptedChatClient(lambda _: "x" * 5000), path)
    threads = [
        threading.Thread(target=lambda n=n: asyncio.run(client.complete(asked(str(n)))))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {line["messages"][0]["content"] for line in lines(path)} == set(map(str, range(20)))


async def test_half_a_surrogate_pair_can_be_recorded(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    await record(path, ("q", "a\ud83d"))
    assert (await ReplayChatClient(path).complete(asked("q"))).text == "a\ud83d"


@pytest.mark.parametrize("reply", ['"by hand"', '{"text": "by hand"}'])
async def test_a_file_written_by_hand_is_replayed(tmp_path: Path, reply: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_bytes(
        b'{"about": "authored"}\r\n\r\n{"messages": [{"role": "user", "content": "q"}], "reply": '
        + reply.encode()
        + b', "request": "old"}\r\n'
    )
    assert await ReplayChatClient(path).complete(asked("q")) == ChatReply(
        "by hand", cost=0.0, cached=True
    )


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"messages": "q"}',
        '{"messages": [{"role": "robot", "content": "q"}]}',
        '{"messages": [{"role": "user", "content": 1}]}',
        '{"messages": [], "reply": {"words": "x"}}',
        '{"messages": [], "reply": {"text": "x", "cached": true}}',
        '{"messages": [], "reply": 1}',
        '{"messages": [], "options": [1]}',
        "\ufffe",
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(f'{{"about": "x"}}\n{line}\n', "utf-8")
    for client in (ReplayChatClient, lambda path: RecordingChatClient(ScriptedChatClient(), path)):
        with pytest.raises(ModelInvalid, match=r"replies\.jsonl, line 2"):
            client(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"none\.jsonl"):
        ReplayChatClient(tmp_path / "none.jsonl")
    with pytest.raises(ModelError, match="can't be read"):
        ReplayChatClient(tmp_path)


async def test_a_file_that_cant_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = RecordingChatClient(ScriptedChatClient(["a"]), tmp_path / "file" / "replies.jsonl")
    with pytest.raises(ModelError, match=r"replies\.jsonl"):
        await client.complete(ASKED)


async def test_a_miss_shows_the_request_and_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    await record(path, ("How tall is the tower?", "a"), ("Who wrote the handbook?", "b"))
    with pytest.raises(ReplayMissing) as caught:
        await ReplayChatClient(path).complete(asked("Who wrote the guide?\n" + "so " * 500))
    message = caught.value.message
    assert "'user: Who wrote the guide? so so" in message
    assert (
        "Line 2 is nearest; it differs from character 20 on: 'handbook?' there, 'guide?" in message
    )
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "missing=" in caught.value.hint


async def test_an_empty_file_misses_everything(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.touch()
    with pytest.raises(ReplayMissing, match="no requests at all"):
        await ReplayChatClient(path).complete(ASKED)


async def test_missing_requests_are_put_down_once_each(tmp_path: Path) -> None:
    path, wanted = tmp_path / "replies.jsonl", tmp_path / "missing.jsonl"
    path.touch()
    collected: list[dict[str, Any]] = []
    for missing in (wanted, collected, wanted, collected):
        replay = ReplayChatClient(path, missing=missing)
        for question in ("one", "two", "one"):
            with pytest.raises(ReplayMissing):
                await replay.complete(asked(question), temperature=0)
    assert collected == lines(wanted)
    assert [line["messages"][0]["content"] for line in collected] == ["one", "two"]
    assert all("reply" not in line for line in collected)
    with pytest.raises(ReplayMissing, match="line 2 holds this request without a reply"):
        await ReplayChatClient(wanted).complete(asked("two"), temperature=0)
    # The file with replies added is one to replay.
    answered = [json.dumps({**line, "reply": "written"}) for line in collected]
    wanted.write_text("\n".join(answered), "utf-8")
    replay = ReplayChatClient(os.fspath(wanted))
    assert (await replay.complete(asked("two"), temperature=0)).text == "written"


@given(st.text())
async def test_replay_streams_the_words(text: str) -> None:
    from nbrag.models.chat.recording import _words

    assert "".join(_words(text)) == text
    assert all(word.split() for word in _words(text)[1:])


async def test_streams_are_recorded_and_replayed(tmp_path: Path) -> None:
    class Streaming:
        model = "streaming"

        async def complete(self, messages: Any, **options: Any) -> ChatReply:
            raise AssertionError("the whole was not asked for")

        async def stream(self, messages: Any, **options: Any) -> Any:
            for piece in ("on", "e two ", "three"):
                yield piece

    path = tmp_path / "replies.jsonl"
    client = RecordingChatClient(Streaming(), path)
    assert [piece async for piece in client.stream(ASKED)] == ["on", "e two ", "three"]
    words = ["one ", "two ", "three"]
    assert [piece async for piece in client.stream(ASKED)] == words
    replayed = ReplayChatClient(path).stream(ASKED)
    assert [piece async for piece in replayed] == words
    # With tokens and cost, as when the whole is asked for: the ledger shows them.
    assert replayed.reply == await ReplayChatClient(path).complete(ASKED)
    recorded = client.stream(ASKED)
    assert [piece async for piece in recorded] == words
    assert recorded.reply is not None
    assert recorded.reply.cached
    with pytest.raises(ReplayMissing):
        async for _ in ReplayChatClient(path).stream(asked("other")):
            pass


async def test_a_stream_of_a_client_that_cant_comes_word_by_word(tmp_path: Path) -> None:
    chat = ScriptedChatClient(["one two"])
    assert isinstance(chat, ChatClient)
    assert not isinstance(chat, StreamingChatClient)
    client = RecordingChatClient(chat, tmp_path / "replies.jsonl")
    assert [piece async for piece in client.stream(ASKED)] == ["one ", "two"]


async def test_a_stream_that_is_left_early_is_not_recorded(tmp_path: Path) -> None:
    class Streaming(ScriptedChatClient):
        async def stream(self, messages: Any, **options: Any) -> Any:
            yield "half"
            yield " an answer"

    path = tmp_path / "replies.jsonl"
    pieces = RecordingChatClient(Streaming(), path).stream(ASKED)
    assert await anext(pieces) == "half"
    await pieces.aclose()
    assert not path.exists()


async def test_a_managed_replay_takes_a_money_budget_and_outlives_no_edit(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    await record(path, ("q", "a"))
    kept: dict[str, ChatReply] = {}

    class Store:
        def get(self, key: str) -> ChatReply | None:
            return kept.get(key)

        def put(self, key: str, messages: Any, options: Any, reply: ChatReply) -> None:
            kept[key] = reply

    async def answer() -> str:
        budget = Budget(money=0.01)
        client = ManagedChatClient(ReplayChatClient(path), cache=Store(), budget=budget)
        return (await client.complete(asked("q"))).text

    assert await answer() == "a"
    path.write_text(path.read_text("utf-8").replace('"text": "a"', '"text": "b"'), "utf-8")
    assert await answer() == "b"
    assert len(kept) == 2


async def test_a_recorded_model_keeps_its_price_and_options(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    plain = RecordingChatClient(ScriptedChatClient(), path)
    assert await plain.price() is None
    assert plain.options == {}
    chat = RecordingChatClient(LiteLLMChatClient("openai/gpt-4o-mini", temperature=1), path)
    assert chat.options == {"temperature": 1}
    assert isinstance(await chat.price(), TokenPrice)
