"""Filters checked against a collection's fields, and compiled to SQL with bound parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbrag.errors import FilterError, did_you_mean
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
)

__all__ = ["check_filter", "compile_filter"]

_KINDS = {
    "VARCHAR": "text",
    "BIGINT": "whole number",
    "DOUBLE": "number",
    "BOOLEAN": "truth value",
    "VARCHAR[]": "list of texts",
}
_INT64 = 2**63


def check_filter(filter: Filter, fields: Mapping[str, str]) -> None:  # noqa: A002 - its name
    """Make sure that every field exists and is compared with what it can hold.

    Parameters
    ----------
    filter
        The filter.
    fields
        The collection's fields with their types: ``VARCHAR``, ``BIGINT``, ``DOUBLE``,
        ``BOOLEAN`` or ``VARCHAR[]``.

    Raises
    ------
    FilterError
        For an unknown field (with the nearest name) or a comparison that can't be.
    """
    compile_filter(filter, fields)


def compile_filter(
    filter: Filter,  # noqa: A002 - its name
    fields: Mapping[str, str],
) -> tuple[str, list[Any]]:
    """Return a SQL condition that is never NULL, and its parameters in order.

    Parameters
    ----------
    filter
        The filter.
    fields
        As for :func:`check_filter`; a field's name is its column's name.

    Raises
    ------
    FilterError
        As :func:`check_filter`.
    """
    parameters: list[Any] = []
    return _compile(filter, fields, parameters), parameters


def _compile(node: Filter, fields: Mapping[str, str], parameters: list[Any]) -> str:
    match node:
        case AllOf(parts) | AnyOf(parts):
            word = " AND " if isinstance(node, AllOf) else " OR "
            return "(" + word.join(_compile(part, fields, parameters) for part in parts) + ")"
        case Not(part):
            return f"(NOT {_compile(part, fields, parameters)})"
        case IsMissing(field):
            _type_of(field, fields)
            return f"({_column(field)} IS NULL)"
        case Comparison(field, operator, value):
            kind = _type_of(field, fields)
            _check_value(field, kind, value)
            return _compare(_column(field), operator, _bound(kind, value), parameters)
        case Membership(field, values):
            kind = _type_of(field, fields)
            for value in values:
                _check_value(field, kind, value)
            within = [bound for value in values if not _beyond(bound := _bound(kind, value))]
            if not within:
                return "FALSE"
            parameters.extend(within)
            marks = ", ".join("?" * len(within))
            return f"({_column(field)} IS NOT NULL AND {_column(field)} IN ({marks}))"
        case Contains(field, value):
            kind = _type_of(field, fields)
            if kind not in {"VARCHAR", "VARCHAR[]"}:
                raise _mismatch(field, kind, f'"{value}" in {field}')
            function = "contains" if kind == "VARCHAR" else "list_contains"
            return _call(function, field, value, parameters)
        case TextMatch(field, where, value):
            kind = _type_of(field, fields)
            if kind != "VARCHAR":
                raise _mismatch(field, kind, str(node))
            function = "starts_with" if where == "startswith" else "suffix"
            return _call(function, field, value, parameters)
    raise FilterError(f"This store can't search with a filter of type {type(node).__name__}.")


def _column(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _call(function: str, field: str, value: str, parameters: list[Any]) -> str:
    parameters.append(value)
    column = _column(field)
    return f"({column} IS NOT NULL AND {function}({column}, ?))"


def _compare(column: str, operator: str, value: Any, parameters: list[Any]) -> str:
    if _beyond(value):
        # No stored number is that far out, so the answer depends on the sign alone.
        if operator in {"==", "!="}:
            return "TRUE" if operator == "!=" else "FALSE"
        return f"({column} IS NOT NULL)" if (operator[0] == "<") == (value > 0) else "FALSE"
    parameters.append(value)
    if operator == "!=":
        return f"({column} IS NULL OR {column} <> ?)"
    return f"({column} IS NOT NULL AND {column} {'=' if operator == '==' else operator} ?)"


def _bound(kind: str, value: Any) -> Any:
    """Return the constant as the type that the column compares with."""
    if kind != "DOUBLE" or isinstance(value, float):
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def _beyond(value: Any) -> bool:
    """Return whether a whole number is outside of what a column can hold."""
    return isinstance(value, int) and not -_INT64 <= value < _INT64


def _type_of(field: str, fields: Mapping[str, str]) -> str:
    kind = fields.get(field)
    if kind is None:
        raise FilterError(
            f"There is no field '{field}'.", hint=did_you_mean(field, fields, what="fields")
        )
    return kind


def _check_value(field: str, kind: str, value: Any) -> None:
    fits = {
        "VARCHAR": isinstance(value, str),
        "BOOLEAN": isinstance(value, bool),
        "BIGINT": isinstance(value, int | float) and not isinstance(value, bool),
        "DOUBLE": isinstance(value, int | float) and not isinstance(value, bool),
    }.get(kind, False)
    if not fits:
        raise _mismatch(field, kind, f"it can't be compared with {value!r}")


def _mismatch(field: str, kind: str, what: str) -> FilterError:
    hint = f"compare it with a {_KINDS.get(kind, kind)}"
    if kind == "VARCHAR[]":
        hint = f'write "..." in {field}'
    elif kind == "BOOLEAN":
        hint = f"write {field}, or not {field}"
    return FilterError(f"'{field}' is a {_KINDS.get(kind, kind)}: {what}.", hint=hint)
