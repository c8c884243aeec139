"""Test tools, public: a deterministic embedder and scripted models for your own tests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.testing.chat import ScriptedCall, ScriptedChatClient, ScriptExhausted
    from nbrag.testing.embedder import HashEmbedder

__all__ = ["HashEmbedder", "ScriptExhausted", "ScriptedCall", "ScriptedChatClient"]

_HOMES = {
    "HashEmbedder": "nbrag.testing.embedder",
    "ScriptExhausted": "nbrag.testing.chat",
    "ScriptedCall": "nbrag.testing.chat",
    "ScriptedChatClient": "nbrag.testing.chat",
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
