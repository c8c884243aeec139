from __future__ import annotations

import pytest

from nbrag.errors import ModelError, NbragError
from nbrag.protocols import ChatClient
from nbrag.testing import ScriptedChatClient, ScriptExhausted
from nbrag.types import ChatMessage, ChatReply

HELLO = [ChatMessage("system", "be brief"), ChatMessage("user", "say hello to me")]


async def test_replies_come_in_order_and_calls_are_recorded():
    chat = ScriptedChatClient(["hello you", ChatReply("fine", 7, 1)])
    assert isinstance(chat, ChatClient)
    assert await chat.complete(HELLO, temperature=0) == ChatReply("hello you", 6, 2)
    assert chat.remaining == 1
    assert await chat.complete(HELLO) == ChatReply("fine", 7, 1)
    assert [call.options for call in chat.calls] == [{"temperature": 0}, {}]
    assert chat.calls[0].messages == tuple(HELLO)
    assert chat.calls[0].text == "be brief\nsay hello to me"


async def test_a_function_answers_by_the_messages():
    chat = ScriptedChatClient(lambda messages: messages[-1].content.upper())
    assert (await chat.complete(HELLO)).text == "SAY HELLO TO ME"


async def test_an_exception_in_the_script_is_raised():
    chat = ScriptedChatClient([ModelError("no answer"), "then this"])
    with pytest.raises(ModelError, match="no answer"):
        await chat.complete(HELLO)
    assert (await chat.complete(HELLO)).text == "then this"


async def test_an_exhausted_script_shows_the_request():
    chat = ScriptedChatClient(["one"])
    await chat.complete(HELLO)
    with pytest.raises(
        ScriptExhausted, match=r"1 replies, and this is call 2.*say hello"
    ) as caught:
        await chat.complete(HELLO)
    assert not isinstance(caught.value, NbragError)


def test_a_bare_text_is_no_script():
    with pytest.raises(TypeError, match="list of replies"):
        ScriptedChatClient("yes")
