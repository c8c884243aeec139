"""Approximate nearest-neighbour search: HNSW through DuckDB's vss, in a database of its own.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
Navigable Small World graphs" (2018). The graph lives apart from the data it is derived from, in a
file that can be deleted at any time, or in memory. It is never asked with a filter, because it
would look only at the nearest rows and drop those that don't pass. How wide it searches (``ef``)
is chosen by sampling: queries made of stored vectors are answered exactly and by the graph.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.exact import top_rows, unit_vectors

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["HnswIndex", "HnswReport", "merged"]

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
Found = tuple[Rows, Vectors]

_logger = logging.getLogger(__name__)
#: Widths that are tried, in order, until the recall is reached.
_WIDTHS = (64, 100, 200, 400, 800, 1600)
#: Queries and neighbours of the sample from which the recall is measured.
_SAMPLE, _NEIGHBOURS = 50, 10
_BATCH = 8192
#: Raised when a file made by another nbrag can't be used any more.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class HnswReport:
    """What is known about an index.

    Attributes
    ----------
    size
        How many rows it holds.
    last_row
        The highest row number it was built for; -1 for none.
    ef
        How wide it searches.
    recall
        Share of the true 10 nearest rows that it found at that width.
    sampled
        On how many sampled queries.
    target
        The recall that was asked for.
    """

    size: int
    last_row: int
    ef: int
    recall: float
    sampled: int
    target: float = 0.0

    def __str__(self) -> str:
        missed = f" ({self.target:.2f} was asked for)" if self.recall < self.target else ""
        return (
            f"hnsw ef={self.ef}, recall {self.recall:.2f} on {self.sampled} sampled queries{missed}"
        )


class HnswIndex:
    """A graph over unit vectors, searched by cosine similarity. Made by :meth:`build`.

    Parameters
    ----------
    connection
        DuckDB with vss loaded and the table ``derived.vectors``; closed with the index.
    dimension
        Length of a vector.
    report
        What was measured when it was built.
    """

    def __init__(self, connection: DuckDBPyConnection, dimension: int, report: HnswReport) -> None:
        self._connection = connection
        self.dimension = dimension
        self.report = report
        self._lock = threading.Lock()
        self._set_width(report.ef)

    def __len__(self) -> int:
        return self.report.size

    @classmethod
    def build(
        cls,
        batches: Iterable[tuple[Rows, Vectors]],
        dimension: int,
        *,
        label: Mapping[str, Any],
        path: Path | None = None,
        recall: float = 0.95,
        last_row: int = -1,
        started: Callable[[Callable[[], None]], None] | None = None,
    ) -> HnswIndex:
        """Build an index; 50,000 vectors of length 384 take about a minute.

        Parameters
        ----------
        batches
            int64 rows of shape (n,) with float32 vectors of shape (n, dimension).
        dimension
            Length of a vector.
        label
            What the file is marked with; :meth:`open` asks whether that is to be believed.
        path
            The file, replaced in one step when the index is complete; None for memory.
        recall
            The share of true neighbours to reach, between 0 and 1.
        last_row
            The highest row that the index is answerable for, where its row may be gone already.
        started
            Is given a function that breaks the work off, which then raises DuckDB's
            InterruptException.
        """
        fresh = None if path is None else path.with_name(f"{path.name}.new")
        if fresh is not None:
            fresh.parent.mkdir(exist_ok=True)
            _delete(fresh)
        connection = _connect(fresh, read_only=False)
        try:
            if started is not None:
                started(connection.interrupt)
            size, highest = _fill(connection, batches, dimension)
            connection.execute(
                "CREATE INDEX nearest ON derived.vectors USING HNSW (embedding)"
                " WITH (metric = 'cosine')"
            )
            index = cls(
                connection, dimension, HnswReport(size, max(highest, last_row), _WIDTHS[0], 1.0, 0)
            )
            index.report = index._measured(recall)
            connection.execute(
                "INSERT INTO derived.label VALUES (?)",
                [json.dumps({**label, "format": _FORMAT, "report": asdict(index.report)})],
            )
            if path is None or fresh is None:
                return index
            connection.execute("DETACH derived")
            connection.close()
            fresh.replace(path)
        except BaseException:
            connection.close()
            if fresh is not None:
                _delete(fresh)
            raise
        opened = cls.open(path, dimension, believe=lambda stored: stored == dict(label))
        if opened is None:
            raise OSError(f"{path} can't be read back")
        return opened

    @classmethod
    def open(
        cls, path: Path, dimension: int, *, believe: Callable[[dict[str, Any]], bool]
    ) -> HnswIndex | None:
        """Open a file that :meth:`build` made; None when there is any doubt about it.

        Its label must be believed, the row counts must agree, and three stored vectors must
        find themselves among as many neighbours as were asked for.
        """
        import duckdb

        if not path.is_file():
            return None
        connection = None
        try:
            connection = _connect(path, read_only=True)
            found = connection.execute("SELECT content FROM derived.label").fetchall()
            stored = json.loads(found[0][0]) if len(found) == 1 else {}
            report = HnswReport(**stored.pop("report", {}))
            if stored.pop("format", None) != _FORMAT or not believe(stored):
                connection.close()
                return None
            index = cls(connection, dimension, report)
            index._probe()
        except (duckdb.Error, OSError, ValueError, TypeError, KeyError) as error:
            _logger.warning("the index %s is built anew: %s", path.name, error)
            if connection is not None:
                connection.close()
            return None
        return index

    def close(self) -> None:
        """Close the index; its file, if it has one, stays."""
        with self._lock:
            self._connection.close()

    def search(self, vectors: Vectors, k: int) -> list[Found]:
        """Return about the nearest rows of each query.

        Parameters
        ----------
        vectors
            float32 of shape (q, dimension).
        k
            How many rows at most.

        Returns
        -------
        list of (rows, scores)
            Per query int64 rows and float32 cosine similarities, best first, ties by lower row.
        """
        wanted = max(0, min(k, len(self)))
        return [self._nearest(query, wanted) for query in unit_vectors(np.atleast_2d(vectors))]

    def plan(self, query: Vectors, k: int) -> str:
        """Return DuckDB's plan for a search; it names HNSW_INDEX_SCAN while the graph is used."""
        with self._lock:
            found = self._connection.execute(
                f"EXPLAIN {self._statement(k)}", [query.tolist()]
            ).fetchall()
        return str(found[0][1])

    def _statement(self, k: int) -> str:
        # The graph is used for this shape only: one ascending key, by its alias, nothing else.
        return (
            f"SELECT row, array_cosine_distance(embedding, ?::FLOAT[{self.dimension}]) AS distance"
            f" FROM derived.vectors ORDER BY distance LIMIT {int(k)}"
        )

    def _nearest(self, query: Vectors, k: int) -> Found:
        if k <= 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        with self._lock:
            found = self._connection.execute(self._statement(k), [query.tolist()]).fetchnumpy()
        rows = np.asarray(found["row"], np.int64)
        scores = (1.0 - np.asarray(found["distance"], np.float64)).astype(np.float32)
        order = np.lexsort((rows, -scores))
        return rows[order], scores[order]

    def _set_width(self, ef: int) -> None:
        with self._lock:
            self._connection.execute(f"SET hnsw_ef_search = {int(ef)}")

    def _stored(self, count: int) -> Vectors:
        """Return some stored vectors, the same ones each time."""
        with self._lock:
            found = self._connection.execute(
                f"SELECT embedding FROM (SELECT * FROM derived.vectors USING SAMPLE"
                f" reservoir({int(count)} ROWS) REPEATABLE (20))"
            ).to_arrow_table()
        column = found.column("embedding").combine_chunks()
        matrix: Vectors = column.flatten().to_numpy().reshape(-1, self.dimension)
        return matrix

    def _probe(self) -> None:
        """Raise ValueError when the graph does not answer as the rows say it must."""
        counted = self._connection.execute("SELECT count(*) FROM derived.vectors").fetchone()
        if counted is None or counted[0] != len(self):
            raise ValueError("it does not have as many rows as it was built with")
        wanted = min(_NEIGHBOURS, len(self))
        if not wanted:
            return
        stored = self._stored(3)
        if "HNSW_INDEX_SCAN" not in self.plan(stored[0], wanted):
            raise ValueError("its graph is gone")
        for rows, scores in self.search(stored, wanted):
            if len(rows) != wanted or abs(float(scores[0]) - 1.0) > 1e-3:
                raise ValueError("its graph does not find what is stored")

    def _measured(self, target: float) -> HnswReport:
        """Find the narrowest width that reaches the recall, and set it."""
        if not len(self):
            return self.report
        stored = self._stored(2 * _SAMPLE)
        # A stored vector finds itself too easily; a mixture of two stands for a real question.
        pairs = max(1, len(stored) // 2)
        queries = unit_vectors(2 * stored[:pairs] + stored[-pairs:])
        wanted = min(_NEIGHBOURS, len(self))
        truth = self._exactly(queries, wanted)
        for ef in _WIDTHS:
            self._set_width(ef)
            hits = sum(
                len(np.intersect1d(rows, true))
                for (rows, _), true in zip(self.search(queries, wanted), truth, strict=True)
            )
            share = hits / (wanted * len(queries))
            if share >= target:
                break
        return HnswReport(len(self), self.report.last_row, ef, share, len(queries), target)

    def _exactly(self, queries: Vectors, k: int) -> list[Rows]:
        best: list[list[Found]] = [[] for _ in queries]
        cursor = self._connection.cursor()
        reader = cursor.execute("SELECT row, embedding FROM derived.vectors").to_arrow_reader(
            _BATCH
        )
        for batch in reader:
            rows = batch.column("row").to_numpy()
            matrix = batch.column("embedding").flatten().to_numpy().reshape(-1, self.dimension)
            for query, found in zip(queries, best, strict=True):
                found.append(top_rows(rows, matrix, query, k))
        cursor.close()
        return [merged(found, k)[0] for found in best]


def merged(found: list[Found], k: int) -> Found:
    """Return the best ``k`` of several answers to one query, ties by lower row."""
    rows = np.concatenate([rows for rows, _ in found])
    scores = np.concatenate([scores for _, scores in found])
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _connect(path: Path | None, *, read_only: bool) -> DuckDBPyConnection:
    import duckdb

    from nbrag.stores.extension import load_vss

    connection = duckdb.connect(":memory:")
    try:
        load_vss(connection)
        if path is None:
            connection.execute("ATTACH ':memory:' AS derived")
            return connection
        quoted = "'" + str(path).replace("'", "''") + "'"
        if read_only:
            connection.execute(f"ATTACH {quoted} AS derived (READ_ONLY)")
        else:
            # Safe here: the file is written once, and only believed when it is complete.
            connection.execute("SET hnsw_enable_experimental_persistence = true")
            connection.execute(f"ATTACH {quoted} AS derived")
    except BaseException:
        connection.close()
        raise
    return connection


def _fill(
    connection: DuckDBPyConnection, batches: Iterable[tuple[Rows, Vectors]], dimension: int
) -> tuple[int, int]:
    import pyarrow as pa

    connection.execute("CREATE TABLE derived.label (content VARCHAR NOT NULL)")
    connection.execute(
        f"CREATE TABLE derived.vectors (row BIGINT, embedding FLOAT[{dimension}] NOT NULL)"
    )
    size, last_row = 0, -1
    for rows, vectors in batches:
        if not len(rows):
            continue
        unit = unit_vectors(vectors)
        table = pa.table(
            {
                "row": pa.array(rows),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(unit.ravel()), dimension),
            }
        )
        connection.register("nbrag_batch", table)
        connection.execute("INSERT INTO derived.vectors SELECT * FROM nbrag_batch")
        connection.unregister("nbrag_batch")
        size, last_row = size + len(rows), max(last_row, int(rows.max()))
    return size, last_row


def _delete(path: Path) -> None:
    for name in (path, path.with_name(f"{path.name}.wal")):
        with contextlib.suppress(FileNotFoundError):
            name.unlink()
