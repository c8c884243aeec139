"""One open DuckDB file per process, shared by all that open it.

DuckDB lets one process hold a file. Within it, everything that opens the same path shares this
object: the connection, the lock that lets one writer through at a time, and the collections'
indices, so that each sees what the others wrote.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrag.errors import StoreError
from nbrag.stores.duckdb.failures import translated

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Instance", "acquire", "release"]

MEMORY = ":memory:"
#: The log may grow to this size before it is folded into the file: fewer, larger writes.
_CHECKPOINT = "128MB"
_open: dict[str, Instance] = {}
_registry_lock = threading.Lock()


class Instance:
    """An open database: its connection and what is shared around it.

    Attributes
    ----------
    path
        Absolute path of the file, or ``:memory:``.
    read_only
        Whether the file itself is open for reading only.
    write_lock
        Held by whoever writes.
    shared
        Objects that belong to the file and not to one opener, by name.
    """

    def __init__(self, path: str, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.write_lock = threading.RLock()
        self.shared: dict[str, Any] = {}
        self.users = 0
        self._lock = threading.Lock()
        self._root: DuckDBPyConnection | None = _connect(path, read_only=read_only)

    @property
    def index_folder(self) -> Path | None:
        """Folder of the derived, disposable indices; None for a database in memory."""
        return None if self.path == MEMORY else Path(f"{self.path}.index")

    def cursor(self) -> DuckDBPyConnection:
        """Return a new cursor, for one thread; the caller closes it."""
        with self._lock:
            if self._root is None:
                raise StoreError(f"{self.path} is closed.", hint="open the workspace again")
            return self._root.cursor()

    def close(self) -> None:
        """Close the connection, folding the log into the file."""
        with self._lock:
            root, self._root = self._root, None
        if root is not None:
            with translated(self.path):
                root.close()


def _connect(path: str, *, read_only: bool) -> DuckDBPyConnection:
    import duckdb

    # No configuration here: a plain duckdb.connect(path) in the next cell must fit to it.
    with translated(path):
        root = duckdb.connect(path, read_only=read_only)
        if not read_only:
            root.execute(f"SET checkpoint_threshold = '{_CHECKPOINT}'")
    return root


def acquire(path: str | os.PathLike[str], *, read_only: bool) -> Instance:
    """Return the open database for the path, opening it when nobody has it open.

    Raises
    ------
    StoreError
        Or one of its kinds, when it can't be opened.
    """
    text = os.fspath(path)
    if text == MEMORY:
        if read_only:
            raise StoreError("A database in memory can't be read-only.")
        private = Instance(MEMORY, read_only=False)
        private.users = 1
        return private
    resolved = Path(text).expanduser().resolve()
    _check_place(resolved, read_only=read_only)
    with _registry_lock:
        instance = _open.get(str(resolved))
        if instance is None:
            instance = _open[str(resolved)] = Instance(str(resolved), read_only=read_only)
        elif instance.read_only and not read_only:
            raise StoreError(
                f"{resolved} is already open for reading only in this process.",
                hint="close that workspace first",
            )
        instance.users += 1
        return instance


def release(instance: Instance) -> bool:
    """Give the database back; the last one to do so closes it. Return whether it was closed."""
    with _registry_lock:
        instance.users -= 1
        if instance.users > 0:
            return False
        if _open.get(instance.path) is instance:
            del _open[instance.path]
    instance.close()
    return True


def _check_place(path: Path, *, read_only: bool) -> None:
    if path.stem.casefold() == "nbrag":
        # DuckDB calls a file by its stem, and can't tell it from nbrag's own schema.
        raise StoreError(
            f"{path.name} can't be a workspace's file: nbrag keeps its own tables under that name.",
            hint="choose another name, work.duckdb say",
        )
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a database file.")
    if not path.parent.is_dir():
        raise StoreError(f"There is no folder {path.parent}.", hint="create it, or check the path")
    if read_only and not path.exists():
        raise StoreError(
            f"There is no database {path}.", hint="open it once without read_only=true"
        )
