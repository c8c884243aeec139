"""A filter gives in DuckDB what it gives in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbrag.errors import FilterError
from nbrag.stores.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsMissing,
    Membership,
    Not,
    TextMatch,
    parse_filter,
)
from nbrag.stores.filters_sql import check_filter, compile_filter

FIELDS = {
    "t": "VARCHAR",
    "n": "BIGINT",
    "x": "DOUBLE",
    "b": "BOOLEAN",
    'l"': "VARCHAR[]",
}
TEXT = st.text(st.sampled_from(["a", "B", "é", "%", "_", "'", '"', "😀", "\0", "\n"]), max_size=3)
WHOLE = st.one_of(st.integers(-3, 3), st.integers(-(2**52), 2**52))
REAL = st.one_of(st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0]), st.floats(-1e12, 1e12))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "t": TEXT, "n": WHOLE, "x": REAL, "b": st.booleans(), 'l"': st.lists(TEXT, max_size=3),
}  # fmt: skip
CONSTANTS: dict[str, st.SearchStrategy[Any]] = {
    "t": TEXT,
    "n": st.one_of(WHOLE, REAL, st.sampled_from([2**63, -(2**63) - 1, 10**400])),
    "x": st.one_of(WHOLE, REAL, st.sampled_from([2**70, -(10**400), 10**400])),
    "b": st.booleans(),
}
RECORDS = st.fixed_dictionaries(
    {name: st.one_of(st.none(), values) for name, values in VALUES.items()}
)
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


def leaves() -> st.SearchStrategy[Filter]:
    choices: list[st.SearchStrategy[Filter]] = [
        st.builds(IsMissing, st.sampled_from(list(FIELDS))),
        st.builds(Contains, st.sampled_from(["t", 'l"']), TEXT),
        st.builds(TextMatch, st.just("t"), st.sampled_from(["startswith", "endswith"]), TEXT),
    ]
    for name, constants in CONSTANTS.items():
        choices.append(st.builds(Comparison, st.just(name), OPERATORS, constants))
        choices.append(
            st.builds(Membership, st.just(name), st.lists(constants, max_size=3).map(tuple))
        )
    return st.one_of(choices)


FILTERS = st.recursive(
    leaves(),
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(AllOf, st.lists(parts, min_size=2, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(parts, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    columns = ", ".join(
        '"' + name.replace('"', '""') + f'" {kind}' for name, kind in FIELDS.items()
    )
    connection.execute(f"CREATE TABLE records (number BIGINT, {columns})")
    yield connection
    connection.close()


@settings(max_examples=120, deadline=None)
@given(tree=FILTERS, records=st.lists(RECORDS, min_size=1, max_size=6))
@example(tree=Comparison("x", "<", 2**70), records=[{"x": 1e30}, {"x": 1.0}, {"x": None}])
def test_sql_and_python_agree(
    database: duckdb.DuckDBPyConnection, tree: Filter, records: list[dict[str, Any]]
) -> None:
    database.execute("DELETE FROM records")
    for number, record in enumerate(records):
        values = [record.get(name) for name in FIELDS]
        database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", [number, *values])
    sql, parameters = compile_filter(tree, FIELDS)
    found = database.execute(
        f"SELECT number FROM records WHERE {sql} ORDER BY number", parameters
    ).fetchall()
    expected = [number for number, record in enumerate(records) if tree.evaluate(record)]
    assert [number for (number,) in found] == expected
    unknown = database.execute(
        f"SELECT count(*) FROM records WHERE ({sql}) IS NULL", parameters
    ).fetchone()
    assert unknown == (0,)


def test_values_are_never_part_of_the_sql() -> None:
    sql, parameters = compile_filter(parse_filter('t == "\'; DROP TABLE x"'), FIELDS)
    assert "DROP" not in sql
    assert parameters == ["'; DROP TABLE x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tt == 1", "no field 'tt'"),
        ("zzz == 1", "known fields"),
        ("n == 'x'", "whole number"),
        ("n == True", "whole number"),
        ("x in ['a']", "'x' is a number"),
        ("t == 3", "'t' is a text"),
        ("t in [1, 'a']", "'t' is a text"),
        ("b == 1", "write b, or not b"),
        ("n", "whole number"),
        ('field("l\\"") == "a"', "list of texts"),
        ('field("l\\"") in ["a"]', "list of texts"),
        ('field("l\\"").startswith("a")', "list of texts"),
        ('"a" in n', "whole number"),
        ('n.startswith("1")', "whole number"),
        ("nope is None and n == 1", "no field 'nope'"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        check_filter(parse_filter(text), FIELDS)
