"""A cache of its own for each test, and models that are small enough to prepare in a moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where prepared models lie."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NBRAG_CACHE", str(folder))
    return folder / "prepared"


@pytest.fixture
def classifier(repository: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a tiny classifier's folder."""

    def copy(kind: str = "bert") -> Path:
        source = (
            repository / "notebooks" / "models" / "tiny-random-bert"
            if kind == "bert"
            else repository / "tests" / "models" / "reranking" / "models" / f"tiny-random-{kind}"
        )
        return Path(shutil.copytree(source, tmp_path / f"tiny-{kind}"))

    return copy
