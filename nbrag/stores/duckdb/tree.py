"""The summary tree of a collection: its table of links, and the rows of its summaries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nbrag.errors import StoreError
from nbrag.stores.duckdb.identifiers import CollectionName, literal, table
from nbrag.stores.duckdb.names import compiled
from nbrag.stores.duckdb.schema import SUMMARIES, TREE_COLUMNS, create_tree
from nbrag.stores.filters import as_filter
from nbrag.types import ChunkKind, Document, TreeLink

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "has_tree",
    "original_ids",
    "read_links",
    "require_tree",
    "stored_owners",
    "summary_ids",
    "take_out_above",
    "write_links",
]


def _is_there(cursor: DuckDBPyConnection, name: CollectionName) -> bool:
    """Tell whether the collection has the table, which older files lack."""
    columns = ", ".join(literal(column) for column in TREE_COLUMNS)
    found = cursor.execute(
        "SELECT count(*) FROM duckdb_columns() WHERE database_name = current_database()"
        f" AND schema_name = {literal(str(name))} AND table_name = 'tree'"
        f" AND column_name IN ({columns})"
    ).fetchone()
    return found is not None and found[0] == len(TREE_COLUMNS)


def has_tree(cursor: DuckDBPyConnection, name: CollectionName) -> bool:
    """Tell whether the collection has a summary tree."""
    if not _is_there(cursor, name):
        return False
    return cursor.execute(f"SELECT 1 FROM {table(name, 'tree')} LIMIT 1").fetchone() is not None


def require_tree(cursor: DuckDBPyConnection, name: CollectionName) -> None:
    """Create the table where it is missing.

    Raises
    ------
    StoreError
        When there is a person's own table of that name.
    """
    create_tree(cursor, name)
    if not _is_there(cursor, name):
        raise StoreError(
            f"{name}.tree is a table of your own; the summary tree needs that name.",
            hint=f"rename it: ALTER TABLE {name}.tree RENAME TO my_tree",
        )


def read_links(
    cursor: DuckDBPyConnection, name: CollectionName, _: object = None
) -> list[TreeLink]:
    """Return the links in the order in which they were written; a tree has no filter."""
    if not _is_there(cursor, name):
        return []
    found = cursor.execute(
        f"SELECT parent, child, level FROM {table(name, 'tree')} ORDER BY rowid"
    ).fetchall()
    return [TreeLink(*link) for link in found]


def write_links(
    cursor: DuckDBPyConnection, name: CollectionName, links: Sequence[TreeLink]
) -> bool:
    """Replace all links; return whether they were others before."""
    import pyarrow as pa

    if read_links(cursor, name) == list(links):
        return False
    cursor.execute(f"DELETE FROM {table(name, 'tree')}")
    cursor.register(
        "nbrag_links",
        pa.table(
            {
                "parent": pa.array([link.parent for link in links], pa.string()),
                "child": pa.array([link.child for link in links], pa.string()),
                "level": pa.array([link.level for link in links], pa.int64()),
            }
        ),
    )
    cursor.execute(f"INSERT INTO {table(name, 'tree')} BY NAME SELECT * FROM nbrag_links")
    cursor.unregister("nbrag_links")
    return True


def original_ids(cursor: DuckDBPyConnection, name: CollectionName, where: Any) -> list[str]:
    """Return ids as :meth:`nbrag.protocols.Collection.original_ids`."""
    kinds = f"({literal(str(ChunkKind.ORIGINAL))})"
    return _ids(cursor, name, kinds, where, "source, ordinal, row")


def summary_ids(cursor: DuckDBPyConnection, name: CollectionName, where: Any) -> list[str]:
    """Return ids as :meth:`nbrag.protocols.Collection.summary_ids`."""
    return _ids(cursor, name, SUMMARIES, where, "row")


def _ids(
    cursor: DuckDBPyConnection, name: CollectionName, kinds: str, where: Any, order: str
) -> list[str]:
    condition = as_filter(where)
    sql, parameters = "true", list[Any]()
    if condition is not None:
        sql, parameters = compiled(cursor, name, condition)
    found = cursor.execute(
        f"SELECT id FROM {table(name, 'chunks')} WHERE kind IN {kinds} AND ({sql})"
        f" ORDER BY {order}",
        parameters or None,
    ).fetchnumpy()["id"]
    return [str(chunk_id) for chunk_id in found]


def stored_owners(
    cursor: DuckDBPyConnection, name: CollectionName, document_ids: Iterable[str]
) -> dict[str, Document]:
    """Return documents by id, without their texts."""
    wanted = sorted(set(document_ids) - {""})
    marks = ", ".join("?" * len(wanted))
    if not wanted:
        return {}
    found = cursor.execute(
        "SELECT id, uri, title, media_type, metadata::VARCHAR"
        f" FROM {table(name, 'documents')} WHERE id IN ({marks})",
        wanted,
    ).fetchall()
    return {
        document_id: Document(
            uri, "", title or "", media_type or "", metadata=json.loads(metadata or "{}")
        )
        for document_id, uri, title, media_type, metadata in found
    }


def take_out_above(
    cursor: DuckDBPyConnection, name: CollectionName, lost: Sequence[str]
) -> list[tuple[int, str]]:
    """Delete the summaries above lost passages, and the links to these; return rows and ids.

    The links between the summaries and what is left beneath them stay.
    """
    import pyarrow as pa

    tree, within = table(name, "tree"), "IN (SELECT id FROM nbrag_lost)"

    def register(ids: Sequence[str]) -> None:
        cursor.register("nbrag_lost", pa.table({"id": pa.array(ids, pa.string())}))

    register(lost)
    removed = cursor.execute(
        f"DELETE FROM {table(name, 'chunks')} WHERE kind IN {SUMMARIES} AND id IN ("
        f"WITH RECURSIVE above(id) AS (SELECT parent FROM {tree} WHERE child {within}"
        f" UNION SELECT t.parent FROM {tree} t JOIN above a ON t.child = a.id)"
        " SELECT id FROM above) RETURNING row, id"
    ).fetchall()
    while True:
        emptied = cursor.execute(
            f"DELETE FROM {tree} WHERE child {within} RETURNING parent"
        ).fetchall()
        register([parent for (parent,) in emptied])
        # A summary that nothing is left beneath is no longer part of the tree.
        dead = cursor.execute(
            f"SELECT DISTINCT id FROM nbrag_lost WHERE id NOT IN (SELECT parent FROM {tree})"
        ).fetchall()
        if not dead:
            break
        register([parent for (parent,) in dead])
    cursor.unregister("nbrag_lost")
    return [(int(row), str(chunk_id)) for row, chunk_id in removed]
