"""What the magics of one shell share: settings, the open workspace, the last result."""

from __future__ import annotations

import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrag.errors import ConfigurationError, NbragError
from nbrag.notebook.configuration import Configuration, SettingValue

if TYPE_CHECKING:
    from nbrag.types import Answer, RetrievalResults
    from nbrag.workspace import Workspace

__all__ = [
    "NotebookSession",
    "current_workspace",
    "forget_session",
    "session_of",
    "use_workspace",
]

#: Settings that a workspace is opened with.
_OPENED_WITH = ("database", "read_only", "embedder", "index")
#: Settings of the chat model, which the open workspace changes.
_CHAT = ("model", "budget_calls", "budget_tokens", "budget_money", "concurrency")
_MEMORY = ":memory:"


class NotebookSession:
    """The state behind the magics.

    Parameters
    ----------
    configuration
        The settings.

    Attributes
    ----------
    last_results
        Of the last search or question, for ``%rag_trace``.
    last_answer
        What ``%rag_ask --follow-up`` follows.
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.configuration = configuration or Configuration()
        self.last_results: RetrievalResults | Answer | None = None
        self.last_answer: Answer | None = None
        self._workspace: Workspace | None = None
        self._opened_with: tuple[Any, ...] = ()
        self._chat: tuple[Any, ...] | None = None
        self._owned = True

    @property
    def opened(self) -> Workspace | None:
        """The workspace if it is open already; looking does not open it."""
        return self._workspace

    @property
    def workspace(self) -> Workspace:
        """The workspace that the settings name, opened at first use.

        When the settings that it was opened with have changed, it is closed and the other one
        opened.
        """
        wanted = self._wanted()
        if self._workspace is None or wanted != self._opened_with:
            from nbrag.workspace import Workspace

            self._refuse_loss(wanted)
            self.close_workspace()

            database, read_only, embedder, index = wanted
            self._workspace = Workspace(
                database, read_only=read_only, embedder=embedder, index=index
            )
            self._opened_with = wanted
            self._owned = True
            self._chat = None
        self._use_chat(self._workspace)
        return self._workspace

    def _use_chat(self, workspace: Workspace) -> None:
        """Give the workspace the chat model of the settings, when they have changed."""
        values = self.configuration.resolve()
        wanted = {name: values[name] for name in _CHAT}
        given = any(value.source != "default" for value in wanted.values())
        chosen = tuple(value.value for value in wanted.values())
        # A workspace that came with its own model keeps it until a setting says otherwise.
        if chosen == self._chat or (self._chat is None and not given):
            return
        from nbrag.models.chat import Budget

        model, calls, tokens, money, concurrency = chosen
        limits = (calls, tokens, money)
        budget = None if limits == (None, None, None) else Budget(*limits)
        workspace.use_chat(model, budget=budget, concurrency=concurrency)
        self._chat = chosen

    def _wanted(self) -> tuple[Any, ...]:
        values = self.configuration.resolve()
        database = values["database"]
        path = str(database.value)
        if path != _MEMORY:
            path = str(database.folder / Path(path).expanduser())
        return (path, *(values[name].value for name in _OPENED_WITH[1:]))

    def configure(self, values: dict[str, Any]) -> None:
        """Change settings; all of them, or none when one can't be used.

        Raises
        ------
        ConfigurationError
            For an unknown setting or value, or one that would lose collections in memory.
        """
        before = dict(self.configuration.given)
        self.configuration.set(values)
        self._apply_or_restore(before)

    def reset(self, names: list[str]) -> None:
        """Forget settings that were made here; refuse as :meth:`configure` does."""
        before = dict(self.configuration.given)
        self.configuration.reset(names)
        self._apply_or_restore(before)

    def _apply_or_restore(self, before: dict[str, SettingValue]) -> None:
        try:
            self._refuse_loss(self._wanted())
            self.apply()
        except NbragError:
            self.configuration.given = before
            raise

    def _refuse_loss(self, wanted: tuple[Any, ...]) -> None:
        """Refuse settings for which a workspace would have to be opened anew and lose data."""
        if self._workspace is None or wanted == self._opened_with:
            return
        if wanted[0] != self._opened_with[0]:
            return
        if not self._owned:
            raise ConfigurationError(
                "the workspace was opened in Python, and its settings can't be changed here.",
                hint="open another one with nbrag.Workspace(...) and hand it to "
                "nbrag.use_workspace",
            )
        if wanted[0] == _MEMORY and (names := self._workspace.collections()):
            raise ConfigurationError(
                f"the workspace is in memory and would lose its collections ({', '.join(names)}).",
                hint="set embedder, index and read_only before the first ingestion, or use "
                "database=FILE",
            )

    def apply(self) -> None:
        """Bring into effect what is not asked for again at each use."""
        NbragError.verbose = bool(self.configuration["verbose_errors"])
        if self._workspace is not None:
            self._use_chat(self._workspace)
        elif (model := self.configuration["model"]) is not None:
            from nbrag.models.chat import resolve_chat

            # A name that can't be used is told at once, not at the first question.
            resolve_chat(model)

    def adopt(self, workspace: Workspace) -> None:
        """Use a workspace that somebody else opened and will close."""
        self.close_workspace()
        self.configuration.set(
            {
                "database": workspace.path,
                "read_only": workspace.read_only,
                "index": workspace.index,
            },
            source="use_workspace",
        )
        self._workspace = workspace
        self._owned = False
        self._chat = None
        self._opened_with = self._wanted()

    def close_workspace(self) -> None:
        """Close the workspace, unless it belongs to somebody else."""
        workspace, self._workspace = self._workspace, None
        self.last_results = self.last_answer = None
        if workspace is None or not self._owned:
            return
        lost = workspace.collections() if self._opened_with[0] == _MEMORY else []
        workspace.close()
        if lost:
            warnings.warn(
                f"the workspace in memory was closed, with its collections: {', '.join(lost)}",
                stacklevel=2,
            )

    def close(self) -> None:
        """End the session: close the workspace, and show errors as one line again."""
        self.close_workspace()
        NbragError.verbose = False


_sessions: weakref.WeakKeyDictionary[Any, NotebookSession] = weakref.WeakKeyDictionary()


def session_of(shell: Any, *, create: bool = False) -> NotebookSession | None:
    """Return the session of a shell; None when nbrag is not loaded there.

    Parameters
    ----------
    shell
        An IPython shell.
    create
        Whether to begin one.
    """
    if create and shell not in _sessions:
        _sessions[shell] = NotebookSession()
    return _sessions.get(shell)


def forget_session(shell: Any) -> None:
    """End the session of a shell."""
    session = _sessions.pop(shell, None)
    if session is not None:
        session.close()


def _here() -> NotebookSession:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    session = None if shell is None else session_of(shell)
    if session is None:
        raise ConfigurationError(
            "the magics of nbrag are not loaded here.",
            hint="run %load_ext nbrag, or open a workspace with nbrag.Workspace(...)",
        )
    return session


def current_workspace() -> Workspace:
    """Return the workspace that the magics of this notebook work on, opening it if need be.

    Raises
    ------
    ConfigurationError
        When the magics are not loaded.
    """
    return _here().workspace


def use_workspace(workspace: Workspace) -> None:
    """Let the magics of this notebook work on a workspace opened in Python.

    It stays yours: unloading the magics does not close it.

    Raises
    ------
    ConfigurationError
        When the magics are not loaded.
    """
    _here().adopt(workspace)
