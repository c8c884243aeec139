"""Loading and unloading leave no trace."""

from __future__ import annotations

from typing import Any

import pytest

from nbrag.errors import NbragError
from nbrag.notebook.session import session_of

NAMES = {
    "rag_ask",
    "rag_config",
    "rag_eval",
    "rag_ingest",
    "rag_ledger",
    "rag_models",
    "rag_panel",
    "rag_pipeline",
    "rag_search",
    "rag_trace",
}
LINE_ONLY = {"rag_eval", "rag_ledger", "rag_models", "rag_panel", "rag_trace"}


def state(shell: Any) -> tuple[set[str], set[str], int, int]:
    """Return what loading changes."""
    magics = shell.magics_manager.magics
    return (
        {name for name in magics["line"] if name.startswith("rag_")},
        {name for name in magics["cell"] if name.startswith("rag_")},
        sum(type(entry).__name__ == "RagMagics" for entry in shell.configurables),
        len(shell.Completer.custom_matchers)
        + sum(
            entry.__module__.startswith("nbrag")
            for entry in shell.input_transformer_manager.token_transformers
        ),
    )


def test_load_twice_reload_and_unload(bare_shell: Any, capsys: Any) -> None:
    import nbrag

    before = state(bare_shell)
    assert before == (set(), set(), 0, 0)
    bare_shell.run("%load_ext nbrag")
    loaded = state(bare_shell)
    assert loaded[:2] == (NAMES, NAMES - LINE_ONLY)
    session = session_of(bare_shell)
    nbrag.load_ipython_extension(bare_shell)
    assert state(bare_shell) == loaded
    assert session_of(bare_shell) is session
    bare_shell.run("%reload_ext nbrag")
    assert state(bare_shell) == loaded
    bare_shell.run("%unload_ext nbrag")
    assert state(bare_shell) == before
    assert session_of(bare_shell) is None
    assert capsys.readouterr().err == ""


def test_unloading_closes_the_workspace_and_brings_short_errors_back(bare_shell: Any) -> None:
    bare_shell.run("%load_ext nbrag")
    bare_shell.run("%rag_config verbose_errors=true")
    session = session_of(bare_shell)
    assert session is not None
    workspace = session.workspace
    assert NbragError.verbose
    bare_shell.run("%unload_ext nbrag")
    assert not NbragError.verbose
    with pytest.raises(NbragError):
        workspace.collections()


def test_unloading_what_is_not_loaded_is_harmless(bare_shell: Any) -> None:
    import nbrag

    nbrag.unload_ipython_extension(bare_shell)
