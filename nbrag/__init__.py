"""nbrag: a retrieval-augmented-generation workbench for notebooks.

``%load_ext nbrag`` brings the magics; everything they do is a method of :class:`Workspace`::

    workspace = nbrag.Workspace("handbook.duckdb")
    workspace.ingest("docs", "handbook/")
    workspace.search("How long are backups kept?", collection="docs")

Names are imported at their first use, so that ``import nbrag`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag import errors, models, protocols, spec, stores, testing, types
    from nbrag.background import run
    from nbrag.errors import NbragError
    from nbrag.ingestion import IngestionPipeline, IngestReport
    from nbrag.notebook.session import current_workspace, use_workspace
    from nbrag.spec import PipelineSpec, StageDefinition, StageOptions, register_stage
    from nbrag.stores.filters import Field, parse_filter
    from nbrag.testing.records import record
    from nbrag.types import (
        Chunk,
        Document,
        MetadataKeys,
        RetrievalChunk,
        RetrievalQuery,
        RetrievalResults,
    )
    from nbrag.workspace import Workspace

__all__ = [
    "Chunk",
    "Document",
    "Field",
    "IngestReport",
    "IngestionPipeline",
    "MetadataKeys",
    "NbragError",
    "PipelineSpec",
    "RetrievalChunk",
    "RetrievalQuery",
    "RetrievalResults",
    "StageDefinition",
    "StageOptions",
    "Workspace",
    "__version__",
    "current_workspace",
    "errors",
    "models",
    "parse_filter",
    "protocols",
    "record",
    "register_stage",
    "run",
    "spec",
    "stores",
    "testing",
    "types",
    "use_workspace",
]

#: Where each name lives; a module stands for itself.
_HOMES = {
    "Chunk": "nbrag.types",
    "Document": "nbrag.types",
    "Field": "nbrag.stores.filters",
    "IngestReport": "nbrag.ingestion",
    "IngestionPipeline": "nbrag.ingestion",
    "MetadataKeys": "nbrag.types",
    "NbragError": "nbrag.errors",
    "PipelineSpec": "nbrag.spec",
    "RetrievalChunk": "nbrag.types",
    "RetrievalQuery": "nbrag.types",
    "RetrievalResults": "nbrag.types",
    "StageDefinition": "nbrag.spec",
    "StageOptions": "nbrag.spec",
    "Workspace": "nbrag.workspace",
    "current_workspace": "nbrag.notebook.session",
    "parse_filter": "nbrag.stores.filters",
    "record": "nbrag.testing.records",
    "register_stage": "nbrag.spec",
    "run": "nbrag.background",
    "use_workspace": "nbrag.notebook.session",
}
_MODULES = frozenset({"errors", "models", "protocols", "spec", "stores", "testing", "types"})


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"nbrag.{name}")
    elif name == "__version__":
        from importlib.metadata import version

        value = version("nbrag")
    else:
        raise AttributeError(f"module 'nbrag' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; called by ``%load_ext nbrag``."""
    from nbrag.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and close the workspace; called by ``%unload_ext nbrag``."""
    from nbrag.notebook.extension import unload

    unload(shell)
