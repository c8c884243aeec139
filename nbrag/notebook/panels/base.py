"""What all panels have in common: errors as a visible line, work with a stop button, an end."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ipywidgets import VBox

from nbrag.notebook.panels import cells
from nbrag.notebook.panels.controls import button, markup, row, title
from nbrag.notebook.panels.guarding import note_failure
from nbrag.notebook.panels.jobs import Dispatcher, Jobs, Report
from nbrag.notebook.panels.messages import error_lines, without_private
from nbrag.notebook.panels.snapshots import alert_html, snapshot
from nbrag.notebook.panels.state import PanelState
from nbrag.notebook.progress import ProgressState
from nbrag.rendering import Rendering, plain

if TYPE_CHECKING:
    from nbrag.workspace import Workspace

__all__ = ["Panel"]

#: JupyterLab takes the keys of buttons and lists for commands of its own: Enter edits the cell,
#: arrows leave it. Keys without Ctrl, Alt or Meta stay in the panel; Escape and Shift+Enter pass.
_KEEP_KEYS = (
    "const panel=this.closest('.nbrag-panel');"
    "if(panel&amp;&amp;!panel.dataset.keys){panel.dataset.keys='own';"
    "panel.addEventListener('keydown',e=&gt;{"
    "if(!(e.ctrlKey||e.metaKey||e.altKey||e.key==='Escape'||(e.key==='Enter'&amp;&amp;e.shiftKey)))"
    "e.stopPropagation()})}"
)
#: Core controls leave little room for tables, and hardly show where the focus is.
_STYLE = (
    f'<style onload="{_KEEP_KEYS}">'
    ".nbrag-panel .widget-html-content{line-height:1.4}"
    ".nbrag-panel tbody td{border-top:1px solid var(--jp-border-color2,#8884)}"
    ".nbrag-panel button:focus-visible,.nbrag-panel summary:focus-visible,"
    ".nbrag-panel select:focus,.nbrag-panel input:focus,.nbrag-panel textarea:focus"
    "{outline:2px solid var(--jp-brand-color1,#1976d2);outline-offset:1px}"
    "</style>"
)


class Panel(VBox):  # type: ignore[misc]
    """A box of controls over a state; the base of all panels.

    A derived class makes its controls, ties them to actions with :meth:`on_click` and
    :meth:`on_change`, redraws itself in functions given to :meth:`follow`, and lays itself out
    with :meth:`lay_out`.

    Parameters
    ----------
    workspace
        What the panel works on, or a function that gives it each time it is needed.
    state
        The panel's state.
    """

    #: Shown above the panel.
    heading: ClassVar[str] = "Panel"

    def __init__(self, workspace: Workspace | Callable[[], Workspace], state: PanelState) -> None:
        super().__init__(layout={"width": "100%", "padding": "0.3em 0.2em"})
        self.add_class("nbrag-panel")
        self.state = state
        self.ended = False
        self._provider: Callable[[], Workspace] = (
            workspace if callable(workspace) else lambda: workspace
        )
        self._rendering = 0
        self._dispatcher = Dispatcher()
        self._jobs = Jobs(self._dispatcher, self._show_busy)
        self._alert = markup()
        self._status = markup()
        self._stop = button("Stop", help_text="Stop the work that is running")
        self._stop.disabled = True
        self.on_click(self._stop, self._jobs.stop)
        self.follow(["alert"], self._show_alert)
        self.follow(["status", "busy", "done", "total"], self._show_status)
        cells.adopt(self)

    @property
    def workspace(self) -> Workspace:
        """The workspace; opening it may fail, so it is asked for in actions only."""
        return self._provider()

    # The parts ---------------------------------------------------------------------------

    def lay_out(self, *children: Any) -> None:
        """Show the panel's controls, between the heading and the line of state."""
        status = row(self._stop, self._status)
        self._status.layout.width = "auto"
        heading = title(html.escape(self.heading))
        heading.value += _STYLE
        self.children = (heading, self._alert, *children, status)

    def on_click(self, control: Any, action: Callable[[], None]) -> None:
        """Run an action when a button is pressed."""
        control.on_click(lambda _: self.act(action))

    def on_change(
        self, control: Any, action: Callable[[Any], None], *, trait: str = "value"
    ) -> None:
        """Run an action with the new value when a person changes a control.

        Changes that the panel makes itself while it redraws are none.
        """

        def changed(change: Any) -> None:
            if not self._rendering:
                self.act(lambda: action(change.new))

        control.observe(changed, names=trait)

    def follow(self, names: Iterable[str], redraw: Callable[[], None]) -> None:
        """Redraw now, and whenever one of the state's traits changes."""

        def changed(_: Any) -> None:
            with self.guard(), self.rendering():
                redraw()

        self.state.observe(changed, names=list(names))
        with self.rendering():
            redraw()

    @contextlib.contextmanager
    def rendering(self) -> Iterator[None]:
        """Change controls without that counting as a person's doing."""
        self._rendering += 1
        try:
            yield
        finally:
            self._rendering -= 1

    def replace_children(self, box: Any, children: Iterable[Any]) -> None:
        """Give a box other children; the old ones are closed."""
        old = box.children
        box.children = tuple(children)
        for child in old:
            if child not in box.children:
                _end(child)

    # Errors ------------------------------------------------------------------------------

    def act(self, action: Callable[[], None]) -> None:
        """Run what a person asked for: the last error is dealt with, the next one is shown."""
        if self.ended:
            return
        self.state.alert = ()
        with self.guard():
            action()

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Show what is raised inside as the panel's alert."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - shown, and kept for tests
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Show an error in the words of the magics."""
        note_failure(error)
        self.state.alert = error_lines(error)

    # Work --------------------------------------------------------------------------------

    def start(
        self,
        work: Callable[[Report], Coroutine[Any, Any, Any]],
        done: Callable[[Any], None],
        *,
        key: str = "main",
        label: str = "",
        quiet: bool = False,
    ) -> None:
        """Start work on the background loop; cells run on meanwhile.

        Parameters
        ----------
        work
            Gets a function to report progress with (done, total or None, text), from any thread,
            and returns the coroutine. It must not touch widgets or the state.
        done
            Called with the result in the widgets' thread; its errors are shown.
        key
            Running work of the same key is stopped and forgotten.
        label
            The status line while it runs, and what "stopped" is said of.
        quiet
            Whether it runs without status line and stop button.
        """
        if not quiet:
            self.state.done, self.state.total = 0, None
            self.state.status = label

        def finished(result: Any) -> None:
            if not quiet:
                self.state.status = ""
            with self.guard():
                done(result)

        def failed(error: BaseException) -> None:
            if not quiet:
                self.state.status = ""
            self.fail(error)

        def stopped() -> None:
            self.state.status = f"{label or 'the work'}: stopped"

        def progress(made: int, total: int | None, text: str) -> None:
            if not quiet:
                with self.state.hold_trait_notifications():
                    self.state.done, self.state.total = made, total
                    self.state.status = text or label

        self._jobs.start(
            key, work, done=finished, failed=failed, stopped=stopped, progress=progress, quiet=quiet
        )

    def stop(self, key: str | None = None) -> None:
        """Stop the work of a key, or all work that a person can see."""
        self._jobs.stop(key)

    def wait(self, timeout: float = 60.0) -> None:
        """Wait in a script or a test until nothing runs any more, and show what came of it."""
        self._dispatcher.wait(lambda: self._jobs.idle, timeout)

    def settle(self, seconds: float = 10.0) -> None:
        """Wait a little for work of the panel's opening, so that the still picture shows its end.

        What takes longer goes on by itself; an interrupt stops it.
        """
        try:
            self.wait(seconds)
        except TimeoutError:
            return
        except KeyboardInterrupt:
            self.stop()
            raise

    def _show_busy(self) -> None:
        if not self.ended:
            self.state.busy = self._jobs.busy

    # What is shown -----------------------------------------------------------------------

    def _show_alert(self) -> None:
        self._alert.value = alert_html(self.state.alert)

    def _show_status(self) -> None:
        state = self.state
        self._stop.disabled = not state.busy
        shown = without_private(state.status)
        if state.busy:
            shown_state = ProgressState(shown, state.done, state.total)
            self._status.value = shown_state._repr_mimebundle_()["text/html"]
        else:
            words = html.escape(plain(shown), quote=True)
            self._status.value = f'<div role="status">{words}</div>'

    def snapshot_parts(self) -> list[Rendering]:
        """Return what the still picture shows below the heading; made from the state alone."""
        return []

    def snapshot(self) -> Rendering:
        """Return the still picture, ``text/plain`` and ``text/html``."""
        try:
            parts = self.snapshot_parts()
        except Exception as error:  # noqa: BLE001 - a display never raises
            note_failure(error)
            parts = []
        made = snapshot(self.heading, parts, self.state.alert, self.state.status)
        return {kind: without_private(text) for kind, text in made.items()}

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return the live view, and the still picture where there is no kernel behind it."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        bundle.update(self.snapshot())
        return bundle

    def __repr__(self) -> str:
        """Name the panel; its controls are no news."""
        return f"<{type(self).__name__}{' (closed)' if self.ended else ''}>"

    # The end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the work and close all controls; a second call does nothing."""
        if self.ended:
            return
        self.ended = True
        self._jobs.drop()
        cells.forget(self)
        self.state.unobserve_all()
        children, self.children = self.children, ()
        for child in (*children, self._alert, self._status, self._stop):
            _end(child)
        for own in (self.layout, getattr(self, "style", None)):
            if own is not None:
                own.close()
        super().close()


def _end(widget: Any) -> None:
    """Close a control, all that is in it, and the little models of its look."""
    if widget.comm is None:
        return
    for child in getattr(widget, "children", ()):
        _end(child)
    widget.unobserve_all()
    for name in ("layout", "style"):
        model = getattr(widget, name, None)
        if model is not None and hasattr(model, "close"):
            model.close()
    widget.close()
