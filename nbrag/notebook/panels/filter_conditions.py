"""Conditions of a filter made of a field, words that fit its type, and a value."""

from __future__ import annotations

from typing import Any

from nbrag.errors import FilterError, did_you_mean
from nbrag.stores.filters import Field, Filter, as_filter

__all__ = ["condition", "joined", "operators"]

_MISSING = ("is missing", "is there")
_TEXT = ("is", "is not", "contains", "starts with", "ends with", "is one of", *_MISSING)
_NUMBER = ("is", "is not", "is less than", "is at most", "is at least", "is more than", *_MISSING)
_OPERATORS = {
    "VARCHAR": _TEXT,
    "BIGINT": _NUMBER,
    "DOUBLE": _NUMBER,
    "BOOLEAN": ("is", "is not", *_MISSING),
    "VARCHAR[]": ("has", "has not", *_MISSING),
}
_WORDS = {"BIGINT": "a whole number", "DOUBLE": "a number", "BOOLEAN": "true or false"}


def operators(kind: str) -> tuple[str, ...]:
    """Return the words that fit a field's type, the most useful first."""
    return _OPERATORS.get(kind, _TEXT)


def condition(name: str, kind: str, words: str, value: str) -> Filter:
    """Return the filter that a field, an operator in words, and a value make.

    Parameters
    ----------
    name, kind
        The field and its type, as :meth:`nbrag.protocols.Collection.fields` tells it.
    words
        One of :func:`operators`.
    value
        What was typed; for ``is one of`` values with commas between them.

    Raises
    ------
    FilterError
        When the value does not fit the type, or is missing.
    """
    field: Any = Field(name)
    if words == "is missing":
        return Field(name).is_none()
    if words == "is there":
        return ~Field(name).is_none()
    if words not in operators(kind):
        raise FilterError(
            f"'{name}' can't be compared with '{words}'.",
            hint=did_you_mean(words, operators(kind), what="comparisons"),
        )
    if words == "is one of":
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return Field(name).is_in([_value(name, kind, part) for part in parts or [""]])
    given: Any = _value(name, kind, value)
    made: Filter = {
        "is": lambda: field == given,
        "is not": lambda: field != given,
        "is less than": lambda: field < given,
        "is at most": lambda: field <= given,
        "is at least": lambda: field >= given,
        "is more than": lambda: field > given,
        "contains": lambda: field.contains(given),
        "has": lambda: field.contains(given),
        "has not": lambda: ~field.contains(given),
        "starts with": lambda: field.startswith(given),
        "ends with": lambda: field.endswith(given),
    }[words]()
    return made


def _value(name: str, kind: str, text: str) -> Any:
    typed = text.strip()
    if not typed:
        raise FilterError(f"the condition on '{name}' has no value.", hint="type or choose one")
    try:
        if kind == "BIGINT":
            return int(typed)
        if kind == "DOUBLE":
            return float(typed)
        if kind == "BOOLEAN":
            return {"true": True, "false": False, "yes": True, "no": False}[typed.lower()]
    except (ValueError, KeyError):
        raise FilterError(
            f"{typed!r} is not {_WORDS[kind]}.", hint=f"'{name}' holds such"
        ) from None
    return text


def joined(text: str, added: Filter, how: str) -> str:
    """Return a filter's text with one more condition.

    Parameters
    ----------
    text
        The filter so far; may be empty.
    added
        The condition.
    how
        ``and`` or ``or``.

    Raises
    ------
    FilterError
        When the text does not parse.
    """
    before = as_filter(text)
    if before is None:
        return str(added)
    return str(before & added if how == "and" else before | added)
