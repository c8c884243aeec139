"""The Hugging Face hub's cache on this machine, read without its package and without a network.

Layout: ``models--owner--name/refs/REVISION`` holds a commit, ``snapshots/COMMIT/`` the files (often
links into ``blobs/``), ``.no_exist/COMMIT/`` marks files that the repository is known to lack.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CachedModel", "cache_folder", "cached_models", "cached_snapshot", "known_missing"]

_PREFIX = "models--"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One snapshot of a hub model in the cache.

    Attributes
    ----------
    name
        ``owner/name``.
    revision
        The branch or tag that leads to it, else its commit.
    folder
        Its files, in hub layout.
    """

    name: str
    revision: str
    folder: Path

    @property
    def reference(self) -> str:
        """The name under which it is found again."""
        return self.name if self.revision == "main" else f"{self.name}@{self.revision}"


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the cache, where huggingface_hub has it too.

    ``HF_HUB_CACHE``, else ``HF_HOME/hub``, else ``XDG_CACHE_HOME/huggingface/hub``, else
    ``~/.cache/huggingface/hub``.
    """
    given = os.environ if environment is None else environment
    if cache := given.get("HF_HUB_CACHE") or given.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(cache)).expanduser()
    if home := given.get("HF_HOME"):
        return Path(os.path.expandvars(home)).expanduser() / "hub"
    base = Path(given.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "huggingface" / "hub"


def _folder_of(name: str) -> Path:
    return cache_folder() / (_PREFIX + name.replace("/", "--"))


def _commit(root: Path, revision: str) -> str:
    """Return the commit that a revision stands for, as far as the cache knows; else empty."""
    if _COMMIT.fullmatch(revision):
        return revision
    try:
        return (root / "refs" / revision).read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def cached_snapshot(name: str, revision: str = "main") -> Path | None:
    """Return the folder of a model's files in the cache; None when there is none.

    It may lack files, because only some were wanted or a download was stopped.
    """
    root = _folder_of(name)
    commit = _commit(root, revision)
    folder = root / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def known_missing(name: str, revision: str, file: str) -> bool:
    """Return whether the cache knows that the model has no such file at that revision."""
    root = _folder_of(name)
    commit = _commit(root, revision)
    return bool(commit) and (root / ".no_exist" / commit / file).is_file()


def cached_models() -> list[CachedModel]:
    """Return all snapshots of models in the cache, by name; none when there is no cache."""
    cache = cache_folder()
    if not cache.is_dir():
        return []
    found: list[CachedModel] = []
    for root in sorted(cache.glob(f"{_PREFIX}*")):
        name = root.name.removeprefix(_PREFIX).replace("--", "/", 1)
        refs = root / "refs"
        named = {
            _commit(root, revision): revision
            for path in sorted(refs.rglob("*"), key=lambda path: path.name == "main")
            if path.is_file() and (revision := path.relative_to(refs).as_posix())
        }
        found.extend(
            CachedModel(name, named.get(folder.name, folder.name), folder)
            for folder in sorted((root / "snapshots").glob("*"))
            if folder.is_dir() and any(folder.iterdir())
        )
    return found
