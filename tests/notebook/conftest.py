"""A shell with the magics loaded, over a workspace in memory with the hash embedder."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from nbrag.errors import NbragError
from nbrag.notebook.session import session_of, use_workspace
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace

TEXTS = {
    "backups.md": "# Backups\n\nBackups are kept for 35 days in the EU region.\n",
    "prices.md": "# Prices\n\nThe small plan costs 5 dollars each month.\n",
    "login.md": "# Login\n\nPeople sign in with a passkey or with a password.\n",
}


class TestingShell(InteractiveShell):
    """A shell whose cells raise what they fail with."""

    __test__ = False

    def run(self, code: str) -> Any:
        """Run a cell; raise its error, return its result."""
        result = self.run_cell(code, store_history=False)
        result.raise_error()
        return result.result


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, without settings of the environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("NBRAG_") and name not in {"NBRAG_CACHE", "NBRAG_DATA"}:
            monkeypatch.delenv(name)


@pytest.fixture
def bare_shell() -> Iterator[TestingShell]:
    """A shell without nbrag, without history."""
    InteractiveShell.clear_instance()
    shell = TestingShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    yield shell
    TestingShell.clear_instance()
    # Else each of hundreds of shells collects garbage once more when the tests are through.
    atexit.unregister(shell.atexit_operations)
    session = session_of(shell)
    if session is not None:
        with warnings.catch_warnings():
            # Of collections in memory that are gone now.
            warnings.simplefilter("ignore", UserWarning)
            session.close()
    assert not NbragError.verbose


@pytest.fixture
def shell(bare_shell: TestingShell) -> Iterator[TestingShell]:
    """A shell with the magics over an empty workspace in memory."""
    bare_shell.run("%load_ext nbrag")
    with Workspace(embedder=HashEmbedder()) as workspace:
        use_workspace(workspace)
        yield bare_shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three small documents in the folder ``handbook`` of the current one."""
    made = tmp_path / "handbook"
    made.mkdir()
    for name, text in TEXTS.items():
        (made / name).write_text(text, "utf-8")
    return made


@pytest.fixture
def filled(shell: TestingShell, folder: Path) -> TestingShell:
    """The shell with the three documents in the collection ``docs``."""
    shell.run("%rag_ingest docs --from handbook -q")
    return shell
