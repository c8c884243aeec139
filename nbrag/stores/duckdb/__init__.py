"""Collections in a DuckDB file: the tables are the truth, the indices are derived from them."""

from __future__ import annotations

from nbrag.stores.duckdb.collection import (
    DuckDBCollection,
    create_collection,
    drop_collection,
    list_collections,
    open_collection,
)
from nbrag.stores.duckdb.database import DuckDBDatabase
from nbrag.stores.duckdb.trace import record_trace

__all__ = [
    "DuckDBCollection",
    "DuckDBDatabase",
    "create_collection",
    "drop_collection",
    "list_collections",
    "open_collection",
    "record_trace",
]
