"""The state of the map panel: what is drawn and how, and the map."""

from __future__ import annotations

from typing import Any

from traitlets import Any as AnyValue
from traitlets import Int, Tuple, Unicode

from nbrag.notebook.panels.state import PanelState

__all__ = ["MapState"]


class MapState(PanelState):
    """A map in the making.

    Attributes
    ----------
    collections, saved, fields
        Names of collections, of pipelines, and of what this collection can be marked by.
    collection
        What is drawn; empty for whichever is chosen.
    by
        What the marks tell; empty for what tells the most.
    method
        ``pca`` or ``umap``.
    most
        Most chunks that are shown.
    question, pipeline, top_k
        What is marked on the map; an empty question marks nothing.
    drawn
        The :class:`nbrag.maps.CollectionMap`; None before the first.
    """

    collections: Any = Tuple()
    saved: Any = Tuple()
    fields: Any = Tuple()
    collection = Unicode()
    by = Unicode()
    method = Unicode("pca")
    most = Int(3_000)
    question = Unicode()
    pipeline = Unicode("default")
    top_k = Int(5)
    drawn: Any = AnyValue(None, allow_none=True)
