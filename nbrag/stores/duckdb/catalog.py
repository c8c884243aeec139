"""The collections of a file: which there are, and what is known about each."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from nbrag.errors import CollectionNotFound, StoreError, did_you_mean
from nbrag.stores.duckdb.identifiers import CollectionName, literal, table
from nbrag.stores.duckdb.schema import create_tables
from nbrag.stores.metadata import BUILT_IN_FIELDS
from nbrag.types import EmbedderIdentity

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "CollectionEntry",
    "add_entry",
    "entry_of",
    "field_types",
    "metadata_types",
    "names",
    "new_tag",
    "remove_entry",
    "stamp_of",
]


@dataclass(frozen=True, slots=True)
class CollectionEntry:
    """One collection as the catalogue has it.

    Attributes
    ----------
    name
        Its name, also its schema's.
    uid
        Tells it from another collection that had the same name before.
    identity
        The embedder.
    language
        Language of the keyword leg; None for none.
    index_mode
        ``auto``, ``exact`` or ``hnsw``.
    generation
        Goes up by one with each committed write.
    tag
        Differs with each write, also between a file and its restored copy.
    next_row
        The first row number never used.
    """

    name: CollectionName
    uid: str
    identity: EmbedderIdentity
    language: str | None
    index_mode: str
    generation: int
    tag: str
    next_row: int

    @property
    def stamp(self) -> str:
        """What derived indices carry to tell which state they belong to."""
        return stamp_of(self.generation, self.tag)


def stamp_of(generation: int, tag: str) -> str:
    """Return the stamp of a collection's state."""
    return f"{generation}-{tag}"


def names(cursor: DuckDBPyConnection) -> list[str]:
    """Return the collections' names in order."""
    found = cursor.execute("SELECT name FROM nbrag.collections ORDER BY name").fetchall()
    return [str(row[0]) for row in found]


def entry_of(cursor: DuckDBPyConnection, name: str) -> CollectionEntry:
    """Return what the catalogue says about a collection.

    Raises
    ------
    CollectionNotFound
        With the nearest name there is.
    """
    found = cursor.execute(
        "SELECT name, uid, identity, language, index_mode, generation, stamp, next_row"
        " FROM nbrag.collections WHERE name = ?",
        [name],
    ).fetchone()
    if found is None:
        raise CollectionNotFound(
            f"There is no collection '{name}'.",
            hint=did_you_mean(name, names(cursor), what="collections"),
        )
    identity = EmbedderIdentity(**json.loads(found[2]))
    return CollectionEntry(_in_file(cursor, found[0]), found[1], identity, *found[3:])


def _in_file(cursor: DuckDBPyConnection, name: str) -> CollectionName:
    """Return a collection's name with that of the cursor's file."""
    found = cursor.execute("SELECT current_database()").fetchone()
    return CollectionName(name, str(found[0]) if found else "")


def add_entry(
    cursor: DuckDBPyConnection,
    name: str,
    identity: EmbedderIdentity,
    *,
    language: str | None,
    index_mode: str,
) -> None:
    """Create an empty collection; within the caller's transaction."""
    taken = {known.lower() for known in names(cursor)}
    schemas = cursor.execute(
        "SELECT schema_name FROM duckdb_schemas() WHERE database_name = current_database()"
    ).fetchall()
    if name.lower() in taken:
        raise StoreError(f"There is a collection '{name}' already (letter case does not count).")
    if name.lower() in {str(row[0]).lower() for row in schemas}:
        raise StoreError(
            f"The file has a schema '{name}' that is no collection.", hint="choose another name"
        )
    create_tables(cursor, _in_file(cursor, name), identity.dimension)
    cursor.execute(
        "INSERT INTO nbrag.collections VALUES (?, ?, ?, ?, ?, 0, ?, 0)",
        [name, uuid.uuid4().hex, json.dumps(asdict(identity)), language, index_mode, new_tag()],
    )


def new_tag() -> str:
    """Return a tag that no other write has."""
    return uuid.uuid4().hex[:12]


def remove_entry(cursor: DuckDBPyConnection, name: str) -> CollectionEntry:
    """Delete a collection with all that is in it; within the caller's transaction."""
    entry = entry_of(cursor, name)
    for part in ("chunks", "documents", "staged_vectors", "tree"):
        cursor.execute(f"DROP TABLE IF EXISTS {table(entry.name, part)}")
    left = cursor.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE schema_name = ?"
        " AND database_name = current_database()",
        [name],
    ).fetchone()
    if left and not left[0]:
        # A person's own tables in that schema stay.
        cursor.execute(f"DROP SCHEMA {entry.name.schema}")
    cursor.execute("DELETE FROM nbrag.collections WHERE name = ?", [name])
    cursor.execute("DELETE FROM nbrag.fields WHERE collection = ?", [name])
    cursor.execute("DELETE FROM nbrag.aliases WHERE collection = ?", [name])
    cursor.execute("DELETE FROM nbrag.derived WHERE uid = ?", [entry.uid])
    return entry


def metadata_types(cursor: DuckDBPyConnection, name: str) -> dict[str, str]:
    """Return the collection's metadata fields with their types."""
    found = cursor.execute(
        f"SELECT name, type FROM nbrag.fields WHERE collection = {literal(name)} ORDER BY name"
    ).fetchall()
    return {str(field): str(kind) for field, kind in found}


def field_types(cursor: DuckDBPyConnection, name: str) -> dict[str, str]:
    """Return all fields that a filter may name, with their types."""
    return {**BUILT_IN_FIELDS, **metadata_types(cursor, name)}
