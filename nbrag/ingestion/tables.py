"""Tables in memory as records: pandas, polars, Arrow, DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nbrag.errors import ConfigurationError, MissingDependency, did_you_mean

__all__ = ["is_table", "table_records"]

_BATCH_ROWS = 1_024


def is_table(source: Any) -> bool:
    """Tell whether the object is a data frame, an Arrow table or reader, or a DuckDB relation."""
    return _is_pandas(source) or _is_relation(source) or hasattr(source, "__arrow_c_stream__")


def _is_pandas(source: Any) -> bool:
    kind = type(source)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _is_relation(source: Any) -> bool:
    return type(source).__name__ == "DuckDBPyRelation"


def table_records(table: Any, text_column: str) -> Iterator[dict[str, Any]]:
    """Yield a mapping from column to value for each row.

    Parameters
    ----------
    table
        What :func:`is_table` accepts. A relation is run once, at the beginning, so that its
        connection is free for other work.
    text_column
        A column that must be there.

    Raises
    ------
    ConfigurationError
        When it is not there.
    """
    if _is_pandas(table):
        columns = [str(column) for column in table.columns]
        _check(columns, text_column)
        for row in table.itertuples(index=False, name=None):
            yield dict(zip(columns, row, strict=True))
        return
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingDependency("reading tables", "pyarrow") from error
    stream = table.to_arrow_table() if _is_relation(table) else table
    reader = pa.RecordBatchReader.from_stream(stream)
    _check(reader.schema.names, text_column)
    for batch in reader:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield from batch.slice(start, _BATCH_ROWS).to_pylist()


def _check(columns: Iterable[str], text_column: str) -> None:
    names = list(columns)
    if text_column not in names:
        raise ConfigurationError(
            f"the table has no column '{text_column}'.",
            hint=f"{did_you_mean(text_column, names, what='columns')}; name the column with "
            "text_column=",
        )
