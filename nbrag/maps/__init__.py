"""Maps of collections: chunks in two dimensions, with a question and what it finds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.maps.collection_map import CollectionMap, MapHit
    from nbrag.maps.making import colour_fields, make_map, map_collection

__all__ = ["CollectionMap", "MapHit", "colour_fields", "make_map", "map_collection"]

_HOMES = {
    "CollectionMap": "collection_map",
    "MapHit": "collection_map",
    "colour_fields": "making",
    "make_map": "making",
    "map_collection": "making",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nbrag.maps' has no attribute {name!r}")
    value = getattr(import_module(f"nbrag.maps.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
