"""Chunkers: a document in, pieces out that fit the embedding model."""

from nbrag.ingestion.chunkers.fixed import FixedChunker
from nbrag.ingestion.chunkers.structure import StructureChunker

__all__ = ["FixedChunker", "StructureChunker"]
