"""Filter text, the tree, and what it means for a record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import FilterError
from nbrag.stores.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Field,
    Filter,
    IsMissing,
    Membership,
    Not,
    TextMatch,
    as_filter,
    parse_filter,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    TEXT, st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
)
NAMES = st.one_of(st.sampled_from(["page", "class", "a b", "naïve", "None", "field", 'q"']), TEXT)


def filters() -> st.SearchStrategy[Filter]:
    leaves = st.one_of(
        st.builds(Comparison, NAMES, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), SCALARS),
        st.builds(Membership, NAMES, st.lists(SCALARS, max_size=3).map(tuple)),
        st.builds(Contains, NAMES, TEXT),
        st.builds(TextMatch, NAMES, st.sampled_from(["startswith", "endswith"]), TEXT),
        st.builds(IsMissing, NAMES),
    )
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.builds(Not, parts),
            st.builds(AllOf, st.lists(parts, min_size=2, max_size=3).map(tuple)),
            st.builds(AnyOf, st.lists(parts, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=8,
    )


@given(filters())
def test_text_of_a_filter_parses_back_to_it(tree: Filter) -> None:
    text = str(tree)
    parsed = parse_filter(text)
    assert parsed == tree
    assert str(parsed) == text


@given(TEXT)
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parsed = parse_filter(text)
    except FilterError:
        return
    assert parse_filter(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ('topic == "security"', Comparison("topic", "==", "security")),
        ("3 < page", Comparison("page", ">", 3)),
        ("3 == page", Comparison("page", "==", 3)),
        ("page >= -2.5", Comparison("page", ">=", -2.5)),
        (
            "1 <= page < 5",
            AllOf((Comparison("page", ">=", 1), Comparison("page", "<", 5))),
        ),
        ('"Azure" in technologies', Contains("technologies", "Azure")),
        ('"Azure" not in technologies', Not(Contains("technologies", "Azure"))),
        ('title.contains("x")', Contains("title", "x")),
        ('topic in ["a", "b"]', Membership("topic", ("a", "b"))),
        ('topic not in ("a",)', Not(Membership("topic", ("a",)))),
        ("page in {1, 2}", Membership("page", (1, 2))),
        ("page in []", Membership("page", ())),
        ("page is None", IsMissing("page")),
        ("page != None", Not(IsMissing("page"))),
        ('source.startswith("ops/")', TextMatch("source", "startswith", "ops/")),
        ("draft", Comparison("draft", "==", True)),
        ("not draft", Not(Comparison("draft", "==", True))),
        (
            "  a == 1 and b == 2 or\n c == 3  ".replace("\n", " "),
            AnyOf(
                (
                    AllOf((Comparison("a", "==", 1), Comparison("b", "==", 2))),
                    Comparison("c", "==", 3),
                )
            ),
        ),
        ('field("a name") == 1', Comparison("a name", "==", 1)),
    ],
)
def test_parsing(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "page =",
        "page = 3",
        "page ==",
        "page == other",
        "1 == 1",
        "page + 1 == 3",
        "page == f'x'",
        "__import__('os').system('true')",
        "title.lower() == 'x'",
        "title.upper('x')",
        "title.startswith('a', 'b')",
        "title.startswith(3)",
        "lambda: 1",
        "[x for x in y]",
        "a if b else c",
        "page is 3",
        "page in other",
        "3 in page",
        "page in [1, other]",
        "None < page",
        "page == 1e999",
        "title == '\\ud800'",
        "page == 1; drop",
        "(" * 3000,
        "not " * 4000 + "a",
        "a" * 30000,
        "a == b'x'",
        "x\0y",
    ],
)
def test_what_a_filter_can_not_say(text: str) -> None:
    with pytest.raises(FilterError):
        parse_filter(text)


def test_assignment_is_explained() -> None:
    with pytest.raises(FilterError, match="write '=='"):
        parse_filter('topic = "security"')


def test_fields_build_the_same_trees() -> None:
    assert (Field("page") >= 3) & ~Field("tags").contains("ops") == parse_filter(
        'page >= 3 and not "ops" in tags'
    )
    built = (Field("a") == "x") | (Field("b") != 1) | Field("c").is_in([1, 2])
    assert built.fields() == {"a", "b", "c"}
    assert (Field("a") == None) == IsMissing("a")  # noqa: E711
    assert (Field("a") != None) == Not(IsMissing("a"))  # noqa: E711
    assert (Field("a") < 1, Field("a") <= 1, Field("a") > 1) == (
        Comparison("a", "<", 1), Comparison("a", "<=", 1), Comparison("a", ">", 1),
    )  # fmt: skip
    assert str(Field("s").startswith("x")) == 's.startswith("x")'
    assert str(Field("s").endswith('"')) == 's.endswith("\\"")'


def test_a_filter_is_no_truth_value() -> None:
    with pytest.raises(FilterError, match="truth value"):
        _ = (Field("a") == 1) and (Field("b") == 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", b"x", object(), [1]])
def test_constants_that_no_field_holds(value: Any) -> None:
    with pytest.raises(FilterError):
        _ = Field("a") == value
    with pytest.raises(FilterError):
        Field("a").is_in([value])


def test_as_filter() -> None:
    tree = Comparison("a", "==", 1)
    assert as_filter(tree) is tree
    assert as_filter("a == 1") == tree
    assert as_filter(None) is None
    assert as_filter("  ") is None
    with pytest.raises(FilterError, match="dict"):
        as_filter({"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("missing == 1", False),
        ("missing != 1", True),
        ("missing < 1", False),
        ("not missing < 1", True),
        ("missing in [1]", False),
        ("missing not in [1]", True),
        ('"x" in missing', False),
        ('"x" not in missing', True),
        ('missing.startswith("")', False),
        ("missing is None", True),
        ("present is None", False),
        ("present != 3", False),
        ("present == 3.0", True),
        ("flag and not other_flag", True),
        ('"b" in tags and "c" not in tags', True),
        ('"pp" in name', True),
        ('name < "b" and name > "A"', True),
    ],
)
def test_meaning(text: str, passes: bool) -> None:
    record = {"present": 3, "flag": True, "tags": ["a", "b"], "name": "apple", "gone": None}
    assert parse_filter(text).evaluate(record) is passes
