from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError
from nbrag.models.chat import relevant_options, request_key
from nbrag.types import ChatMessage

HELLO = [ChatMessage("user", "hello")]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_a_key_is_the_same_in_another_process():
    code = (
        "from nbrag.models.chat import request_key; from nbrag.types import ChatMessage; "
        "print(request_key('m', [ChatMessage('user', 'größe \\ud800')], {'b': 1, 'a': {'x': 2}}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = request_key("m", [ChatMessage("user", "größe \ud800")], {"a": {"x": 2}, "b": 1})
    assert found.stdout.strip() == here
    assert len(here) == 64


@pytest.mark.parametrize(
    ("model", "messages", "options"),
    [
        ("n", HELLO, {}),
        ("m", [ChatMessage("user", "hello ")], {}),
        ("m", [ChatMessage("system", "hello")], {}),
        ("m", [*HELLO, ChatMessage("assistant", "")], {}),
        ("m", HELLO, {"temperature": 0}),
        ("m", HELLO, {"response_format": {"type": "json_object"}}),
        ("m", HELLO, {"api_base": "http://host/v1"}),
    ],
)
def test_all_that_changes_an_answer_changes_the_key(model, messages, options):
    assert request_key(model, messages, options) != request_key("m", HELLO, {})


def test_what_only_concerns_the_sending_does_not():
    sending = {"timeout": 3, "stream": True, "user": "me", "temperature": None}
    assert request_key("m", HELLO, sending) == request_key("m", HELLO, {})
    assert relevant_options({"b": 1, "timeout": 2, "a": None, "aa": 3}) == {"aa": 3, "b": 1}


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_order_of_options_does_not_matter(options):
    reverse = dict(reversed(options.items()))
    assert request_key("m", HELLO, options) == request_key("m", HELLO, reverse)


def test_options_that_are_not_json_are_refused():
    with pytest.raises(ConfigurationError, match="not JSON"):
        request_key("m", HELLO, {"response_format": object})
