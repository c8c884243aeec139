"""The tables: what they are called, their columns, and how they come into being."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbrag.errors import NewerFormat, StoreError
from nbrag.stores.duckdb.identifiers import CollectionName, literal, quote, table
from nbrag.stores.trees import SUMMARY_KINDS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "CHUNK_COLUMNS",
    "FORMAT_VERSION",
    "SUMMARIES",
    "TREE_COLUMNS",
    "create_tables",
    "create_tree",
    "prepare_file",
]

#: Raised when an older nbrag could no longer read the file.
FORMAT_VERSION = 1

#: The kinds of summaries, for SQL's IN.
SUMMARIES = f"({', '.join(literal(str(kind)) for kind in sorted(SUMMARY_KINDS))})"

#: A chunk's own columns before the vector and the metadata fields, in order.
CHUNK_COLUMNS: dict[str, str] = {
    "row": "BIGINT",
    "id": "VARCHAR",
    "document_id": "VARCHAR",
    "ordinal": "BIGINT",
    "kind": "VARCHAR",
    "parent_id": "VARCHAR",
    "content": "VARCHAR",
    "context": "VARCHAR",
    "heading_path": "VARCHAR[]",
    "start_offset": "BIGINT",
    "end_offset": "BIGINT",
    "page": "BIGINT",
    "token_count": "BIGINT",
    "text_hash": "VARCHAR",
    "source": "VARCHAR",
    "title": "VARCHAR",
    "media_type": "VARCHAR",
}

#: Columns of the summary tree's links.
TREE_COLUMNS: dict[str, str] = {"parent": "VARCHAR", "child": "VARCHAR", "level": "BIGINT"}

_META = """
CREATE SCHEMA IF NOT EXISTS nbrag;
CREATE TABLE IF NOT EXISTS nbrag.meta (key VARCHAR NOT NULL, value VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.collections (
    name VARCHAR NOT NULL, uid VARCHAR NOT NULL, identity JSON NOT NULL, language VARCHAR,
    index_mode VARCHAR NOT NULL, generation BIGINT NOT NULL, stamp VARCHAR NOT NULL,
    next_row BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.derived (uid VARCHAR NOT NULL, build VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.fields (
    collection VARCHAR NOT NULL, name VARCHAR NOT NULL, type VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.aliases (
    collection VARCHAR NOT NULL, field VARCHAR NOT NULL, alias VARCHAR NOT NULL,
    name VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.pipelines (
    name VARCHAR PRIMARY KEY, specification VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.judgements (
    name VARCHAR NOT NULL, question VARCHAR NOT NULL, collection VARCHAR NOT NULL,
    document VARCHAR NOT NULL, chunk_id VARCHAR, grade BIGINT NOT NULL,
    judged TIMESTAMPTZ NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.trace (
    run BIGINT NOT NULL, asked TIMESTAMPTZ NOT NULL, question VARCHAR, collection VARCHAR,
    pipeline VARCHAR, position BIGINT, stage VARCHAR, chunk_id VARCHAR, rank BIGINT, score DOUBLE,
    milliseconds DOUBLE, explanation VARCHAR);
CREATE TABLE IF NOT EXISTS nbrag.replies (
    key VARCHAR NOT NULL, messages JSON NOT NULL, options JSON NOT NULL, text VARCHAR NOT NULL,
    input_tokens BIGINT, output_tokens BIGINT, cost DOUBLE, model VARCHAR, finish_reason VARCHAR,
    answered TIMESTAMPTZ NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.reply_tokens (key VARCHAR NOT NULL, tokens JSON NOT NULL);
CREATE TABLE IF NOT EXISTS nbrag.ledger (
    called TIMESTAMPTZ NOT NULL, stage VARCHAR, model VARCHAR, input_tokens BIGINT,
    output_tokens BIGINT, cost DOUBLE, cached BOOLEAN NOT NULL, seconds DOUBLE, outcome VARCHAR);
"""

#: Read for single rows all over the table: unpacking 2,048 texts for each costs a search 0.8 ms;
#: packed they would save an eighth of the file, which is nearly all vectors.
_READ_BY_ROW = frozenset({"id", "content"})


def prepare_file(cursor: DuckDBPyConnection, path: str, *, read_only: bool) -> None:
    """Create nbrag's own tables where they are missing, and check the format.

    Raises
    ------
    NewerFormat
        When a newer nbrag wrote the file.
    StoreError
        When the file is open for reading only and holds nothing of nbrag's.
    """
    known = cursor.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'nbrag' AND table_name = 'meta'"
        " AND database_name = current_database()"
    ).fetchone()
    if not known or not known[0]:
        if read_only:
            raise StoreError(
                f"{path} has no nbrag collections.", hint="open it once without read_only=true"
            )
        cursor.begin()
        cursor.execute(_META)
        cursor.execute("INSERT INTO nbrag.meta VALUES ('format_version', ?)", [str(FORMAT_VERSION)])
        cursor.commit()
        return
    found = cursor.execute("SELECT value FROM nbrag.meta WHERE key = 'format_version'").fetchone()
    if found is None or not str(found[0]).isdigit() or int(found[0]) > FORMAT_VERSION:
        version = "unknown" if found is None else found[0]
        raise NewerFormat(
            f"{path} has format {version}; this nbrag reads up to {FORMAT_VERSION}.",
            hint="upgrade nbrag (pip install -U nbrag)",
        )
    if not read_only:
        cursor.execute(_META)
        listed = cursor.execute("SELECT name, current_database() FROM nbrag.collections")
        for name, catalog in listed.fetchall():
            # Files of before there were summary trees have no table for one.
            create_tree(cursor, CollectionName(name, catalog))


def create_tree(cursor: DuckDBPyConnection, collection: CollectionName) -> None:
    """Create the table of the summary tree's links where it is missing."""
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in TREE_COLUMNS.items())
    cursor.execute(f"CREATE TABLE IF NOT EXISTS {table(collection, 'tree')} ({columns})")


def create_tables(cursor: DuckDBPyConnection, collection: CollectionName, dimension: int) -> None:
    """Create the schema and the tables of a new, empty collection."""
    columns = ", ".join(
        f"{quote(name)} {kind}{' USING COMPRESSION uncompressed' * (name in _READ_BY_ROW)}"
        for name, kind in CHUNK_COLUMNS.items()
    )
    cursor.execute(f"CREATE SCHEMA {collection.schema}")
    # No keys and no index: an old version and its successor live in one transaction.
    cursor.execute(
        f"CREATE TABLE {table(collection, 'documents')} (id VARCHAR NOT NULL,"
        " uri VARCHAR NOT NULL, title VARCHAR, media_type VARCHAR, text VARCHAR NOT NULL,"
        " source_hash VARCHAR NOT NULL, settings_hash VARCHAR NOT NULL, metadata JSON)"
    )
    cursor.execute(
        f"CREATE TABLE {table(collection, 'chunks')} ({columns},"
        f" embedding FLOAT[{dimension}] NOT NULL)"
    )
    cursor.execute(
        f"CREATE TABLE {table(collection, 'staged_vectors')} (text_hash VARCHAR NOT NULL,"
        f" embedding FLOAT[{dimension}] NOT NULL)"
    )
    create_tree(cursor, collection)
