"""The repository's files, as the tests of its form see them."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def project(repository: Path) -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="session")
def sources(repository: Path) -> dict[str, str]:
    """The package's modules: dotted name to source text."""
    found = {}
    for path in sorted((repository / "nbrag").rglob("*.py")):
        parts = path.relative_to(repository).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text("utf-8")
    return found


@pytest.fixture(scope="session")
def tracked_files(repository: Path) -> list[Path]:
    """The files under version control, or all visible ones where there is no version control."""
    try:
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z"],
            cwd=repository,
            capture_output=True,
            check=True,
        ).stdout.decode()
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
    if names:
        return [path for name in names if (path := repository / name).is_file()]
    return [
        path
        for path in sorted(repository.rglob("*"))
        if path.is_file()
        and not any(
            part.startswith((".", "__pycache__")) and part != ".ci"
            for part in path.relative_to(repository).parts[:-1]
        )
    ]


@pytest.fixture(scope="session")
def notebook_paths(tracked_files: list[Path], repository: Path) -> list[Path]:
    """The notebooks that teach or measure; those of the corpus are documents."""
    corpus = repository / "notebooks" / "corpus"
    return [
        path for path in tracked_files if path.suffix == ".ipynb" and corpus not in path.parents
    ]
