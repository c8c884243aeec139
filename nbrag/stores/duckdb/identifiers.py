"""The one place where names and values become part of SQL."""

from __future__ import annotations

import re
from typing import Self

from nbrag.errors import ConfigurationError

__all__ = ["CollectionName", "check_collection_name", "literal", "quote", "table"]

#: Schemas that DuckDB, or nbrag itself, has for its own use.
RESERVED = frozenset({"nbrag", "main", "temp", "system", "pg_catalog", "information_schema"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


class CollectionName(str):
    """A collection's name, which is also its schema's, and the file that the schema is in.

    DuckDB calls a file by its name without the ending. Where a collection is called the same,
    ``handbook.chunks`` could mean the file or the schema, and is refused: tables are named in
    full.

    Parameters
    ----------
    name
        The name.
    catalog
        What DuckDB calls the file.
    """

    __slots__ = ("catalog",)
    catalog: str

    def __new__(cls, name: str, catalog: str) -> Self:
        """Return the name."""
        made = super().__new__(cls, name)
        made.catalog = catalog
        return made

    @property
    def schema(self) -> str:
        """The schema as a SQL identifier, in full."""
        return f"{quote(self.catalog)}.{quote(self)}"


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


def table(collection: CollectionName, name: str) -> str:
    """Return the qualified SQL name of one of a collection's tables."""
    return f"{collection.schema}.{quote(name)}"


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
