"""Models of the Hugging Face hub: from the cache where they are there, else downloaded.

The order of a download makes its result safe: descriptions first, then weights, the graph last,
and each file is moved to its place only when it is whole. So a snapshot that has its graph is
complete, and one that was stopped is gone on with at the next try.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbrag.errors import MissingDependency, ModelError, ModelInvalid, ModelNotFound
from nbrag.models._graph_choice import (
    MAIN_GRAPHS,
    choose_graph,
    graph_missing,
    ranked_graphs,
    within,
)
from nbrag.models.graph_files import check_graph, external_weights
from nbrag.models.hub_cache import cache_folder, cached_snapshot, known_missing

__all__ = ["DESCRIPTIONS", "hub_folder"]

#: Files that describe a model; each may be missing.
DESCRIPTIONS = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
)
_TOKENIZER = "tokenizer.json"
#: Its front matter says the licence.
_CARD = "README.md"
_ON = {"1", "on", "yes", "true"}


def hub_folder(name: str, revision: str, file: str | None) -> tuple[Path, str]:
    """Return the folder of a hub model's files and the graph to take, downloading what is missing.

    Nothing is asked of the network when the cache has the files.

    Parameters
    ----------
    name
        ``owner/name``.
    revision
        Branch, tag or commit.
    file
        The graph to take; None chooses.

    Raises
    ------
    MissingDependency
        When something has to be downloaded and huggingface_hub is not installed.
    ModelNotFound
        When the hub has no such model, revision or file, or can't be reached.
    ModelInvalid
        When the model has no tokenizer or its graph can't be used.
    """
    file = None if file is None else within(file)
    snapshot = cached_snapshot(name, revision)
    graph = None if snapshot is None else _cached_graph(snapshot, name, revision, file)
    if snapshot is not None and graph is not None:
        return snapshot, graph
    download = _Download(name, revision)
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in _ON:
        return _offline(name, revision, file, snapshot)
    return download.take(file, snapshot)


def _cached_graph(snapshot: Path, name: str, revision: str, file: str | None) -> str | None:
    """Return the graph to take when all that belongs to it is cached, and the choice is sure."""
    candidates = [file] if file else ranked_graphs()
    for candidate in candidates:
        if (snapshot / candidate).is_file():
            return candidate if _is_whole(snapshot, candidate) else None
        # A better variant that is not cached may well be on the hub.
        if candidate not in MAIN_GRAPHS and not known_missing(name, revision, candidate):
            main_missing = all(known_missing(name, revision, main) for main in MAIN_GRAPHS)
            if not main_missing:
                return None
    return None


def _is_whole(snapshot: Path, graph: str) -> bool:
    if not (snapshot / _TOKENIZER).is_file():
        return False
    try:
        check_graph(snapshot / graph)
    except ModelInvalid as fault:
        # A path out of the folder is no damage that a download could repair.
        if "refused" in fault.message:
            raise
        return False
    return True


def _offline(name: str, revision: str, file: str | None, snapshot: Path | None) -> tuple[Path, str]:
    """Return what the cache has, even if a better variant may exist."""
    there = [] if snapshot is None else files_below(snapshot)
    graph = choose_graph(there, file)
    if snapshot is not None and graph is not None and _is_whole(snapshot, graph):
        return snapshot, graph
    raise ModelNotFound(
        f"the hub model '{_shown(name, revision)}' is not in the local cache, or only in part, and "
        "HF_HUB_OFFLINE forbids downloading it.",
        hint="unset HF_HUB_OFFLINE once, or give a folder that holds the files",
    )


def files_below(folder: Path) -> list[str]:
    """Return the files of a folder and its folders, with forward slashes."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def _shown(name: str, revision: str) -> str:
    return name if revision == "main" else f"{name}@{revision}"


class _Download:
    """One download of a model."""

    def __init__(self, name: str, revision: str) -> None:
        self._name = name
        self._revision = revision
        self._label = f"the hub model '{_shown(name, revision)}'"
        try:
            import huggingface_hub
        except ImportError:
            raise MissingDependency(self._label, "huggingface_hub", "hub") from None
        self._hub: Any = huggingface_hub
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        self._cache = cache_folder()

    def take(self, file: str | None, snapshot: Path | None) -> tuple[Path, str]:
        """Download what is missing; with no connection, take what is cached."""
        try:
            return self._take(file)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - the HTTP clients' errors share no base class
            from huggingface_hub.errors import HfHubHTTPError

            there = [] if snapshot is None else files_below(snapshot)
            graph = choose_graph(there, file)
            no_answer = not isinstance(error, HfHubHTTPError)
            if no_answer and snapshot is not None and graph and _is_whole(snapshot, graph):
                return snapshot, graph
            raise self._failure(error) from None

    def _take(self, file: str | None) -> tuple[Path, str]:
        info = self._hub.HfApi(endpoint=self._endpoint).model_info(
            self._name, revision=self._revision
        )
        there = [entry.rfilename for entry in info.siblings or ()]
        graph = choose_graph(there, file)
        if graph is None:
            raise graph_missing(self._label, there, file)
        if _TOKENIZER not in there:
            raise ModelInvalid(
                f"{self._label} has no tokenizer: {_TOKENIZER} is missing.",
                hint="take another export of the model that has one",
            )
        commit = str(info.sha or self._revision)
        described = [name for name in (*DESCRIPTIONS, _CARD) if name in there]
        if file is None and graph not in MAIN_GRAPHS:
            self._remember_missing(there, commit)
        weights = [name for name in there if name.startswith((f"{graph}_", f"{graph}."))]
        for name in (*described, _TOKENIZER, *weights, graph):
            path = self._fetch(name, commit)
        path = self._repaired(path, graph, commit)
        folder = path.parents[graph.count("/")]
        prefix = graph.rpartition("/")[0]
        for name in external_weights(path):
            self._fetch(f"{prefix}/{name}" if prefix else name, commit)
        if commit != self._revision:
            # Writes down which commit the branch or tag stands for; nothing is loaded again.
            self._fetch(_TOKENIZER, self._revision)
        return folder, graph

    def _remember_missing(self, there: Sequence[str], commit: str) -> None:
        """Let the cache know that there is no preferred graph, so that nobody asks again."""
        from huggingface_hub.errors import EntryNotFoundError

        for name in MAIN_GRAPHS:
            if name not in there:
                try:
                    self._fetch(name, commit)
                except EntryNotFoundError:
                    continue

    def _fetch(self, name: str, revision: str, *, force: bool = False) -> Path:
        return Path(
            self._hub.hf_hub_download(
                self._name,
                name,
                revision=revision,
                cache_dir=self._cache,
                endpoint=self._endpoint,
                force_download=force,
            )
        )

    def _repaired(self, path: Path, graph: str, commit: str) -> Path:
        """Download a graph once more that was cached damaged."""
        try:
            external_weights(path)
        except ModelInvalid as fault:
            if "refused" in fault.message:
                raise
            path.unlink()
            return self._fetch(graph, commit, force=True)
        return path

    def _failure(self, error: Exception) -> ModelNotFound:
        """Return an error of one line for a failed download, without any secret in it."""
        from huggingface_hub import errors

        from nbrag.models.known import nearest_model
        from nbrag.models.provider import without_secrets

        if isinstance(error, errors.GatedRepoError):
            reason, hint = "its owner wants a login first.", "accept its terms on the hub, log in"
        elif isinstance(error, errors.RepositoryNotFoundError):
            reason = "the hub has no model of that name, or only a private one."
            hint = nearest_model(self._name)
        elif isinstance(error, errors.RevisionNotFoundError):
            reason = f"it has no revision '{self._revision}'."
            hint = "give a branch, a tag or a full commit, or leave it out"
        else:
            lines = without_secrets(str(error)).strip().splitlines()
            reason = lines[0] if lines else type(error).__name__
            hint = "check the name and the connection, or give a folder that holds the files"
        return ModelNotFound(
            f"{self._label} is not in the local cache and can't be downloaded: {reason}", hint=hint
        )
