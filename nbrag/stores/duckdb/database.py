"""An open database file: cursors, worker threads, interruption, and errors a person can use."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from nbrag.errors import DatabaseReadOnly, StoreError
from nbrag.stores.duckdb.failures import storage_failure, translated
from nbrag.stores.duckdb.instance import MEMORY, Instance, acquire, release
from nbrag.stores.duckdb.jobs import running
from nbrag.stores.duckdb.schema import prepare_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

__all__ = ["DuckDBDatabase"]

_Result = TypeVar("_Result")
_workers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="nbrag-duckdb")
#: Seconds between two interrupts of work that was cancelled.
_INSIST = 0.05


class DuckDBDatabase:
    """A DuckDB file (or a database in memory) that holds collections.

    Several of them on one file in one process share one DuckDB instance and see each other's
    writes at once. Usable as a context manager.

    Parameters
    ----------
    path
        The file, made when it does not exist; ``":memory:"`` for none.
    read_only
        Open without the right to write; other processes may then read the file too.

    Raises
    ------
    DatabaseLocked
        When another process holds the file; names it.
    NewerFormat
        When a newer nbrag or DuckDB wrote the file.
    StoreError
        When the file can't be opened for any other reason.
    """

    def __init__(self, path: str | os.PathLike[str] = MEMORY, *, read_only: bool = False) -> None:
        self._instance = acquire(path, read_only=read_only)
        self.read_only = read_only
        self._relations: DuckDBPyConnection | None = None
        self._finalizer = weakref.finalize(self, _finish, self._instance)
        try:
            self.run_sync(lambda cursor: prepare_file(cursor, self.path, read_only=read_only))
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """Absolute path of the file, or ``:memory:``."""
        return self._instance.path

    @property
    def instance(self) -> Instance:
        """What all openers of the file in this process share."""
        return self._instance

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return not self._finalizer.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Keep the derived indices on disk and close the file; a second call does nothing."""
        relations, self._relations = self._relations, None
        if relations is not None:
            relations.close()
        self._finalizer()

    def require_writable(self) -> None:
        """Make sure that writing is allowed.

        Raises
        ------
        DatabaseReadOnly
            When the database was opened for reading only.
        """
        if self.read_only:
            raise DatabaseReadOnly(
                f"{self.path} is open for reading only.",
                hint="open the workspace without read_only=true",
            )

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in this thread and return its rows.

        Parameters
        ----------
        statement
            SQL with ``?`` for values.
        parameters
            The values.
        """
        return self.run_sync(lambda cursor: cursor.execute(statement, list(parameters)).fetchall())

    def relation(self, query: str, parameters: Sequence[Any] = ()) -> DuckDBPyRelation:
        """Return a relation for a person's own SQL; it lives as long as the database is open.

        Parameters
        ----------
        query
            SQL with ``?`` for values.
        parameters
            The values.
        """
        self._require_open()
        with translated(self.path):
            if self._relations is None:
                self._relations = self._instance.cursor()
            return self._relations.sql(query, params=list(parameters) or None)

    def _require_open(self) -> None:
        if self.closed:
            raise StoreError(f"{self.path} is closed.", hint="open the workspace again")

    def run_sync(
        self,
        function: Callable[[DuckDBPyConnection], _Result],
        *,
        write: bool = False,
        after: Callable[[_Result], None] | None = None,
    ) -> _Result:
        """Run DuckDB work in this thread, on a cursor of its own.

        An interrupt (Ctrl-C) or an error rolls back what the function did not commit.

        Parameters
        ----------
        function
            Gets the cursor. With ``write`` it runs within one transaction.
        write
            Whether it writes: one writer at a time, commit at its end.
        after
            Called with the result once it is committed, before the next writer comes in.
        """
        self._require_open()
        return self._work(self._instance.cursor(), function, write=write, after=after)

    async def run(
        self,
        function: Callable[[DuckDBPyConnection], _Result],
        *,
        write: bool = False,
        after: Callable[[_Result], None] | None = None,
    ) -> _Result:
        """Run DuckDB work in a worker thread, on a cursor of its own.

        Cancelling interrupts the running statement and rolls back; it returns when that is done.

        Parameters
        ----------
        function, write, after
            As for :meth:`run_sync`.
        """
        self._require_open()
        cursor = self._instance.cursor()
        sign = threading.Event()

        def work() -> _Result:
            """Run in a worker thread, where the sign can stop it."""
            with running(sign):
                return self._work(cursor, function, write=write, after=after)

        future = asyncio.get_running_loop().run_in_executor(_workers, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            sign.set()
            while not future.done():
                cursor.interrupt()
                try:
                    await asyncio.wait([future], timeout=_INSIST)
                except asyncio.CancelledError:
                    continue
            if not future.cancelled():
                # Cancelled work ends with DuckDB's interruption, which is no news here.
                future.exception()
            raise

    def _work(
        self,
        cursor: DuckDBPyConnection,
        function: Callable[[DuckDBPyConnection], _Result],
        *,
        write: bool,
        after: Callable[[_Result], None] | None,
    ) -> _Result:
        try:
            with translated(self.path):
                if not write:
                    return function(cursor)
                self.require_writable()
                with self._instance.write_lock:
                    result = _transaction(cursor, function)
                    if after is not None:
                        after(result)
                    return result
        finally:
            cursor.close()


def _transaction(
    cursor: DuckDBPyConnection, function: Callable[[DuckDBPyConnection], _Result]
) -> _Result:
    cursor.begin()
    try:
        result = function(cursor)
        cursor.commit()
    except BaseException:
        _roll_back(cursor)
        raise
    return result


def _roll_back(cursor: DuckDBPyConnection) -> None:
    """Undo the open transaction, if the failure has not already ended it."""
    import duckdb

    try:
        # After Ctrl-C the statement still runs, and the rollback would wait for its end.
        cursor.interrupt()
        cursor.rollback()
    except duckdb.Error as error:
        # After a failed commit there is nothing left to undo; anything else is told.
        if "no transaction is active" not in str(error):
            raise storage_failure("the database", error) from error


def _finish(instance: Instance) -> None:
    """Save what the indices' owners want kept, then give the file back."""
    if instance.users == 1:
        for owner in list(instance.shared.values()):
            save: Any = getattr(owner, "close", None)
            if save is not None:
                save()
    release(instance)
