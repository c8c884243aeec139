"""The magic that lists models, and an embedder with options as a setting."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


def test_the_models_are_shown(bare_shell: Any) -> None:
    bare_shell.run("%load_ext nbrag")
    view = bare_shell.run("%rag_models")
    shown = view._repr_mimebundle_()["text/plain"]
    assert "minilm" in shown
    assert "pip install 'nbrag[hub]', then %rag_config embedder=" in shown
    assert view[0].used_by == ("embedder",)
    assert bare_shell.run("%rag_models -q -o found") is None
    assert len(bare_shell.user_ns["found"]) == len(view)


def test_an_embedder_with_options_is_one_setting(bare_shell: Any) -> None:
    from nbrag import current_workspace

    bare_shell.run("%load_ext nbrag")
    bare_shell.run('%rag_config embedder="minilm dimension=64"')
    bare_shell.run("texts = ['Backups are kept for 30 days.']")
    bare_shell.run("%rag_ingest docs --from-var texts -q")
    assert current_workspace()["docs"].identity.dimension == 64
    assert bare_shell.run("%rag_search -c docs How long?")[0].content.startswith("Backups")
