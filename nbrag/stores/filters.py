"""Filters: a small tree of typed expressions, its text form, and its meaning in Python.

The text is a Python-like expression::

    topic_primary == "security" and "Azure" in entities_technologies and page >= 3
    source.startswith("ops/") and not (page in [1, 2] or title is None)

and ``Field("page") >= 3`` builds the same tree in code. ``str(filter)`` gives text that parses
back to an equal tree. Names that are not Python identifiers are written ``field("a name")``.

A filter is always true or false, never unknown: a record that lacks the field does not match
``==``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``contains``, ``startswith`` or ``endswith``, and so
it does match ``!=``, ``not in`` and anything else that is negated.
"""

from __future__ import annotations

import keyword
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from nbrag.errors import FilterError

__all__ = [
    "AllOf",
    "AnyOf",
    "Comparison",
    "Contains",
    "Field",
    "Filter",
    "IsMissing",
    "Membership",
    "Not",
    "TextMatch",
    "as_filter",
    "parse_filter",
]

Scalar = str | int | float | bool
Operator = Literal["==", "!=", "<", "<=", ">", ">="]


class Filter(ABC):
    """A condition on a record; combine with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    @abstractmethod
    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record passes; a field that is absent or None is missing."""

    @abstractmethod
    def fields(self) -> frozenset[str]:
        """Return the names of all fields that the filter reads."""

    @abstractmethod
    def _text(self) -> str: ...

    def __str__(self) -> str:
        return self._text()

    def __and__(self, other: Filter) -> Filter:
        return AllOf((self, other))

    def __or__(self, other: Filter) -> Filter:
        return AnyOf((self, other))

    def __invert__(self) -> Filter:
        return Not(self)

    def __bool__(self) -> bool:
        """Refuse to be a truth value: ``a and b`` would silently drop ``a``."""
        raise FilterError(
            "A filter has no truth value of its own.",
            hint="combine filters with & | ~ in Python; and, or, not belong in filter text",
        )


def _name(field: str) -> str:
    """Return how a field's name stands in filter text."""
    if field.isidentifier() and field.isascii() and not keyword.iskeyword(field):
        return field
    return f"field({_literal(field)})"


def _literal(value: Scalar) -> str:
    """Return a constant as Python source, texts in double quotes."""
    if not isinstance(value, str):
        return repr(value)
    escaped = "".join(
        {'"': '\\"', "\\": "\\\\"}.get(mark)
        or (mark if mark.isprintable() else mark.encode("unicode_escape").decode())
        for mark in value
    )
    return f'"{escaped}"'


def _checked(value: Any) -> Scalar:
    """Return the constant; refuse what no field can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise FilterError(f"A filter can't compare with {value!r}.")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FilterError("A filter's text holds half of a surrogate pair.") from None
    if not isinstance(value, str | int | float):
        raise FilterError(
            f"A filter can't compare with {value!r}.",
            hint="use a text, a number, True or False, or a list of those",
        )
    return value


def _orderable(left: Any, right: Any) -> bool:
    """Return whether two values are of one kind, so that they can be compared."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool)
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str)
    return isinstance(left, int | float) and isinstance(right, int | float)


@dataclass(frozen=True, slots=True)
class Comparison(Filter):
    """``field <operator> value``; texts compare by code point.

    Attributes
    ----------
    field
        Name of the field.
    operator
        One of ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``.
    value
        The constant.
    """

    field: str
    operator: Operator
    value: Scalar

    def __post_init__(self) -> None:
        """Refuse constants that no field can hold."""
        _checked(self.value)

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record's value stands in the relation; see :class:`Filter`."""
        found: Any = record.get(self.field)
        if found is None or not _orderable(found, self.value):
            return self.operator == "!="
        value: Any = self.value
        match self.operator:
            case "==":
                return bool(found == value)
            case "!=":
                return bool(found != value)
            case "<":
                return bool(found < value)
            case "<=":
                return bool(found <= value)
            case ">":
                return bool(found > value)
            case ">=":
                return bool(found >= value)

    def fields(self) -> frozenset[str]:
        """Return the one field's name."""
        return frozenset((self.field,))

    def _text(self) -> str:
        return f"{_name(self.field)} {self.operator} {_literal(self.value)}"


@dataclass(frozen=True, slots=True)
class Membership(Filter):
    """``field in [values]``: the field equals one of the constants; no constants: never.

    Attributes
    ----------
    field
        Name of the field.
    values
        The constants.
    """

    field: str
    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        """Refuse constants that no field can hold."""
        for value in self.values:
            _checked(value)

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record's value is among the constants; see :class:`Filter`."""
        found = record.get(self.field)
        return any(_orderable(found, value) and found == value for value in self.values)

    def fields(self) -> frozenset[str]:
        """Return the one field's name."""
        return frozenset((self.field,))

    def _text(self) -> str:
        return f"{_name(self.field)} in [{', '.join(map(_literal, self.values))}]"


@dataclass(frozen=True, slots=True)
class Contains(Filter):
    """``"value" in field``: an element of a list field, or a stretch of a text field.

    Attributes
    ----------
    field
        Name of the field.
    value
        The element, or the stretch of text; case counts.
    """

    field: str
    value: str

    def __post_init__(self) -> None:
        """Refuse anything but text."""
        if not isinstance(_checked(self.value), str):
            raise FilterError(f"Only a text can be looked for in '{self.field}'.")

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record's list or text holds the value; see :class:`Filter`."""
        found = record.get(self.field)
        return isinstance(found, str | list | tuple) and self.value in found

    def fields(self) -> frozenset[str]:
        """Return the one field's name."""
        return frozenset((self.field,))

    def _text(self) -> str:
        return f"{_literal(self.value)} in {_name(self.field)}"


@dataclass(frozen=True, slots=True)
class TextMatch(Filter):
    """``field.startswith("value")`` or ``field.endswith("value")``; case counts.

    Attributes
    ----------
    field
        Name of a text field.
    where
        Which end.
    value
        The text that must stand there.
    """

    field: str
    where: Literal["startswith", "endswith"]
    value: str

    def __post_init__(self) -> None:
        """Refuse anything but text."""
        if not isinstance(_checked(self.value), str):
            raise FilterError(f"'{self.field}.{self.where}' takes one text.")

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record's text begins or ends so; see :class:`Filter`."""
        found = record.get(self.field)
        if not isinstance(found, str):
            return False
        at_start = self.where == "startswith"
        return found.startswith(self.value) if at_start else found.endswith(self.value)

    def fields(self) -> frozenset[str]:
        """Return the one field's name."""
        return frozenset((self.field,))

    def _text(self) -> str:
        return f"{_name(self.field)}.{self.where}({_literal(self.value)})"


@dataclass(frozen=True, slots=True)
class IsMissing(Filter):
    """``field is None``: the record does not have the field.

    Attributes
    ----------
    field
        Name of the field.
    """

    field: str

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the record lacks the field."""
        return record.get(self.field) is None

    def fields(self) -> frozenset[str]:
        """Return the one field's name."""
        return frozenset((self.field,))

    def _text(self) -> str:
        return f"{_name(self.field)} is None"


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """``not part``.

    Attributes
    ----------
    part
        The condition that must not hold.
    """

    part: Filter

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether the part does not hold."""
        return not self.part.evaluate(record)

    def fields(self) -> frozenset[str]:
        """Return the part's fields."""
        return self.part.fields()

    def _text(self) -> str:
        return f"not ({self.part})"


@dataclass(frozen=True, slots=True)
class _Combination(Filter):
    parts: tuple[Filter, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise FilterError("A combination of filters needs at least two parts.")

    def fields(self) -> frozenset[str]:
        """Return the fields of all parts."""
        return frozenset[str]().union(*(part.fields() for part in self.parts))

    def _joined(self, word: str) -> str:
        shown = (f"({part})" if isinstance(part, _Combination) else str(part) for part in self)
        return f" {word} ".join(shown)

    def __iter__(self) -> Iterator[Filter]:
        return iter(self.parts)


@dataclass(frozen=True, slots=True)
class AllOf(_Combination):
    """``part and part and ...``; at least two."""

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether every part holds."""
        return all(part.evaluate(record) for part in self.parts)

    def _text(self) -> str:
        return self._joined("and")


@dataclass(frozen=True, slots=True)
class AnyOf(_Combination):
    """``part or part or ...``; at least two."""

    def evaluate(self, record: Mapping[str, Any]) -> bool:
        """Return whether any part holds."""
        return any(part.evaluate(record) for part in self.parts)

    def _text(self) -> str:
        return self._joined("or")


class Field:
    """A field by name, from which filters are built: ``Field("page") >= 3``.

    Parameters
    ----------
    name
        The field's name as the collection has it.

    Examples
    --------
    >>> print((Field("page") >= 3) & Field("tags").contains("ops"))
    page >= 3 and "ops" in tags
    """

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return self.is_none() if value is None else self._compare("==", value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return ~self.is_none() if value is None else self._compare("!=", value)

    def __lt__(self, value: Scalar) -> Filter:
        return self._compare("<", value)

    def __le__(self, value: Scalar) -> Filter:
        return self._compare("<=", value)

    def __gt__(self, value: Scalar) -> Filter:
        return self._compare(">", value)

    def __ge__(self, value: Scalar) -> Filter:
        return self._compare(">=", value)

    def _compare(self, operator: Operator, value: object) -> Filter:
        return Comparison(self.name, operator, cast("Scalar", value))

    def is_in(self, values: Iterable[Scalar]) -> Filter:
        """Return the filter that the field equals one of the values."""
        return Membership(self.name, tuple(values))

    def contains(self, value: str) -> Filter:
        """Return the filter that the field's list has the element, or its text the stretch."""
        return Contains(self.name, value)

    def startswith(self, value: str) -> Filter:
        """Return the filter that the field's text begins with the value."""
        return TextMatch(self.name, "startswith", value)

    def endswith(self, value: str) -> Filter:
        """Return the filter that the field's text ends with the value."""
        return TextMatch(self.name, "endswith", value)

    def is_none(self) -> Filter:
        """Return the filter that the field is missing."""
        return IsMissing(self.name)


def parse_filter(text: str) -> Filter:
    """Return the filter that the text says; the syntax stands at the top of this module.

    Parameters
    ----------
    text
        One expression, at most 20,000 characters.

    Raises
    ------
    FilterError
        When the text does not parse, or uses what a filter can't say.
    """
    from nbrag.stores._filter_parser import parse

    return parse(text)


def as_filter(value: Filter | str | None) -> Filter | None:
    """Return a filter from a filter, its text, or None; blank text means none.

    Raises
    ------
    FilterError
        When the value is something else, or does not parse.
    """
    if value is None or isinstance(value, Filter):
        return value
    if isinstance(value, str):
        return parse_filter(value) if value.strip() else None
    raise FilterError(
        f"A filter can't be made of {type(value).__name__}.",
        hint="write it as text, e.g. where='topic == \"security\"'",
    )
