"""What the openers of one collection in one process share: its indices, kept on disk at the end."""

from __future__ import annotations

import json
import logging
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nbrag.stores.duckdb.approximate import ApproximateSearch
from nbrag.stores.duckdb.catalog import CollectionEntry
from nbrag.stores.duckdb.instance import Instance
from nbrag.stores.indices import Change, CollectionIndices

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["CollectionState", "IndexSettings", "state_of"]

#: One thread that indexes what was written, in the order in which it was.
_followers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nbrag-indices")
_logger = logging.getLogger(__name__)
#: Raised when what is kept on disk could no longer be read by an older nbrag, or the other way.
_KEYWORD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How a collection's vectors are searched.

    Attributes
    ----------
    mode
        ``exact``; ``hnsw``; or ``auto``, which is exact as long as the matrix fits the budget.
    memory_budget
        Bytes that the matrix may take in ``auto``.
    recall
        Share of true neighbours that HNSW has to reach, on sampled queries.
    """

    mode: Literal["auto", "exact", "hnsw"] = "auto"
    memory_budget: int = 2**30
    recall: float = 0.95

    def approximate_for(self, count: int, dimension: int) -> bool:
        """Return whether so many vectors are searched without a matrix in memory."""
        too_large = count * dimension * 4 > self.memory_budget
        return self.mode == "hnsw" or (self.mode == "auto" and too_large)


class CollectionState:
    """Indices of one collection, and where they are kept between sessions.

    Parameters
    ----------
    instance
        The open database.
    entry
        What the catalogue says about the collection.
    settings
        How its vectors are searched.
    """

    def __init__(self, instance: Instance, entry: CollectionEntry, settings: IndexSettings) -> None:
        self.instance = instance
        self.name = entry.name
        self.uid = entry.uid
        self.settings = settings
        self.indices = CollectionIndices(entry.identity.dimension, entry.language)
        self.approximate: ApproximateSearch | None = None
        #: Lists of ids and links that were read, each with the stamp of its state.
        self.lists: dict[str, tuple[str, list[Any]]] = {}
        self._saved_stamp: str | None = None
        self._tried = False
        self._pending: Future[None] | None = None

    def choose_index(self, cursor: DuckDBPyConnection, stamp: str, count: int) -> None:
        """Let go of the matrix when the rows do not fit the memory budget, or as asked.

        From then on vectors are searched through :attr:`approximate`.
        """
        if self.approximate is not None:
            return
        if not self.settings.approximate_for(count, self.indices.dimension):
            if self.indices.matrix_from is None:
                # Let go of after a write, and by now so many rows went that it fits again.
                self.indices.hold_all()
            return
        with self.indices.lock:
            self.indices.hold_nothing()
            self.approximate = ApproximateSearch(
                self.instance, self.name, self.uid, self.indices, recall=self.settings.recall
            )
            self.approximate.open(cursor, stamp)

    # Following writes --------------------------------------------------------------------

    def follow(self, change: Change) -> None:
        """Take a committed write into the indices, in another thread.

        The next write can so go on while this one's texts are indexed; a search waits for it.
        Called by one writer at a time.
        """
        self.settle()
        self._pending = _followers.submit(self._take, change)

    def settle(self) -> None:
        """Wait until the indices have taken in what was written."""
        pending = self._pending
        if pending is None:
            return
        failure = pending.exception()
        if self._pending is pending:
            self._pending = None
        if failure is not None:
            # Half-changed indices belong to no state, so the next search fills them anew.
            _logger.warning("the indices of '%s' are read anew: %s", self.name, failure)

    def _take(self, change: Change) -> None:
        indices = self.indices
        with indices.lock:
            # An empty collection needs no loading; one that nobody has searched yet may wait.
            if indices.stamp is None and change.before.startswith("0-"):
                indices.clear()
            elif indices.stamp != change.before:
                return
            added = [] if change.added is None else [change.added]
            indices.change(change.after, removed=change.removed, added=added)
            if indices.matrix_from == 0 and self.settings.approximate_for(
                len(indices.rows), indices.dimension
            ):
                # Too large by now: the next search opens or builds the graph instead.
                indices.hold_nothing()

    # The keyword index on disk -----------------------------------------------------------

    @property
    def _folder(self) -> Path | None:
        return self.instance.index_folder

    def _label(self, stamp: str) -> dict[str, str | int | None]:
        return {
            "format": _KEYWORD_FORMAT,
            "uid": self.uid,
            "stamp": stamp,
            "language": self.indices.language,
        }

    def load_keyword(self, stamp: str, count: int) -> bool:
        """Take the keyword index from disk if it belongs to this very state of the rows.

        Returns
        -------
        bool
            Whether it was taken; when in any doubt it is not, and is built from the table.
        """
        if self._tried or self._folder is None:
            return False
        self._tried = True
        label = self._folder / f"{self.name}-keyword.json"
        try:
            if json.loads(label.read_text("utf-8")) != self._label(stamp):
                return False
            from nbrag.stores.analysis import Analyzer
            from nbrag.stores.keyword import KeywordIndex

            path = self._folder / f"{self.name}-keyword"
            loaded = KeywordIndex.load(
                path, _generation(stamp), Analyzer(language=self.indices.language)
            )
            if loaded is None or len(loaded) != count:
                return False
        except FileNotFoundError:
            return False
        except Exception as error:  # noqa: BLE001 - a damaged index is built anew, whatever it is
            _logger.warning("the keyword index of '%s' is rebuilt: %s", self.name, error)
            return False
        self.indices.keyword = loaded
        self._saved_stamp = stamp
        return True

    def save(self) -> None:
        """Keep the keyword index on disk, with the state that it belongs to.

        Nothing depends on it: where it can't be written it is left out, and logged.
        """
        folder = self._folder
        with self.indices.lock:
            stamp = self.indices.stamp
            if folder is None or stamp is None or stamp == self._saved_stamp:
                return
            label = folder / f"{self.name}-keyword.json"
            try:
                folder.mkdir(exist_ok=True)
                # Without its label an index is not believed: it goes first and comes last.
                label.unlink(missing_ok=True)
                self.indices.keyword.save(folder / f"{self.name}-keyword", _generation(stamp))
                fresh = label.with_suffix(f".{os.getpid()}.tmp")
                fresh.write_text(json.dumps(self._label(stamp)), "utf-8")
                fresh.replace(label)
            except OSError as error:
                _logger.info("the keyword index of '%s' is not kept on disk: %s", self.name, error)
                return
            self._saved_stamp = stamp

    def close(self) -> None:
        """Keep what is worth keeping; called before the file is closed."""
        self.settle()
        self.save()
        if self.approximate is not None:
            self.approximate.close()

    def discard(self) -> None:
        """Delete what is kept on disk, for a collection that is dropped."""
        self.settle()
        if self.approximate is not None:
            self.approximate.discard()
        with self.indices.lock:
            self._saved_stamp = self.indices.stamp
            if self._folder is not None and self._folder.is_dir():
                for left in self._folder.glob(f"{self.name}-keyword*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
            self.indices.clear()


def _generation(stamp: str) -> int:
    return int(stamp.split("-", maxsplit=1)[0])


def state_of(
    instance: Instance, entry: CollectionEntry, settings: IndexSettings
) -> CollectionState:
    """Return the state that all openers of the collection with these settings share."""
    key = f"collection:{entry.uid}:{settings}"
    state: CollectionState | None = instance.shared.get(key)
    if state is None:
        made = CollectionState(instance, entry, settings)
        state = instance.shared.setdefault(key, made)
    return state
