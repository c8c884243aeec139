"""What the openers of one collection in one process share: its indices, kept on disk at the end."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path


from nbrag.stores.duckdb.instance import Instance
from nbrag.stores.indices import CollectionIndices

__all__ = ["CollectionState", "state_of"]

_logger = logging.getLogger(__name__)
#: Raised when what is kept on disk could no longer be read by an older nbrag, or the other way.
_KEYWORD_FORMAT = 1


class CollectionState:
    """Indices of one collection, and where they are kept between sessions.

    Parameters
    ----------
    instance
        The open database.
    name, uid
        The collection.
    dimension, language
        What the indices are made for.
    keep_matrix
        Whether the vectors are held in memory.
    """

    def __init__(
        self,
        instance: Instance,
        name: str,
        uid: str,
        dimension: int,
        language: str | None,
        *,
        keep_matrix: bool,
    ) -> None:
        self.instance = instance
        self.name = name
        self.uid = uid
        self.indices = CollectionIndices(dimension, language, keep_matrix=keep_matrix)
        self._saved_stamp: str | None = None
        self._tried = False

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
                # Without its label an index is not believed, so the label goes first and comes last.
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
        self.save()

    def discard(self) -> None:
        """Delete what is kept on disk, for a collection that is dropped."""
        with self.indices.lock:
            self._saved_stamp = self.indices.stamp
            if self._folder is not None and self._folder.is_dir():
                for left in self._folder.glob(f"{self.name}-keyword*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
            self.indices.clear()


def _generation(stamp: str) -> int:
    return int(stamp.split("-")[0])


def state_of(
    instance: Instance, name: str, uid: str, dimension: int, language: str | None, mode: str
) -> CollectionState:
    """Return the state that all openers of the collection with this index mode share."""
    key = f"collection:{uid}:{'hnsw' if mode == 'hnsw' else 'exact'}"
    state = instance.shared.get(key)
    if state is None:
        state = CollectionState(
            instance, name, uid, dimension, language, keep_matrix=mode != "hnsw"
        )
        state = instance.shared.setdefault(key, state)
    return state
