"""``{{ name }}`` and nothing else is expanded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import MagicUsageError
from nbrag.notebook.expansion import expand, expand_body
from nbrag.spec.grammar import parse_stages


class Thing:
    size = 3


NAMES: dict[str, Any] = {"count": 4, "thing": Thing(), "größe": "x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ count }} and {{thing.size}}", "4 and 3"),
        ("{{ größe }}", "x"),
        ("$count {count} {count", "$count {count} {count"),
        ("{{ open", "{{ open"),
    ],
)
def test_expands_names_only(text: str, expected: str) -> None:
    assert expand(text, NAMES) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ cuont }}", "did you mean 'count'"),
        ("{{ nothing_like_it }}", "set it in a cell above"),
        ("{{ thing.sise }}", "a Thing has no attribute 'sise'. Hint: did you mean 'size'"),
        ("{{ count + 1 }}", "is not a name or name.attribute"),
        ("{{ }}", "--raw"),
    ],
)
def test_strict(text: str, words: str) -> None:
    with pytest.raises(MagicUsageError) as caught:
        expand(text, NAMES)
    assert words in str(caught.value)


@given(st.text() | st.integers())
def test_a_value_in_a_body_stays_one_value(value: Any) -> None:
    for body in ("stage key={{ v }} other=1", 'stage key="{{ v }}" other=1'):
        (stage,) = parse_stages(expand_body(body, {"v": value}))
        assert dict(stage.options) == {"key": (str(value),), "other": ("1",)}


def test_lists_become_several_values() -> None:
    (stage,) = parse_stages(expand_body("stage key={{ v }}", {"v": ["a b", "c"]}))
    assert stage.options["key"] == ("a b", "c")


def test_comments_are_left_alone() -> None:
    body = 'stage key="# {{ v }}"  # {{ undefined }}\n# {{ also }}\n'
    expected = 'stage key="# 1"  # {{ undefined }}\n# {{ also }}\n'
    assert expand_body(body, {"v": 1}) == expected
