"""Progress leaves one output, or none."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from nbrag.ingestion.report import IngestReport
from nbrag.notebook.progress import Progress, ProgressState, show_no_more

REPORT = IngestReport("docs", ())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def worked(shell: Any, **finish: Any) -> None:
    with Progress(shell) as progress:
        progress.update("docs: 1 of 2", 1, 2)
        progress.update("docs: 2 of 2", 2, 2)
        progress.finish(REPORT, **finish)


def test_a_pipe_gets_nothing(bare_shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    worked(bare_shell)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("finish", "last"),
    [({}, "\r\x1b[K"), ({"summary": "docs: done"}, "\rdocs: done\x1b[K\n")],
)
def test_a_terminal_gets_one_line_written_over(
    bare_shell: Any, monkeypatch: pytest.MonkeyPatch, finish: dict[str, str], last: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    worked(bare_shell, **finish)
    assert terminal.getvalue() == f"\rdocs: 1 of 2\x1b[K\rdocs: 2 of 2\x1b[K{last}"


@pytest.mark.parametrize(
    ("error", "word"), [(KeyboardInterrupt, "interrupted"), (ValueError, "stopped")]
)
def test_a_stop_is_said_where_it_was(
    bare_shell: Any, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], word: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    def fail() -> None:
        with Progress(bare_shell) as progress:
            progress.update("docs: 1 of 2", 1, 2)
            raise error

    with pytest.raises(error):
        fail()
    assert terminal.getvalue().endswith(f"\rdocs: 1 of 2; {word}\x1b[K\n")


def test_a_state_is_escaped_and_on_one_line() -> None:
    bundle = ProgressState("a<b>\n\x1b[2J\u202e", 1, 2)._repr_mimebundle_()
    assert bundle["text/plain"] == "a<b> [2J"
    assert "<b>" not in bundle["text/html"]
    assert 'value="1" max="2"' in bundle["text/html"]
    assert "max=" not in ProgressState("a", 1, None)._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("mark(); report", []),
        ("mark(); display(other); report", ["other"]),
        ("mark(); display(report); report", ["docs"]),
        ("mark(); other", ["other"]),
    ],
)
def test_what_is_shown_already_is_not_shown_again_in_this_cell(
    bare_shell: Any, capsys: pytest.CaptureFixture[str], code: str, shown: list[str]
) -> None:
    bare_shell.user_ns.update(
        report=REPORT,
        other=IngestReport("other", ()),
        mark=lambda: show_no_more(bare_shell, REPORT),
    )
    for cell, expected in ((code, shown), ("report", ["docs"])):
        bare_shell.run(f"from IPython.display import display\n{cell}")
        assert re.findall(r"(\w+): no documents", capsys.readouterr().out) == expected
