"""The one place where names and values become part of SQL."""

from __future__ import annotations

import re

from nbrag.errors import ConfigurationError

__all__ = ["check_collection_name", "literal", "quote", "table"]

#: Schemas that DuckDB, or nbrag itself, has for its own use.
RESERVED = frozenset({"nbrag", "main", "temp", "system", "pg_catalog", "information_schema"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


def quote(name: str) -> str:
    """Return the name as a SQL identifier; whatever it holds, it stays one identifier."""
    if "\0" in name:
        raise ConfigurationError(f"{name!r} can't be a name in a database.")
    return '"' + name.replace('"', '""') + '"'


def literal(value: str | int) -> str:
    """Return a value of nbrag's own as SQL; a person's values are always bound.

    Binding looks for pandas twice for each value, 0.1 ms where there is none.
    """
    if isinstance(value, int):
        return str(int(value))
    if "\0" in value:
        raise ConfigurationError(f"{value!r} can't be a value in a database.")
    return "'" + value.replace("'", "''") + "'"


def table(collection: str, name: str) -> str:
    """Return the qualified SQL name of one of a collection's tables."""
    return f"{quote(collection)}.{quote(name)}"


def check_collection_name(name: str) -> str:
    """Return the name when a collection may have it.

    Raises
    ------
    ConfigurationError
        When it is not a letter followed by letters, digits, ``_`` or ``-`` (63 at most), or is
        a schema of the database itself.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} can't be a collection's name.",
            hint="start with a letter; use letters, digits, _ and -, at most 63 of them",
        )
    if name.lower() in RESERVED:
        raise ConfigurationError(
            f"'{name}' is a schema of the database itself.", hint="choose another name"
        )
    return name
