"""Loading and unloading the magics in an IPython shell."""

from __future__ import annotations

from typing import Any

from nbrag.notebook import questions
from nbrag.notebook.completion import CompletionMatcher
from nbrag.notebook.magics import RagMagics
from nbrag.notebook.panels.cells import close_panels
from nbrag.notebook.session import forget_session, session_of

__all__ = ["load", "unload"]


def load(shell: Any) -> None:
    """Register the magics and their completion; loading twice changes nothing."""
    if any(isinstance(entry, RagMagics) for entry in shell.configurables):
        return
    session = session_of(shell, create=True)
    assert session is not None  # noqa: S101 - just created
    shell.register_magics(RagMagics(shell, session))
    shell.Completer.custom_matchers.append(CompletionMatcher(session).matcher)
    questions.install(shell.input_transformer_manager)


def unload(shell: Any) -> None:
    """Remove the magics and their completion, close the panels and the workspace."""
    close_panels()
    registry = shell.magics_manager
    for kind in ("line", "cell"):
        for name, function in list(registry.magics[kind].items()):
            if isinstance(getattr(function, "__self__", None), RagMagics):
                del registry.magics[kind][name]
    registry.registry.pop(RagMagics.__name__, None)
    shell.configurables[:] = [
        entry for entry in shell.configurables if not isinstance(entry, RagMagics)
    ]
    shell.Completer.custom_matchers[:] = [
        matcher
        for matcher in shell.Completer.custom_matchers
        if not isinstance(getattr(matcher, "__self__", None), CompletionMatcher)
    ]
    questions.remove(shell.input_transformer_manager)
    forget_session(shell)
