"""Answers in a given form: found in whatever a model says, never invented."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from nbrag.errors import ChatUnavailable, ConfigurationError, ReplyInvalid
from nbrag.models.chat import ask, parse_reply
from nbrag.testing import ScriptedChatClient
from nbrag.types import ChatMessage, ChatReply


class Grade(BaseModel):
    id: int
    score: float = Field(ge=1, le=5)


class Order(BaseModel):
    order: list[int]


class Grades(BaseModel):
    grades: list[Grade]
    reason: str = ""


class Loose(BaseModel):
    variants: list[str] = []
    note: str = ""


class Route(BaseModel):
    route: str
    entities: list[str]


ASKED = [ChatMessage("system", "Rank."), ChatMessage("user", "Which?")]


@pytest.mark.parametrize(
    "text",
    [
        '{"order": [2, 1]}',
        '  {"order": [2, 1]}\n',
        '```json\n{"order": [2, 1]}\n```',
        '```\n{"order": [2, 1]}```',
        'Sure! Here it is: {"order": [2, 1]} Hope it helps {smile}.',
        '<think>maybe {"order": [9]}?</think>{"order": [2, 1]}',
        'maybe {"order": [9]}?</think>\n{"order": [2, 1]}',
        '<think>a</think> <think>{"order": [9]}</think>{"order": [2, 1]}',
        '<think>it never ends, but the answer comes: {"order": [2, 1]}',
        '<think>a draft {"order": [9]} and then ```json\n{"order": [2, 1]}\n```',
        '<THINKING>x</THINKING>{"order": [2, 1]}',
        '{"order": [9]}\nNo, wait.\n{"order": [2, 1]}',
        '{"order": [2, 1]}\n{"other": 1}',
        '{"order": [2, 1]}\n{"order": "none"}',
        '{"order": [9, 8,\n\nSorry, again:\n{"order": [2, 1]}',
        '{"order": ["2", "1"]}',
        '{"order": [2.0, 1]}',
        '{"order": [2, 1,],}',
        "[2, 1]",
        "```json\n[2, 1]\n```",
        "```json [2, 1]```",
        "The order is:\n\n[2, 1]\n\nbecause of [7].",
        "Answer: [2, 1].",
        "[9]\nNo, wait.\n[2, 1]",
        '{"order": [2, 1]} (see [3])',
        'Of the set {a, b} and the list [x], this: {"order": [2, 1]}',
        'He said "use {" and {"order": [2, 1]}',
        '{"quotes} like this, then {"order": [2, 1]}',
        '{"order": [2, 1], "extra": {"deep": [[["]"]]]}}',
    ],
)
def test_the_value_is_found(text: str) -> None:
    assert parse_reply(text, Order).order == [2, 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("I can't help with that.", "no JSON object in the reply 'I can't help with that.'"),
        ("I can't rank [1] and [2].", "no JSON"),
        ("The best is [3], clearly.", "no JSON"),
        ('{"order": [2, 1', "cut off"),
        ('{"order": [2, 1]', "cut off"),
        ('{"order": [2, 1], "why": "it', "cut off"),
        ("[2, 1", "cut off"),
        ('{"order": [2, 1], why: no}', "can't be read"),
        ('{"why": None, "order": [2, 1]}', "can't be read"),
        ('{"order": "best"}', "order"),
        ('{"order": [1.5]}', "order.0"),
        ('{"ranking": [2, 1]}', "none of the fields order"),
        ("{}", "none of the fields order"),
        ("{'order': [2, 1],\n 'unsure': [7]\n}", "can't be read"),
        ("{order: [2, 1],\n unsure: [7]\n}", "can't be read"),
        ("{'order': [2, 1],\n 'unsure': [7]", "cut off"),
        ("order: [2, 1]\nunsure: [7]", "no JSON object"),
        ('<think>{"order": [2, 1]} or so, let me see', "without an end"),
        ('<think>{"order": [2, 1]}</think>', "no JSON"),
        ('{"order": [NaN]}', "can't be read"),
        ('{"order": ' + "[" * 5000 + "]" * 5000 + "}", "deeper"),
        ('{"order": [' + "9" * 5000 + "]}", "can't be read"),
        ('{"order": [1e999]}', "can't be read"),
        ("[" * 3 + "]" * 3, "order.0"),
        ('{"type": "object", "properties": {"order": {"type": "array"}}}', "none of the fields"),
    ],
)
def test_what_is_not_there_is_not_invented(text: str, reason: str) -> None:
    with pytest.raises(ReplyInvalid) as caught:
        parse_reply(text, Order)
    assert reason in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.reply == text


@pytest.mark.parametrize(
    "text",
    [
        '{"grades": [{"id": 1, "score": 2}, {"id": 2,',
        '{"grades": [{"id": 1, "score": 2}, {"id": 2, "score": 3}',
        '{"grades": [{"id": 1, "score": 2}, {"id": 2, score: 3}], "reason": "x"}',
        '```json\n{\n  "grades": [\n    {"id": 1, "score": 2}\n  ],\n  "reason": "cut\n```',
    ],
)
def test_a_part_of_a_broken_value_is_no_answer(text: str) -> None:
    for schema in (Grades, Grade):
        with pytest.raises(ReplyInvalid):
            parse_reply(text, schema)


def test_an_object_without_any_field_of_the_form_is_no_answer() -> None:
    for text in ("{}", "use {} here", '{"id": 1}'):
        with pytest.raises(ReplyInvalid, match="none of the fields variants, note"):
            parse_reply(text, Loose)
    assert parse_reply('{"note": "n"}', Loose) == Loose(note="n")


def test_arrays_are_wrapped_only_where_one_list_field_is_all_that_is_needed() -> None:
    assert parse_reply('[{"id": "1", "score": "4.5"}]', Grades).grades == [Grade(id=1, score=4.5)]
    assert parse_reply('["a"]', Loose).variants == ["a"]
    with pytest.raises(ReplyInvalid):
        parse_reply('["a"]', Route)


def test_markup_within_strings_is_part_of_the_answer() -> None:
    answer = {"variants": ["<think>no", "</think>", "```", '{"variants": []}', "a\n\nb", "]"]}
    text = f"<think>x</think>Here:\n```json\n{json.dumps(answer, indent=1)}\n```\nDone."
    assert parse_reply(text, Loose).variants == answer["variants"]


def test_raw_line_breaks_in_strings_are_let_pass() -> None:
    assert parse_reply('{"note": "a\n\nb\tc"}', Loose).note == "a\n\nb\tc"


class Anything(BaseModel):
    text: str
    items: list[str]
    number: float | None = None


letters = st.characters(exclude_categories=("Cs",))
answers = st.builds(
    Anything,
    text=st.text(letters),
    items=st.lists(st.text(letters), max_size=4),
    number=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
prose = st.text(st.characters(exclude_categories=("Cs",), exclude_characters='{["<')) | st.just(
    "As [1] and {a} say: "
)
thoughts = st.just("") | st.text(letters.filter(lambda sign: sign != "<")).map(
    "<think>{}</think>\n".format
)


@given(
    answers,
    st.tuples(
        st.sampled_from(["{}", "```json\n{}\n```", "```\n{}\n```", "{}\n\n{{}}", "{}\n[0]"]),
        st.sampled_from([None, 2]),
    ),
    st.tuples(prose, prose),
    thoughts,
)
def test_any_wrapping_leaves_the_answer_as_it_is(
    answer: Anything, layout: tuple[str, int | None], around: tuple[str, str], thought: str
) -> None:
    fence, indent = layout
    before, after = around
    source = answer.model_dump_json(indent=indent)
    text = thought + before + fence.format(source) + after
    assert parse_reply(text, Anything) == answer


@given(answers, st.data())
def test_no_beginning_of_an_answer_is_an_answer(answer: Anything, data: st.DataObject) -> None:
    source = answer.model_dump_json()
    cut = source[: data.draw(st.integers(0, len(source) - 1))]
    with pytest.raises(ReplyInvalid):
        parse_reply(cut, Anything)


@given(st.text(st.sampled_from('{}[]":,\\ \n1a`</think>')))
def test_any_text_is_either_an_answer_or_invalid(text: str) -> None:
    try:
        answer = parse_reply(text, Loose)
    except ReplyInvalid:
        return
    # Such a text has no letters for a field's name: only a bare list can be an answer.
    assert answer.note == ""
    assert "[" in text


@pytest.mark.parametrize("text", ["[2] > [1] > [3]", "passages 2 > [3]", "1 -> [2]"])
def test_a_list_in_a_ranking_in_prose_is_no_answer(text: str) -> None:
    with pytest.raises(ReplyInvalid):
        parse_reply(text, Loose)


@pytest.mark.parametrize(
    "unit",
    [
        "{", "[", '"', "<think>", '{"a":', '{"a":[', "[\n\n", '["\n\n', '\\"[\n\n', '{"\\"',
        "[1]\n", "{'", "{a", "{a:", "{'a':[1]\n", '{"order":1}', "[,",
        '{"x"', "</think>", "[1,\n\n", '{ "\\', "`", "[ ", '["\\"\n\n',
    ],
)  # fmt: skip
def test_a_megabyte_of_anything_takes_a_moment(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        started = time.process_time()
        with pytest.raises(ReplyInvalid):
            parse_reply(text, Route)
        return time.process_time() - started

    # Quadratic time would be minutes.
    assert seconds(1_000_000) < 5.0


async def test_a_good_answer_takes_one_call() -> None:
    chat = ScriptedChatClient(['{"order": [2, 1]}'])
    answer = await ask(chat, ASKED, Order, temperature=0)
    assert answer.order == [2, 1]
    (call,) = chat.calls
    assert call.options["temperature"] == 0
    sent = call.options["response_format"]["json_schema"]
    assert sent["name"] == "Order"
    assert sent["strict"] is True
    assert json.dumps(sent["schema"], separators=(",", ":")) in call.messages[-1].content
    assert [message.role for message in call.messages] == ["system", "user"]
    assert call.messages[-1].content.startswith("Which?\n\n")


async def test_the_schema_is_what_strict_providers_take() -> None:
    class Titled(BaseModel):
        title: str = "none"
        default: list[Grade] = []

    chat = ScriptedChatClient(['{"title": "t"}'])
    await ask(chat, ASKED, Titled)
    sent: dict[str, Any] = chat.calls[0].options["response_format"]["json_schema"]["schema"]
    assert sent["required"] == ["title", "default"] == list(sent["properties"])
    assert sent["properties"]["title"] == {"type": "string"}
    assert sent["additionalProperties"] is False
    grade = sent["$defs"]["Grade"]
    assert grade["required"] == ["id", "score"]
    assert grade["properties"]["score"] == {"maximum": 5, "minimum": 1, "type": "number"}


async def test_a_caller_may_send_no_response_format() -> None:
    chat = ScriptedChatClient(['{"order": []}'])
    await ask(chat, ASKED, Order, response_format=None)
    assert chat.calls[0].options == {"response_format": None}


async def test_a_bad_answer_is_shown_with_its_error_and_asked_for_again() -> None:
    chat = ScriptedChatClient(['{"order": ["best"]}', '{"order": [1]}'])
    assert (await ask(chat, ASKED, Order)).order == [1]
    again = chat.calls[1].messages
    assert [message.role for message in again] == ["system", "user", "assistant", "user"]
    assert again[:2] == chat.calls[0].messages
    assert again[2].content == '{"order": ["best"]}'
    assert "order.0" in again[3].content


async def test_an_empty_answer_is_asked_for_again_without_an_empty_message() -> None:
    chat = ScriptedChatClient(["", '{"order": [1]}'])
    assert (await ask(chat, ASKED, Order)).order == [1]
    again = chat.calls[1].messages
    assert [message.role for message in again] == ["system", "user"]
    assert "empty" in again[-1].content


async def test_a_long_bad_answer_is_shown_in_part() -> None:
    chat = ScriptedChatClient(["word " * 10_000, '{"order": [1]}'])
    await ask(chat, ASKED, Order)
    assert len(chat.calls[1].messages[2].content) < 5_000


async def test_two_bad_answers_are_an_error_with_the_last_words() -> None:
    chat = ScriptedChatClient(["no", "I'm sorry,\nI can't."], model="small")
    with pytest.raises(ReplyInvalid) as caught:
        await ask(chat, ASKED, Order)
    assert caught.value.reply == "I'm sorry,\nI can't."
    assert caught.value.message.startswith("small did not answer in the form asked for: there is")
    assert "\n" not in str(caught.value)
    assert chat.remaining == 0


async def test_a_check_refuses_what_was_not_sent() -> None:
    def check(answer: Order) -> None:
        if unknown := set(answer.order) - {1, 2}:
            raise ValueError(f"there are no passages {sorted(unknown)}")

    chat = ScriptedChatClient(['{"order": [7]}', '{"order": [2]}'])
    assert (await ask(chat, ASKED, Order, check=check)).order == [2]
    assert "there are no passages [7]." in chat.calls[1].messages[-1].content
    chat = ScriptedChatClient(['{"order": [7]}'])
    with pytest.raises(ReplyInvalid, match=r"no passages \[7\]") as caught:
        await ask(chat, ASKED, Order, check=check, tries=1)
    assert caught.value.reply == '{"order": [7]}'


async def test_a_clients_errors_are_not_tried_again() -> None:
    chat = ScriptedChatClient([ChatUnavailable("down"), '{"order": [1]}'])
    with pytest.raises(ChatUnavailable):
        await ask(chat, ASKED, Order)
    assert chat.remaining == 1


async def test_a_reply_that_was_cut_at_the_limit_is_invalid() -> None:
    cut = ChatReply('{"order": [2, 1', finish_reason="length")
    with pytest.raises(ReplyInvalid, match="cut off"):
        await ask(ScriptedChatClient([cut]), ASKED, Order, tries=1)


@pytest.mark.parametrize(("messages", "tries"), [(ASKED, 0), ([], 2)])
async def test_asking_nothing_is_refused(messages: list[ChatMessage], tries: int) -> None:
    with pytest.raises(ConfigurationError):
        await ask(ScriptedChatClient([]), messages, Order, tries=tries)


async def test_a_conversation_that_ends_with_another_role_gets_a_message_of_its_own() -> None:
    chat = ScriptedChatClient(['{"order": [1]}'])
    await ask(chat, [ChatMessage("system", "Rank 1.")], Order)
    assert [message.role for message in chat.calls[0].messages] == ["system", "user"]
