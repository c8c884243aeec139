"""Conditions of a filter from field, comparison and value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import FilterError
from nbrag.notebook.panels.filter_conditions import condition, joined, operators
from nbrag.stores.filters import parse_filter

RECORD = {"team": "sales", "level": 3, "share": 0.5, "open": True, "tags": ["a", "b"], "no": None}


@pytest.mark.parametrize(
    ("made_of", "text", "passes"),
    [
        (("team", "VARCHAR", "is", "sales"), 'team == "sales"', True),
        (("team", "VARCHAR", "is not", "sales"), 'team != "sales"', False),
        (("team", "VARCHAR", "contains", "al"), '"al" in team', True),
        (("team", "VARCHAR", "starts with", "al"), 'team.startswith("al")', False),
        (("team", "VARCHAR", "ends with", "les"), 'team.endswith("les")', True),
        (("team", "VARCHAR", "is one of", "x, sales"), 'team in ["x", "sales"]', True),
        (("level", "BIGINT", "is", "3"), "level == 3", True),
        (("level", "BIGINT", "is less than", "3"), "level < 3", False),
        (("level", "BIGINT", "is at most", " 3 "), "level <= 3", True),
        (("level", "BIGINT", "is at least", "3"), "level >= 3", True),
        (("level", "BIGINT", "is more than", "3"), "level > 3", False),
        (("share", "DOUBLE", "is", "0.5"), "share == 0.5", True),
        (("open", "BOOLEAN", "is", "true"), "open == True", True),
        (("open", "BOOLEAN", "is not", "No"), "open != False", True),
        (("tags", "VARCHAR[]", "has", "a"), '"a" in tags', True),
        (("tags", "VARCHAR[]", "has not", "a"), 'not ("a" in tags)', False),
        (("no", "VARCHAR", "is missing", ""), "no is None", True),
        (("no", "VARCHAR", "is there", ""), "not (no is None)", False),
        (("a name", "VARCHAR", "is", "x"), 'field("a name") == "x"', False),
    ],
)
def test_conditions_say_what_their_words_say(
    made_of: tuple[str, str, str, str], text: str, passes: bool
) -> None:
    name, kind, words, value = made_of
    assert words in operators(kind)
    made = condition(name, kind, words, value)
    assert str(made) == text
    assert made.evaluate(RECORD) is passes


@pytest.mark.parametrize(
    ("kind", "words", "value", "message"),
    [
        ("BIGINT", "is", "three", r"'three' is not a whole number"),
        ("DOUBLE", "is", "x", r"'x' is not a number"),
        ("BOOLEAN", "is", "maybe", r"not true or false"),
        ("VARCHAR", "is", "  ", r"has no value"),
        ("VARCHAR", "is one of", " , ", r"has no value"),
        ("VARCHAR[]", "is", "x", r"can't be compared with 'is'"),
    ],
)
def test_what_does_not_fit_is_told(kind: str, words: str, value: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        condition("field", kind, words, value)


@given(
    name=st.text(min_size=1, max_size=8),
    value=st.text(min_size=1).filter(lambda text: text.strip()),
    words=st.sampled_from(["is", "is not", "contains", "starts with", "ends with"]),
    how=st.sampled_from(["and", "or"]),
)
def test_any_value_comes_back_from_the_text(name: str, value: str, words: str, how: str) -> None:
    try:
        name.encode()
        value.encode()
    except UnicodeEncodeError:
        return
    made = condition(name, "VARCHAR", words, value)
    assert parse_filter(str(made)) == made
    text = joined(joined("", made, how), condition("level", "BIGINT", "is", "1"), how)
    other = condition("level", "BIGINT", "is", "1")
    assert parse_filter(text) == (made & other if how == "and" else made | other)


def test_joining_to_a_text_that_does_not_parse() -> None:
    with pytest.raises(FilterError):
        joined("page >", condition("level", "BIGINT", "is", "1"), "and")
