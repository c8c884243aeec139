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
    from nbrag.errors import (
        BudgetExceeded,
        ChatError,
        ChatUnavailable,
        CollectionNotFound,
        ConfigurationError,
        CorruptDocument,
        DatabaseFull,
        DatabaseLocked,
        DatabaseReadOnly,
        DocumentNotFound,
        EmbedderMismatch,
        EmptyDocument,
        FilterError,
        JudgementsError,
        MagicUsageError,
        MissingDependency,
        ModelError,
        ModelInvalid,
        ModelNotFound,
        NbragError,
        NewerFormat,
        NoTextLayer,
        PasswordRequired,
        PipelineNotFound,
        QueryError,
        RateLimited,
        ReaderError,
        ReplayMissing,
        ReplyInvalid,
        SourceNotFound,
        SpecificationError,
        StageError,
        StoreError,
        UnsupportedFormat,
    )
    from nbrag.evaluation import AnswerCases, AnswerReport, EvaluationReport, Judgements
    from nbrag.ingestion import IngestionPipeline, IngestReport
    from nbrag.maps import map_collection
    from nbrag.models.chat import Budget
    from nbrag.notebook.panels.registry import panel
    from nbrag.notebook.session import current_workspace, use_workspace
    from nbrag.orchestration import Answerer
    from nbrag.retrieval import RetrievalPipeline
    from nbrag.spec import PipelineSpec, StageDefinition, StageOptions, register_stage
    from nbrag.stores.filters import Field, parse_filter
    from nbrag.testing.records import record
    from nbrag.types import (
        Answer,
        Chunk,
        Document,
        MetadataKeys,
        RetrievalChunk,
        RetrievalQuery,
        RetrievalResults,
    )
    from nbrag.workspace import Workspace

__all__ = [
    "Answer",
    "AnswerCases",
    "AnswerReport",
    "Answerer",
    "Budget",
    "BudgetExceeded",
    "ChatError",
    "ChatUnavailable",
    "Chunk",
    "CollectionNotFound",
    "ConfigurationError",
    "CorruptDocument",
    "DatabaseFull",
    "DatabaseLocked",
    "DatabaseReadOnly",
    "Document",
    "DocumentNotFound",
    "EmbedderMismatch",
    "EmptyDocument",
    "EvaluationReport",
    "Field",
    "FilterError",
    "IngestReport",
    "IngestionPipeline",
    "Judgements",
    "JudgementsError",
    "MagicUsageError",
    "MetadataKeys",
    "MissingDependency",
    "ModelError",
    "ModelInvalid",
    "ModelNotFound",
    "NbragError",
    "NewerFormat",
    "NoTextLayer",
    "PasswordRequired",
    "PipelineNotFound",
    "PipelineSpec",
    "QueryError",
    "RateLimited",
    "ReaderError",
    "ReplayMissing",
    "ReplyInvalid",
    "RetrievalChunk",
    "RetrievalPipeline",
    "RetrievalQuery",
    "RetrievalResults",
    "SourceNotFound",
    "SpecificationError",
    "StageDefinition",
    "StageError",
    "StageOptions",
    "StoreError",
    "UnsupportedFormat",
    "Workspace",
    "__version__",
    "current_workspace",
    "errors",
    "map_collection",
    "models",
    "panel",
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
    "Answer": "nbrag.types",
    "AnswerCases": "nbrag.evaluation",
    "AnswerReport": "nbrag.evaluation",
    "Answerer": "nbrag.orchestration",
    "Budget": "nbrag.models.chat",
    "BudgetExceeded": "nbrag.errors",
    "ChatError": "nbrag.errors",
    "ChatUnavailable": "nbrag.errors",
    "Chunk": "nbrag.types",
    "CollectionNotFound": "nbrag.errors",
    "ConfigurationError": "nbrag.errors",
    "CorruptDocument": "nbrag.errors",
    "DatabaseFull": "nbrag.errors",
    "DatabaseLocked": "nbrag.errors",
    "DatabaseReadOnly": "nbrag.errors",
    "Document": "nbrag.types",
    "DocumentNotFound": "nbrag.errors",
    "EmbedderMismatch": "nbrag.errors",
    "EmptyDocument": "nbrag.errors",
    "EvaluationReport": "nbrag.evaluation",
    "Field": "nbrag.stores.filters",
    "FilterError": "nbrag.errors",
    "IngestReport": "nbrag.ingestion",
    "IngestionPipeline": "nbrag.ingestion",
    "Judgements": "nbrag.evaluation",
    "JudgementsError": "nbrag.errors",
    "MagicUsageError": "nbrag.errors",
    "MetadataKeys": "nbrag.types",
    "MissingDependency": "nbrag.errors",
    "ModelError": "nbrag.errors",
    "ModelInvalid": "nbrag.errors",
    "ModelNotFound": "nbrag.errors",
    "NbragError": "nbrag.errors",
    "NewerFormat": "nbrag.errors",
    "NoTextLayer": "nbrag.errors",
    "PasswordRequired": "nbrag.errors",
    "PipelineNotFound": "nbrag.errors",
    "PipelineSpec": "nbrag.spec",
    "QueryError": "nbrag.errors",
    "RateLimited": "nbrag.errors",
    "ReaderError": "nbrag.errors",
    "ReplayMissing": "nbrag.errors",
    "ReplyInvalid": "nbrag.errors",
    "RetrievalChunk": "nbrag.types",
    "RetrievalPipeline": "nbrag.retrieval",
    "RetrievalQuery": "nbrag.types",
    "RetrievalResults": "nbrag.types",
    "SourceNotFound": "nbrag.errors",
    "SpecificationError": "nbrag.errors",
    "StageDefinition": "nbrag.spec",
    "StageError": "nbrag.errors",
    "StageOptions": "nbrag.spec",
    "StoreError": "nbrag.errors",
    "UnsupportedFormat": "nbrag.errors",
    "Workspace": "nbrag.workspace",
    "current_workspace": "nbrag.notebook.session",
    "map_collection": "nbrag.maps",
    "panel": "nbrag.notebook.panels.registry",
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
