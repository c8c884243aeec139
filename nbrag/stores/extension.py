"""Loading DuckDB's vss extension, offline first."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING

from nbrag.errors import MissingDependency

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["load_vss"]


def load_vss(connection: DuckDBPyConnection) -> None:
    """Load vss: from the installed wheel, else a copy DuckDB has, else from the network.

    Raises
    ------
    MissingDependency
        When it is nowhere to be had.
    """
    import duckdb

    bundled = _bundled(duckdb.__version__)
    attempts = ["LOAD vss", "INSTALL vss; LOAD vss"]
    if bundled is not None:
        attempts.insert(0, "LOAD '" + str(bundled).replace("'", "''") + "'")
    failure: Exception | None = None
    for attempt in attempts:
        try:
            connection.execute(attempt)
        except duckdb.Error as error:
            failure = error
        else:
            return
    raise MissingDependency("The HNSW index", "duckdb-extension-vss") from failure


def _bundled(version: str) -> Path | None:
    """Return the extension's file in the wheel of the same version, or None."""
    try:
        files = importlib.metadata.files("duckdb-extension-vss") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "vss.duckdb_extension" and f"v{version}" in file.parts:
            path = Path(str(file.locate()))
            return path if path.is_file() else None
    return None
