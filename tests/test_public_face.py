"""The public face: its names, and that importing it costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nbrag
import nbrag.errors

#: Seconds that ``import nbrag`` and ``%load_ext nbrag`` may take together.
BUDGET = 0.3
HEAVY = (
    "duckdb",
    "ipywidgets",
    "litellm",
    "numpy",
    "onnxruntime",
    "pandas",
    "pyarrow",
    "pydantic",
    "tokenizers",
)
LOAD = """
import json, sys, time
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
already = set(sys.modules)
start = time.perf_counter()
import nbrag
imported = time.perf_counter()
shell.run_line_magic("load_ext", "nbrag")
loaded = time.perf_counter()
new = {name.partition(".")[0] for name in set(sys.modules) - already}
print(json.dumps({"import": imported - start, "load": loaded - imported, "new": sorted(new)}))
"""


def measured(tmp_path: Path) -> dict:
    """Return what a fresh process needed to load nbrag."""
    output = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=tmp_path, capture_output=True, check=True, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])


def test_loading_imports_nothing_heavy(tmp_path: Path) -> None:
    new = measured(tmp_path)["new"]
    assert "nbrag" in new
    assert set(HEAVY).isdisjoint(new)


def test_loading_is_quick(tmp_path: Path) -> None:
    # The best of a few: a busy machine says nothing about the package.
    times = [measured(tmp_path) for _ in range(3)]
    assert min(found["import"] + found["load"] for found in times) < BUDGET


def test_all_names_are_there_and_listed() -> None:
    assert nbrag.__all__ == sorted(set(nbrag.__all__), key=nbrag.__all__.index)
    assert dir(nbrag) == sorted(nbrag.__all__)
    for name in nbrag.__all__:
        assert getattr(nbrag, name) is not None


def test_every_error_is_at_hand() -> None:
    errors = {
        name for name in nbrag.errors.__all__ if isinstance(getattr(nbrag.errors, name), type)
    }
    assert errors <= set(nbrag.__all__)
    assert nbrag.DatabaseLocked is nbrag.errors.DatabaseLocked


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Wrokspace'"):
        _ = nbrag.Wrokspace
