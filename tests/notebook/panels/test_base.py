"""What all panels have in common: errors, work, snapshots, and an end without leftovers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import ipywidgets
import pytest
from ipywidgets.widgets.widget import _instances as living

from nbrag.errors import CollectionNotFound, ConfigurationError, QueryError
from nbrag.notebook.panels import (
    PanelDefinition,
    close_panels,
    open_panels,
    panel,
    panel_definitions,
    register_panel,
)
from nbrag.notebook.panels import registry as registry_module
from nbrag.notebook.panels.base import Panel
from nbrag.notebook.panels.controls import button, choice, row, text_line
from nbrag.notebook.panels.messages import error_lines, shown_database
from nbrag.notebook.panels.snapshots import part
from nbrag.notebook.panels.state import PanelState
from nbrag.testing import control, controls, panel_failures


class SmallState(PanelState):
    """The state of a panel of this file."""


class SmallPanel(Panel):
    """A panel with a button, a field and a list."""

    heading = "Small <panel>"

    def __init__(self, workspace: Any, *names: str, **options: Any) -> None:
        super().__init__(workspace, SmallState())
        self.options = options
        self.seen: list[Any] = []
        self.action: Any = lambda: None
        self.go = button("Go")
        self.word = text_line("Word")
        self.pick = choice("Pick", ["a", "b"], "a")
        self.on_click(self.go, self.run)
        self.on_change(self.word, self.seen.append)
        self.on_change(self.pick, self.seen.append)
        self.lay_out(row(self.go, self.word), self.pick)

    def run(self) -> None:
        self.action()

    def snapshot_parts(self) -> list[Any]:
        return [part(f"word {self.word.value}")]


@pytest.fixture
def small(workspace: Any) -> SmallPanel:
    return SmallPanel(workspace)


def fail_with(error: BaseException) -> Any:
    def action(*_: Any) -> None:
        raise error

    return action


def test_an_error_is_a_line_with_the_words_of_the_magic(small: SmallPanel) -> None:
    error = QueryError("the question is empty.", hint="write <one>")
    small.action = fail_with(error)
    small.go.click()
    assert list(small.state.alert) == error._render_traceback_()
    shown = small.children[1].value
    assert 'role="alert"' in shown
    assert "QueryError: the question is empty.\nHint: write &lt;one&gt;" in shown
    small.action = lambda: None
    small.go.click()
    assert (small.state.alert, small.children[1].value) == ((), "")


def test_a_failure_that_is_nobodys_fault_is_shown_and_fails_a_test(small: SmallPanel) -> None:
    small.action = fail_with(ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError), panel_failures():
        small.go.click()
    assert small.state.alert == ("ZeroDivisionError: division by zero",)


def test_a_change_of_the_panel_s_own_is_no_action(small: SmallPanel) -> None:
    with small.rendering():
        small.word.value = "by the panel"
    assert small.seen == []
    small.word.value = "by a person"
    small.pick.value = "b"
    assert small.seen == ["by a person", "b"]


def test_work_runs_aside_and_its_end_comes_to_the_widgets_thread(small: SmallPanel) -> None:
    gate = threading.Event()
    threads: list[str] = []

    async def work(report: Any) -> int:
        threads.append(threading.current_thread().name)
        report(1, 4, "a quarter")
        await asyncio.to_thread(gate.wait, 10)
        return 42

    def done(result: int) -> None:
        threads.append(threading.current_thread().name)
        small.seen.append(result)

    small.start(work, done, label="counting")
    assert small.state.busy
    assert small._stop.disabled is False
    assert small.seen == []
    small._dispatcher.wait(lambda: small.state.total == 4, 10)
    assert (small.state.done, small.state.status) == (1, "a quarter")
    assert '<progress aria-label="a quarter" value="1" max="4">' in small._status.value
    gate.set()
    small.wait()
    assert small.seen == [42]
    assert threads == ["nbrag-loop", threading.current_thread().name]
    assert (small.state.busy, small.state.status, small._stop.disabled) == (False, "", True)


def test_work_is_stopped_replaced_and_may_fail(
    small: SmallPanel, failures: list[BaseException]
) -> None:
    ended: list[str] = []

    async def long(name: str) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)
        return name

    small.start(lambda _: long("stopped"), small.seen.append, label="reading")
    control(small, "Stop").click()
    small.wait()
    assert small.state.status == "reading: stopped"

    async def quick() -> str:
        return "second"

    small.start(lambda _: long("first"), small.seen.append)
    small.start(lambda _: quick(), small.seen.append)
    small.wait()
    assert small.seen == ["second"]

    async def failing() -> None:
        raise CollectionNotFound("it is gone.", hint="ingest it")

    small.start(lambda _: failing(), small.seen.append)
    small.wait()
    assert small.state.alert == ("CollectionNotFound: it is gone.", "Hint: ingest it")

    small.start(lambda _: quick(), fail_with(KeyError("in the handler")))
    small.wait()
    assert small.state.alert == ("KeyError: 'in the handler'",)
    assert [type(error) for error in failures] == [KeyError]
    failures.clear()
    deadline = time.monotonic() + 5
    while len(ended) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == ["stopped", "first"]


def test_the_snapshot_reads_without_a_kernel(small: SmallPanel) -> None:
    small.word.value = "<script>alert(1)</script>"
    small.state.status = "done"
    bundle = small._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<script" not in bundle["text/html"]
    assert "&lt;script&gt;" in bundle["text/html"]
    assert 'aria-label="Small &lt;panel&gt;"' in bundle["text/html"]
    for far in ("http:", "https:", "src=", "cdn"):
        assert far not in bundle["text/html"]
    assert bundle["text/plain"].splitlines()[0] == "Small <panel>"
    assert "done" in bundle["text/plain"]


def test_a_snapshot_never_raises(small: SmallPanel, failures: list[BaseException]) -> None:
    small.snapshot_parts = fail_with(RuntimeError("broken"))  # type: ignore[method-assign]
    assert "Small <panel>" in small._repr_mimebundle_()["text/plain"]
    assert [str(error) for error in failures] == ["broken"]
    failures.clear()


def test_showing_again_ten_times_leaves_one_panel_and_nothing_of_the_others(
    workspace: Any,
) -> None:
    first = SmallPanel(workspace)
    models = set(living)
    for _ in range(10):
        last = SmallPanel(workspace)
    assert open_panels() == [last]
    assert first.ended
    assert len(living) == len(models)
    assert first.go.comm is None
    assert len(last.go._click_handlers.callbacks) == 1
    first.go.click()  # a closed panel does nothing
    assert first.state.alert == ()
    close_panels()
    assert open_panels() == []


def test_closing_stops_the_work(small: SmallPanel) -> None:
    async def long() -> None:
        await asyncio.sleep(60)

    small.start(lambda _: long(), small.seen.append)
    small.close()
    small.close()
    assert small._jobs.idle
    assert repr(small) == "<SmallPanel (closed)>"


def test_every_control_has_a_name(small: SmallPanel) -> None:
    kinds = (ipywidgets.Text, ipywidgets.Dropdown, ipywidgets.Button)
    assert all(c.description for c in controls(small) if isinstance(c, kinds))


def test_errors_tell_no_folder_and_no_key(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh12345678")
    monkeypatch.chdir(tmp_path)
    lines = error_lines(QueryError(f"{tmp_path}/a.duckdb and abcdefgh12345678.", hint="x"))
    assert lines == ("QueryError: a.duckdb and ***.", "Hint: x")
    assert shown_database(str(tmp_path / "a.duckdb")) == "a.duckdb"
    assert shown_database(":memory:") == ":memory:"
    assert shown_database("/elsewhere/b.duckdb") == "b.duckdb"


def test_panels_are_opened_by_name(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_registry", dict(registry_module._registry))
    home = f"{__name__}:SmallPanel"
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("sys").modules[__name__])
    definition = PanelDefinition("small", "A small one.", home, frozenset({"size"}))
    assert register_panel(definition) is definition
    with pytest.raises(ConfigurationError, match="already"):
        register_panel(definition)
    assert "small" in panel_definitions()
    made: Any = panel("small", workspace, size=3)
    assert made.options == {"size": 3}
    assert made.workspace is workspace
    with pytest.raises(ConfigurationError, match=r"no panel 'smal'.*did you mean 'small'"):
        panel("smal", workspace)
    with pytest.raises(ConfigurationError, match=r"no option 'sise'.*did you mean 'size'"):
        panel("small", workspace, sise=3)
    with pytest.raises(ConfigurationError, match="takes no names"):
        panel("small", workspace, "name")
