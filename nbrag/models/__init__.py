"""Models: embedders, where their files come from, and how they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.models.listing import ModelEntry, ModelsView, list_models

__all__ = ["ModelEntry", "ModelsView", "list_models"]


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name in __all__:
        from nbrag.models import listing

        return getattr(listing, name)
    raise AttributeError(f"module 'nbrag.models' has no attribute {name!r}")
