"""Test tools, public: models without a model, panels driven, and notebooks run as tests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.testing.chat import ScriptedCall, ScriptedChatClient, ScriptExhausted
    from nbrag.testing.embedder import HashEmbedder
    from nbrag.testing.notebooks import NotebookFailed, run_notebook
    from nbrag.testing.panels import control, controls, panel_failures
    from nbrag.testing.records import read_records, record

__all__ = [
    "HashEmbedder",
    "NotebookFailed",
    "ScriptExhausted",
    "ScriptedCall",
    "ScriptedChatClient",
    "control",
    "controls",
    "panel_failures",
    "read_records",
    "record",
    "run_notebook",
]

_HOMES = {
    "HashEmbedder": "nbrag.testing.embedder",
    "NotebookFailed": "nbrag.testing.notebooks",
    "ScriptExhausted": "nbrag.testing.chat",
    "ScriptedCall": "nbrag.testing.chat",
    "ScriptedChatClient": "nbrag.testing.chat",
    "control": "nbrag.testing.panels",
    "controls": "nbrag.testing.panels",
    "panel_failures": "nbrag.testing.panels",
    "read_records": "nbrag.testing.records",
    "record": "nbrag.testing.records",
    "run_notebook": "nbrag.testing.notebooks",
}


def __getattr__(name: str) -> Any:
    """Import a tool at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
