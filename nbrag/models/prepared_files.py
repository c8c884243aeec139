"""Where prepared models lie: one folder each in nbrag's cache, the graph beside its record."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nbrag.errors import ModelError, ModelNotFound
from nbrag.models.files import ModelFiles

__all__ = [
    "RECIPE",
    "keep_prepared",
    "prepared_files",
    "prepared_folder",
    "prepared_graph",
    "prepared_record",
    "scratch_folder",
]

#: Counts up when the same model would be prepared in another way.
RECIPE = 1
_GRAPH, _RECORD = "model.onnx", "record.json"
_SCRATCH = ".preparing-"


def _cache() -> Path:
    named = os.environ.get("NBRAG_CACHE")
    if named:
        return Path(named).expanduser() / "prepared"
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(home) if home else Path.home() / ".cache") / "nbrag" / "prepared"


def prepared_folder(files: ModelFiles) -> Path:
    """Return the folder for a model's prepared graph, whether it is there or not.

    ``NBRAG_CACHE/prepared``, else ``nbrag/prepared`` in the user's own cache; one folder for each
    version of the files and each kind of processor.
    """
    return _cache() / f"{files.fingerprint()}-{RECIPE}-{platform.machine().lower() or 'unknown'}"


def prepared_graph(files: ModelFiles) -> Path:
    """Return where a model's prepared graph lies, or would lie."""
    return prepared_folder(files) / _GRAPH


def prepared_record(files: ModelFiles) -> Mapping[str, Any] | None:
    """Return how a model was prepared; None when it wasn't, or what lies there isn't whole."""
    if not _cache().is_dir():
        return None  # without reading the model's files
    folder = prepared_folder(files)
    try:
        record = json.loads((folder / _RECORD).read_text("utf-8"))
        status = (folder / _GRAPH).stat()
        whole = record["graph"]["hash"] == _hash(
            folder / _GRAPH, status.st_mtime_ns, status.st_size
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole and isinstance(record, dict) else None


def prepared_files(files: ModelFiles, *, required: bool = False) -> ModelFiles | None:
    """Return a model's files with its prepared graph, None when there is none.

    Parameters
    ----------
    files
        The model's files.
    required
        Whether to raise instead.

    Raises
    ------
    ModelNotFound
        When there is none and one is required.
    """
    if prepared_record(files) is not None:
        return replace(files, model=prepared_graph(files))
    if required:
        raise ModelNotFound(
            f"the model {files.name} has not been prepared on this machine.",
            hint="nbrag models prepare NAME, or prepared=false",
        )
    return None


@lru_cache(maxsize=64)
def _hash(path: Path, _modified: int, _size: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder for graphs on their way, on the cache's own disk; it is removed afterwards.

    Raises
    ------
    ModelError
        When a file can't be written.
    """
    cache = _cache()
    folder: Path | None = None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=cache))
        yield folder
    except OSError as error:
        raise ModelError(
            f"the prepared model can't be written to {cache}: {error.strerror or error}.",
            hint="set NBRAG_CACHE to a folder with enough space",
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(cache: Path) -> None:
    """Remove what a process that was killed has left; one that is at work is younger than a day."""
    for left in cache.glob(f"{_SCRATCH}*"):
        if time.time() - left.stat().st_mtime > 86_400:
            shutil.rmtree(left, ignore_errors=True)


def keep_prepared(files: ModelFiles, graph: Path, record: dict[str, Any]) -> Path:
    """Move a finished graph to its place, and write its record last.

    What lies there counts only with a record that fits it, so a crash between the two leaves
    nothing that would be used.
    """
    folder = prepared_folder(files)
    folder.mkdir(parents=True, exist_ok=True)
    size = graph.stat().st_size
    digest = hashlib.blake2b(graph.read_bytes()).hexdigest()
    text = json.dumps({**record, "graph": {"bytes": size, "hash": digest}}, indent=2)
    written = graph.with_name(_RECORD)
    written.write_text(text + "\n", "utf-8")
    graph.replace(folder / _GRAPH)
    written.replace(folder / _RECORD)
    return folder / _GRAPH
