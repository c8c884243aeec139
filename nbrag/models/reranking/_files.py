"""The files of a cross-encoder: found like those of any model, the tokenizer elsewhere if named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbrag.errors import ModelInvalid, ModelNotFound
from nbrag.models.files import ModelFiles, find_files

__all__ = ["classifier_files"]

#: Where a graph lies in a folder.
_GRAPHS = ("model.onnx", "onnx/model.onnx")
#: What is read of a classifier's own description.
_DESCRIPTIONS = ("config.json", "tokenizer_config.json", "sentence_bert_config.json")


def classifier_files(
    model: str | Path, *, tokenizer: str | Path | None = None, file: str | None = None
) -> ModelFiles:
    """Find the files of a classifier.

    Parameters
    ----------
    model
        As for :func:`nbrag.models.files.find_files`.
    tokenizer
        A ``tokenizer.json``, or a folder that holds one, when it is not beside the model.
    file
        The graph to take where there are several.

    Raises
    ------
    ModelNotFound, ModelInvalid, MissingDependency
        When something is not there or can't be read.
    """
    if tokenizer is None:
        return find_files(model, file=file)
    path = Path(tokenizer).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise ModelNotFound(
            f"there is no tokenizer at {path}.",
            hint="give a tokenizer.json, or a folder that holds one",
        )
    graph = _graph(Path(model).expanduser(), file)
    if graph is None:
        return replace(find_files(model, file=file), tokenizer=path)
    folders = [path.parent, graph.parent.parent, graph.parent]
    if graph.parent.name != "onnx":
        del folders[1]
    found = {name: value for folder in folders for name, value in _descriptions(folder)}
    return ModelFiles(folders[-1].resolve().name, graph, path, found)


def _graph(model: Path, file: str | None) -> Path | None:
    """Return the graph where it is plain which one is meant."""
    if model.is_file():
        return model
    places = (model / name for name in ((file,) if file else _GRAPHS))
    return next((place for place in places if place.is_file()), None)


def _descriptions(folder: Path) -> Iterator[tuple[str, Any]]:
    for name in _DESCRIPTIONS:
        path = folder / name
        if not path.is_file():
            continue
        try:
            yield name, json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ModelInvalid(f"{path} is not JSON: {error}", hint="get the file again") from error
