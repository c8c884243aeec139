"""Names in filters: other names that a collection was told of, and the spellings that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nbrag.stores.duckdb.catalog import entry_of, field_types, new_tag, stamp_of
from nbrag.stores.duckdb.identifiers import CollectionName
from nbrag.stores.duckdb.rows import field_values
from nbrag.stores.filters import Filter
from nbrag.stores.filters_sql import compile_filter
from nbrag.stores.indices import Change
from nbrag.stores.names import MOST_NAMES, NameTable, in_stored_spelling

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["compiled", "read_aliases", "write_aliases"]

_NO_ROWS = np.empty(0, np.int64)


def compiled(
    cursor: DuckDBPyConnection, name: CollectionName, condition: Filter
) -> tuple[str, list[Any]]:
    """Return a filter as SQL with its parameters; names in it may be spelled in any way.

    Raises
    ------
    FilterError
        When the filter doesn't fit the collection's fields.
    """
    types = field_types(cursor, name)

    def table_of(field: str) -> NameTable:
        """Return what is known of a field's names."""
        kind = types.get(field)
        values = field_values(cursor, name, field, kind, MOST_NAMES) if kind else []
        return NameTable.of_field(field, values, read_aliases(cursor, name).get(field, {}))

    return compile_filter(in_stored_spelling(condition, table_of), types)


def read_aliases(cursor: DuckDBPyConnection, name: CollectionName) -> dict[str, dict[str, str]]:
    """Return other names by what they stand for, for each field."""
    known = cursor.execute(
        "SELECT 1 FROM duckdb_tables() WHERE schema_name = 'nbrag' AND table_name = 'aliases'"
        " AND database_name = current_database()"
    ).fetchone()
    if known is None:
        # The file is older, and open for reading only.
        return {}
    found = cursor.execute(
        "SELECT field, alias, name FROM nbrag.aliases WHERE collection = ? ORDER BY ALL", [name]
    ).fetchall()
    aliases: dict[str, dict[str, str]] = {}
    for field, alias, meant in found:
        aliases.setdefault(field, {})[alias] = meant
    return aliases


def write_aliases(
    cursor: DuckDBPyConnection, name: CollectionName, aliases: Mapping[str, Mapping[str, str]]
) -> Change:
    """Add other names, within the caller's transaction; one that is known gets its new meaning."""
    entry = entry_of(cursor, name)
    known = read_aliases(cursor, name)
    new = [
        [entry.name, field, alias, meant]
        for field, pairs in aliases.items()
        for alias, meant in pairs.items()
        if known.get(field, {}).get(alias) != meant
    ]
    if not new:
        return Change(entry.stamp, entry.stamp, _NO_ROWS)
    for row in new:
        cursor.execute(
            "DELETE FROM nbrag.aliases WHERE collection = ? AND field = ? AND alias = ?", row[:3]
        )
        cursor.execute("INSERT INTO nbrag.aliases VALUES (?, ?, ?, ?)", row)
    # What filters leave is remembered by the state's stamp: it has to change.
    tag = new_tag()
    cursor.execute(
        "UPDATE nbrag.collections SET generation = generation + 1, stamp = ? WHERE name = ?",
        [tag, entry.name],
    )
    return Change(entry.stamp, stamp_of(entry.generation + 1, tag), _NO_ROWS)
