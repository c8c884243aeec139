"""The table of pipelines that are kept under a name: ``nbrag.pipelines``."""

from __future__ import annotations

from nbrag.stores.duckdb.database import DuckDBDatabase

__all__ = ["keep_pipeline", "kept_pipeline", "kept_pipelines"]


def keep_pipeline(database: DuckDBDatabase, name: str, specification: str) -> None:
    """Keep a specification, as JSON, under a name; one of the same name is replaced."""
    database.execute(
        "INSERT OR REPLACE INTO nbrag.pipelines (name, specification) VALUES (?, ?)",
        [name, specification],
    )


def kept_pipelines(database: DuckDBDatabase) -> list[str]:
    """Return the names, in order."""
    return [
        str(name) for (name,) in database.execute("SELECT name FROM nbrag.pipelines ORDER BY 1")
    ]


def kept_pipeline(database: DuckDBDatabase, name: str) -> str | None:
    """Return a specification as JSON, None when there is none of that name."""
    rows = database.execute("SELECT specification FROM nbrag.pipelines WHERE name = ?", [name])
    return str(rows[0][0]) if rows else None
