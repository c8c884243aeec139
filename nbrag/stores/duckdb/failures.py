"""DuckDB's errors, told as nbrag's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from nbrag.errors import (
    DatabaseFull,
    DatabaseLocked,
    DatabaseReadOnly,
    NbragError,
    NewerFormat,
    StoreError,
)

__all__ = ["storage_failure", "translated"]

_FULL = re.compile(
    "no space left|disk quota|file too large|ENOSPC|EFBIG|could not write all bytes"
    "|failed to offload|max_temp_directory_size",
    re.IGNORECASE,
)
_DENIED = re.compile(
    "permission denied|read-only file system|operation not permitted", re.IGNORECASE
)


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn DuckDB's errors within the block into :class:`nbrag.errors.StoreError` and its kin."""
    import duckdb

    try:
        yield
    except NbragError:
        raise
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise storage_failure(path, error) from error
    except OSError as error:
        raise storage_failure(path, error) from error
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            # What DuckDB makes of Ctrl-C in the main thread.
            raise KeyboardInterrupt from None
        raise


def storage_failure(path: str, error: Exception) -> StoreError:
    """Return the error that tells a person what DuckDB's or the system's error means.

    Parameters
    ----------
    path
        The database file.
    error
        What was raised.
    """
    text = str(error)
    first = text.strip().split("\n", 1)[0]
    if "Could not set lock" in text or "Conflicting lock" in text:
        found = re.search(r"PID (\d+)", text)
        return DatabaseLocked(path, int(found.group(1)) if found else None)
    if "being used by another process" in text:
        return DatabaseLocked(path, None)
    if "read-only mode" in text and "opened" not in text:
        return DatabaseReadOnly(
            f"{path} is open for reading only.", hint="open the workspace without read_only=true"
        )
    if _FULL.search(text):
        return DatabaseFull(
            f"There is no space left for {path}.",
            hint="free some space; everything committed before is kept",
        )
    if "version number" in text and "can only read" in text:
        return NewerFormat(
            f"{path} was written by a newer DuckDB.", hint="upgrade nbrag (pip install -U nbrag)"
        )
    if "not a valid DuckDB database" in text:
        return StoreError(f"{path} is not a DuckDB database.", hint="choose another file name")
    if _DENIED.search(text):
        return StoreError(
            f"{path} can't be opened for writing.",
            hint="check the file's and folder's permissions, or open it with read_only=true",
        )
    if "different configuration" in text:
        return StoreError(
            f"{path} is already open in this process in another mode.",
            hint="close that connection, or open both in the same mode",
        )
    if "invalidated because of a previous fatal error" in text:
        return StoreError(
            f"{path} stopped after an earlier failure.",
            hint="close the workspace and open it again; everything committed is kept",
        )
    return StoreError(f"{path}: {first}")
