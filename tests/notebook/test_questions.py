"""A question may end in a question mark; help is still help."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def loaded(bare_shell: Any) -> Any:
    bare_shell.run("%load_ext nbrag")
    return bare_shell


@pytest.mark.parametrize(
    ("cell", "call"),
    [
        ("%rag_search How long?", "('rag_search', 'How long?')"),
        ("%rag_search what's a (brace??", "('rag_search', \"what's a (brace??\")"),
        ("if x:\n    %rag_search -k 1 Why?", "('rag_search', '-k 1 Why?')"),
        ("r = %rag_search Why?", "('rag_search', 'Why?')"),
        ("if x:\n    a, b = %rag_search Why \\\n  not?\nlen(a)", "('rag_search', 'Why    not?')"),
        ("y = 1\n%rag_search One?\n%rag_search Two?\n", "('rag_search', 'Two?')"),
        ("%rag_search plain", "('rag_search', 'plain')"),
    ],
)
def test_a_question_mark_at_the_end_belongs_to_the_question(
    loaded: Any, cell: str, call: str
) -> None:
    code = loaded.transform_cell(cell)
    assert f"get_ipython().run_line_magic{call}" in code
    assert "pinfo" not in code


@pytest.mark.parametrize("cell", ["%rag_search?", "%rag_search??", "print?", "%timeit print?"])
def test_help_is_still_help(loaded: Any, cell: str) -> None:
    assert "pinfo" in loaded.transform_cell(cell)


def test_text_in_strings_is_left_alone(loaded: Any) -> None:
    cell = 'text = """\n%rag_search Why?\n"""\n'
    assert loaded.transform_cell(cell) == cell


def test_gone_after_unloading(loaded: Any) -> None:
    loaded.run("%unload_ext nbrag")
    assert "pinfo" in loaded.transform_cell("%rag_search How long?")
