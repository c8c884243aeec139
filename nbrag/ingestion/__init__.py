"""Documents in: readers, chunkers, processors, and the pipeline that runs them."""

from nbrag.ingestion.builder import IngestionPipelineBuilder
from nbrag.ingestion.functions import FunctionChunkProcessor, FunctionDocumentProcessor
from nbrag.ingestion.pipeline import IngestionPipeline
from nbrag.ingestion.preview import IngestPreview
from nbrag.ingestion.report import DocumentOutcome, IngestionProgress, IngestReport

__all__ = [
    "DocumentOutcome",
    "FunctionChunkProcessor",
    "FunctionDocumentProcessor",
    "IngestPreview",
    "IngestReport",
    "IngestionPipeline",
    "IngestionPipelineBuilder",
    "IngestionProgress",
]
