"""Errors reach IPython in a form that it shows as one line."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand

from nbrag.errors import QueryError
from nbrag.notebook.adapter import Call, adapter, common_options
from nbrag.notebook.arguments import argument, magic_options
from nbrag.notebook.session import NotebookSession


def raise_group() -> None:
    raise ExceptionGroup("several", [ValueError("inner")])


def chained() -> None:
    try:
        raise_group()
    except ExceptionGroup as group:
        raise QueryError("outer.", hint="do this") from group


def grouped() -> None:
    raise ExceptionGroup(
        "several", [ExceptionGroup("deep", [QueryError("outer.", hint="do this")])]
    )


def mixed() -> None:
    raise ExceptionGroup("several", [QueryError("outer."), ValueError("inner")])


def foreign() -> None:
    raise ValueError("a library's own")


ACTIONS = {action.__name__: action for action in (chained, grouped, mixed, foreign)}


@magics_class
class Failing(Magics):
    session = NotebookSession()

    @no_var_expand
    @line_magic
    @magic_options
    @argument("how")
    @common_options
    @adapter()
    def fail(self, call: Call) -> None:
        """Fail."""
        ACTIONS[call.options.how]()


@pytest.fixture
def failing(bare_shell: Any) -> Any:
    bare_shell.register_magics(Failing)
    return bare_shell


@pytest.mark.parametrize("how", ["chained", "grouped"])
def test_no_group_is_left_in_the_chain(failing: Any, capsys: Any, how: str) -> None:
    failing.run_cell(f"%fail {how}")
    captured = capsys.readouterr()
    assert captured.out == "QueryError: outer.\nHint: do this\n"
    assert captured.err == ""


@pytest.mark.parametrize(("how", "error"), [("mixed", ExceptionGroup), ("foreign", ValueError)])
def test_unknown_errors_are_not_hidden(failing: Any, capsys: Any, how: str, error: type) -> None:
    with pytest.raises(error):
        failing.run(f"%fail {how}")
    captured = capsys.readouterr()
    assert "Traceback" in captured.out + captured.err
