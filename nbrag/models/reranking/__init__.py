"""Cross-encoders: models that read a question and a passage together, on this machine."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from nbrag.models.files import ModelFiles
from nbrag.models.prepared_files import prepared_files
from nbrag.models.reranking._files import classifier_files
from nbrag.models.reranking.onnx import OnnxCrossEncoder, PairScores

__all__ = ["OnnxCrossEncoder", "PairScores", "shared_cross_encoder"]

#: Models that stay at hand: pipelines are made anew for each search, and loading takes a while.
_MOST_SHARED = 2
_lock = threading.Lock()
_shared: OrderedDict[Hashable, OnnxCrossEncoder] = OrderedDict()


def shared_cross_encoder(
    model: str | Path,
    *,
    tokenizer: str | Path | None = None,
    file: str | None = None,
    **options: Any,
) -> OnnxCrossEncoder:
    """Return the cross-encoder for these files and options, one and the same for the process.

    The two used last are kept. Files that have changed since give a new one.

    Parameters
    ----------
    model, tokenizer, file, options
        As for :class:`OnnxCrossEncoder`.

    Raises
    ------
    ModelNotFound, ModelInvalid, MissingDependency, ConfigurationError
        As :class:`OnnxCrossEncoder` does.
    """
    files = classifier_files(model, tokenizer=tokenizer, file=file)
    key = (*_versions(files), *_versions(prepared_files(files)), *sorted(options.items()))
    with _lock:
        found = _shared.pop(key, None) or OnnxCrossEncoder(files, **options)
        _shared[key] = found
        while len(_shared) > _MOST_SHARED:
            _shared.popitem(last=False)
        return found


def _versions(files: ModelFiles | None) -> list[tuple[str, int, int]]:
    """Return the files with what changes when they do."""
    if files is None:
        return []
    paths = (files.model, files.tokenizer, files.tokenizer.with_name("config.json"))
    return [
        (str(path.resolve()), path.stat().st_mtime_ns, path.stat().st_size)
        for path in paths
        if path.is_file()
    ]
