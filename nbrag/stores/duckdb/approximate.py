"""Vector search for collections whose matrix is not held in memory.

Unfiltered searches ask the HNSW graph; rows that are newer than it are searched exactly, and rows
that are gone since are left out. Filtered searches never ask it: they look at every row that
passes the filter.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import MissingDependency
from nbrag.stores.duckdb.identifiers import CollectionName, table
from nbrag.stores.duckdb.instance import Instance
from nbrag.stores.duckdb.jobs import cancelled
from nbrag.stores.duckdb.rows import matrix_of
from nbrag.stores.duckdb.streaming import stream_search
from nbrag.stores.hnsw import HnswIndex, merged
from nbrag.stores.indices import CollectionIndices, IndexView, Moved

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["ApproximateSearch"]

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
Answers = tuple[list[tuple[Rows, Vectors]], str]

_logger = logging.getLogger(__name__)
_BATCH = 8192
#: Below this share of rows that may be found, all of them are looked at instead.
_SPARSE = 0.3
#: The graph is built anew when more than this share of rows is newer than it, or gone.
_WORN = 0.25
_WORN_ROWS = 5_000


class ApproximateSearch:
    """The graph of one collection: opened, built, renewed and asked.

    Parameters
    ----------
    instance, name, uid
        The open file and the collection.
    indices
        Its row table; holds the vectors of rows newer than the graph.
    recall
        Share of true neighbours that the graph has to reach.
    """

    def __init__(
        self,
        instance: Instance,
        name: CollectionName,
        uid: str,
        indices: CollectionIndices,
        *,
        recall: float,
    ) -> None:
        self._instance = instance
        self._name = name
        self._uid = uid
        self._indices = indices
        self._recall = recall
        self._graph: HnswIndex | None = None
        self._builder: _Builder | None = None
        self._failure = ""
        self._lock = threading.Lock()

    @property
    def path(self) -> Path | None:
        """The graph's file; None when it is in memory."""
        folder = self._instance.index_folder
        return None if folder is None else folder / f"{self._name}-hnsw.duckdb"

    def open(self, cursor: DuckDBPyConnection, stamp: str) -> bool:
        """Take the graph from its file if it belongs to these rows, and say whether it does.

        It does when it was built for this very state, or when the table knows of its building:
        rows are never changed, so an older graph is right about those that are still there.
        """
        if self.path is None or self._graph is not None:
            return self._graph is not None
        known = cursor.execute(
            "SELECT build FROM nbrag.derived WHERE uid = ?", [self._uid]
        ).fetchall()
        builds = {str(row[0]) for row in known}

        def believe(label: dict[str, Any]) -> bool:
            same = label.get("uid") == self._uid
            return same and (label.get("build") in builds or label.get("stamp") == stamp)

        self._graph = HnswIndex.open(self.path, self._indices.dimension, believe=believe)
        if self._graph is None:
            return False
        if len(self._indices.rows):
            # The graph wants the vectors of later rows held, so rows are read anew.
            self._indices.clear()
        self._indices.hold_from(self._graph.report.last_row + 1)
        return True

    def search(
        self,
        cursor: DuckDBPyConnection,
        view: IndexView,
        vectors: Vectors,
        k: int,
        allowed: Rows | None,
        *,
        filtered: bool,
        wait: bool,
    ) -> Answers:
        """Return the rows of each query, and how they were found.

        Parameters
        ----------
        cursor, view
            The state that is searched.
        vectors
            float32 of shape (q, dimension).
        k
            How many rows at most.
        allowed
            int64 rows that may be found; None means all.
        filtered
            Whether a filter chose the allowed rows.
        wait
            Whether to wait for a graph that is not there yet rather than search without it.
        """
        count = len(view) if allowed is None else len(allowed)
        note = ""
        if not filtered and count and count >= _SPARSE * len(view):
            graph = self._ready(view, wait=wait)
            if graph is not None:
                answers = self._ask(graph, view, vectors, k, allowed)
                if answers is not None:
                    newer = int((view.rows > graph.report.last_row).sum())
                    tail = f", exact over {newer:,} newer rows" if newer else ""
                    return answers, f"{graph.report}{tail}"
            else:
                note = self._failure or ", an hnsw index is being built"
        found = stream_search(cursor, self._name, vectors, k, allowed)
        return found, f"exact over {count:,} rows{note}"

    def _ask(
        self, graph: HnswIndex, view: IndexView, vectors: Vectors, k: int, allowed: Rows | None
    ) -> list[tuple[Rows, Vectors]] | None:
        """Return the answers; None when the graph can't give as many rows as there are."""
        permitted = view.rows if allowed is None else allowed
        older = permitted[permitted <= graph.report.last_row]
        newer = permitted[permitted > graph.report.last_row]
        answers = []
        for query in vectors:
            parts = [_masked(graph, query, k, older)]
            if parts[0] is None:
                return None
            if len(newer):
                if view.exact is None:
                    return None
                parts += view.exact.search(query, k, newer)
            answers.append(merged([part for part in parts if part is not None], k))
        return answers

    # Building ----------------------------------------------------------------------------

    def _ready(self, view: IndexView, *, wait: bool) -> HnswIndex | None:
        with self._lock:
            graph = self._graph
            if self._builder is not None and self._builder.done:
                self._builder = None
            missing = graph is None and (wait or not self._failure)
            if self._builder is None and (missing or (graph is not None and _worn(graph, view))):
                self._builder = self._start(view)
            builder = self._builder
        if graph is None and builder is not None and wait:
            builder.wait()
            with self._lock:
                graph = self._graph
        return graph

    def _start(self, view: IndexView) -> _Builder:
        last_row = int(view.rows[-1])
        with self._indices.lock:
            if self._indices.stamp != view.stamp:
                raise Moved
            if self._indices.matrix_from is None:
                # From here on newer rows are held, so that none is between them and the graph.
                self._indices.hold_from(last_row + 1)
        return _Builder(lambda begun: self._build(view.stamp, last_row, begun))

    def _build(
        self, stamp: str, last_row: int, begun: Callable[[Callable[[], None]], None]
    ) -> None:
        label = {"uid": self._uid, "stamp": stamp, "build": uuid.uuid4().hex}
        path = self.path if self.path is not None and _writable(self.path.parent) else None
        cursor = self._instance.cursor()
        try:
            graph = HnswIndex.build(
                self._vectors(cursor, last_row),
                self._indices.dimension,
                label=label,
                path=path,
                recall=self._recall,
                last_row=last_row,
                started=begun,
            )
            if path is not None and not self._instance.read_only:
                cursor.execute(
                    "INSERT INTO nbrag.derived VALUES (?, ?)", [self._uid, label["build"]]
                )
        except MissingDependency as error:
            self._failure = f", {error.message}"
            raise
        finally:
            cursor.close()
        with self._lock, self._indices.lock:
            before, self._graph = self._graph, graph
            self._indices.hold_from(graph.report.last_row + 1)
        if before is not None:
            before.close()

    def _vectors(self, cursor: DuckDBPyConnection, last_row: int) -> Iterator[tuple[Rows, Vectors]]:
        reader = cursor.execute(
            f"SELECT row, embedding FROM {table(self._name, 'chunks')} WHERE row <= ?", [last_row]
        ).to_arrow_reader(_BATCH)
        for batch in reader:
            matrix = matrix_of(batch.column("embedding"), self._indices.dimension)
            yield batch.column("row").to_numpy(), matrix

    def close(self) -> None:
        """Break off what is being built, and close the graph."""
        with self._lock:
            builder = self._builder
        if builder is not None:
            builder.stop()
        with self._lock:
            graph, self._graph = self._graph, None
        if graph is not None:
            graph.close()

    def discard(self) -> None:
        """Close the graph and delete its file."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class _Builder:
    """A thread that builds a graph."""

    def __init__(self, work: Callable[[Callable[[Callable[[], None]], None]], None]) -> None:
        self._work = work
        self._interrupt: Callable[[], None] | None = None
        self._stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="nbrag-hnsw", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work(self._begun)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, and logged
            self._failure = error
            if not self._stopped:
                _logger.warning("no hnsw index could be built: %s", error)

    def _begun(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt

    def wait(self) -> None:
        """Wait for the end, or for the waiting work to be cancelled, which ends the building."""
        while self._thread.is_alive():
            self._thread.join(0.05)
            if cancelled():
                self.stop()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Break the work off, and return when it is over."""
        import duckdb

        self._stopped = True
        while self._thread.is_alive():
            if self._interrupt is not None:
                # A connection that is closed by now belongs to work that is at its end.
                with contextlib.suppress(duckdb.ConnectionException):
                    self._interrupt()
            self._thread.join(0.05)


def _masked(graph: HnswIndex, query: Vectors, k: int, permitted: Rows) -> Any:
    """Return the nearest permitted rows; None when too few are found without looking at most."""
    wanted = min(k, len(permitted))
    ask = min(len(graph), int(1.2 * wanted * len(graph) / max(1, len(permitted))) + 8)
    while wanted:
        rows, scores = graph.search(query[None, :], ask)[0]
        kept = np.isin(rows, permitted)
        if int(kept.sum()) >= wanted:
            return rows[kept][:k], scores[kept][:k]
        if ask >= len(graph) or len(rows) < ask:
            return None
        ask = min(len(graph), 4 * ask)
    return np.empty(0, np.int64), np.empty(0, np.float32)


def _worn(graph: HnswIndex, view: IndexView) -> bool:
    older = int((view.rows <= graph.report.last_row).sum())
    changed = len(view) - older + len(graph) - older
    return changed > max(_WORN_ROWS, _WORN * len(graph))


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        _logger.info("the hnsw index stays in memory: %s", error)
        return False
