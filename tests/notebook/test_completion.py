"""Completion knows options, names, stages, keys and values."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

OPTIONS = ["--collection", "--help", "--output", "--pipeline", "--quiet", "--raw", "--top-k"]


def complete(shell: Any, text: str) -> list[str]:
    """Return the completions at the bar in the text, as a front end gets them."""
    position = text.index("|")
    with provisionalcompleter():
        found = list(shell.Completer.completions(text.replace("|", ""), position))
    return [text[c.start : c.start] + c.text for c in found]


@pytest.fixture
def ready(filled: Any) -> Any:
    filled.run("%%rag_pipeline mine -c docs\n\n")
    return filled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%rag_search --|", [*OPTIONS, "--where"]),
        ("r = %rag_search --to|", ["--top-k"]),
        ("x = 1\nr = %rag_search --q|", ["--quiet"]),
        ("%%rag_search --pi|\nquestion", ["--pipeline"]),
        ("%rag_search -k 3 --|", [*OPTIONS, "--where"]),
        ("%rag_search -p |", ["default", "mine"]),
        ("%rag_search --pipeline=m|", ["mine"]),
        ("%rag_search -c d|", ["docs"]),
        ("%rag_eval m|", ["mine"]),
        ("%rag_panel s|", ["search"]),
        ("p = %rag_panel search m|", ["mine"]),
        ("%rag_panel eval default m|", ["mine"]),
        ("%rag_eval mine --cases f.jsonl --metrics nDCG@10 recall|", ["recall@10", "recall@5"]),
        ("%rag_ingest d|", ["docs"]),
        ("%rag_pipeline m|", ["mine"]),
        ("%rag_config re|", ["read_only="]),
        ("%rag_config read_only=|", ["true", "false"]),
        ("%rag_config top_k=3 index=h|", ["hnsw"]),
        ("%%rag_config\ntop|", ["top_k="]),
        ("%%rag_pipeline p -c docs\nsea|", ["search"]),
        ("\n%%rag_pipeline p -c docs\n# note\nsearch mo|", ["mode="]),
        ("%%rag_pipeline p\nsearch mode=|", ["hybrid", "vector", "keyword", "tree"]),
        ("%%rag_pipeline p\nsearch mode=hybrid mo|", []),
        ("%%rag_ingest docs --from a\nchunk max_t|", ["max_tokens="]),
    ],
)
def test_in_nbrag_s_magics(ready: Any, text: str, expected: list[str]) -> None:
    assert complete(ready, text) == expected


@pytest.mark.parametrize(
    "text",
    ["ma|", "x = 'a %rag_search'\nma|", "%%timeit\nma|", "s = '%rag_search'; ma|"],
)
def test_nothing_elsewhere(ready: Any, text: str) -> None:
    found = complete(ready, text)
    assert "max" in found
    assert not any(name.startswith(("--", "rag")) for name in found)


def test_what_a_panel_reads_is_completed_as_files(
    ready: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minutes.md").touch()
    found = complete(ready, "%rag_panel ingest mi|")
    assert "minutes.md" in found
    assert "mine" not in found


def test_a_closed_workspace_is_not_opened(bare_shell: Any) -> None:
    from nbrag.notebook.session import session_of

    bare_shell.run("%load_ext nbrag")
    complete(bare_shell, "%rag_search -p |")
    session = session_of(bare_shell)
    assert session is not None
    assert session.opened is None
