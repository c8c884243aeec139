"""Panels: pipelines built, run and inspected with widgets.

``%rag_panel search`` and ``nbrag.panel("search")`` open one. A panel is three things apart: its
state (traits, no widgets), its view (a :class:`~nbrag.notebook.panels.base.Panel` of core
ipywidgets), and its actions, which call the same Python API as magics and scripts do. Nothing
here imports ipywidgets before a panel is opened.
"""

from nbrag.notebook.panels.cells import close_panels, open_panels
from nbrag.notebook.panels.registry import (
    PanelDefinition,
    panel,
    panel_definitions,
    register_panel,
)

__all__ = [
    "PanelDefinition",
    "close_panels",
    "open_panels",
    "panel",
    "panel_definitions",
    "register_panel",
]
