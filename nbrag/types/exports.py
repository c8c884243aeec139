"""From rows to Arrow, pandas and polars; each library is imported when it is asked for."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from nbrag.errors import MissingDependency

__all__ = ["TabularResult", "arrow_table", "pandas_frame", "polars_frame"]

#: Halves of a surrogate pair have no UTF-8, which all column formats are made of.
_SURROGATES = re.compile("[\ud800-\udfff]")


class TabularResult(ABC):
    """A result that is a table too: for pandas, polars, and whatever reads Arrow."""

    __slots__ = ()
    #: Columns that are there even without rows, as for :func:`arrow_table`.
    _columns: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per row."""

    def to_arrow(self) -> Any:
        """Return the rows of :meth:`to_dicts` as a ``pyarrow.Table``."""
        return arrow_table(self.to_dicts(), self._columns)

    def to_pandas(self) -> Any:
        """Return the rows of :meth:`to_dicts` as a pandas DataFrame.

        Raises
        ------
        MissingDependency
            When pandas is not installed.
        """
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> Any:
        """Return the rows of :meth:`to_dicts` as a polars DataFrame.

        Raises
        ------
        MissingDependency
            When polars is not installed.
        """
        return polars_frame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give the rows to any library that reads Arrow, such as DuckDB or polars."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def arrow_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None) -> Any:
    """Return a ``pyarrow.Table``.

    Parameters
    ----------
    rows
        One mapping per row; what a row lacks becomes null.
    columns
        Columns that are there even without rows, with their Arrow type: ``int64``, ``float64``,
        ``bool``, ``string`` or ``list<string>``. Further columns are typed by their values, and
        become text where these don't agree.
    """
    import pyarrow as pa

    named = {
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "list<string>": pa.list_(pa.string()),
    }
    known = {name: named[kind] for name, kind in (columns or {}).items()}
    names = list(dict.fromkeys([*known, *(name for row in rows for name in row)]))
    arrays = [_column([row.get(name) for row in rows], known.get(name)) for name in names]
    return pa.Table.from_arrays(arrays, names=[_encodable(name) for name in names])


def _column(values: Iterable[Any], kind: Any) -> Any:
    """Return the values as one Arrow array; as text when they have no type in common."""
    import pyarrow as pa

    cleaned = [_encodable(value) for value in values]
    try:
        return pa.array(cleaned, type=kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [None if value is None else _encodable(str(value)) for value in cleaned]
        return pa.array(texts, type=pa.string())


def _encodable(value: Any) -> Any:
    """Return the value with U+FFFD in the place of lone surrogates; tuples become lists."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list | tuple):
        return [_encodable(part) for part in value]
    return value


def pandas_frame(table: Any) -> Any:
    """Return a pandas DataFrame of an Arrow table; whole numbers stay whole beside nulls.

    Raises
    ------
    MissingDependency
        When pandas is not installed.
    """
    pandas = _library("pandas")
    frame = table.to_pandas()
    for field in table.schema:
        if str(field.type) == "int64" and table.column(field.name).null_count:
            frame[field.name] = pandas.array(table.column(field.name).to_pylist(), dtype="Int64")
    return frame


def polars_frame(table: Any) -> Any:
    """Return a polars DataFrame of an Arrow table.

    Raises
    ------
    MissingDependency
        When polars is not installed.
    """
    return _library("polars").from_arrow(table)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingDependency(f"a {name} data frame", name) from None
