"""The stage ``chunk``: how documents are cut."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nbrag.protocols import Chunker
from nbrag.spec import BuildContext, StageDefinition, StageOptions, register_stage

__all__ = ["ChunkOptions", "build_chunker"]


class ChunkOptions(StageOptions):
    """How documents are cut."""

    strategy: Literal["structure", "fixed"] = Field(
        default="structure",
        description="structure: by headings, paragraphs, sentences; fixed: windows of tokens",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=16,
        le=32_768,
        description="most tokens of a chunk with its context, none: the embedding model's limit",
    )
    overlap_tokens: int = Field(
        default=0,
        ge=0,
        le=4_096,
        description="tokens repeated from the chunk before, within a section",
    )
    late: bool = Field(
        default=False,
        description="vectors by late chunking: each chunk embedded within its whole document",
    )


def build_chunker(options: ChunkOptions, context: BuildContext) -> Chunker:
    """Return the chunker that the options describe, counting by the embedder's own tokenizer."""
    from nbrag.ingestion.chunkers import FixedChunker, StructureChunker

    embedder = context.embedder()
    limit = min(options.max_tokens or embedder.max_tokens, embedder.max_tokens)
    if options.strategy == "fixed":
        return FixedChunker(embedder, max_tokens=limit, overlap_tokens=options.overlap_tokens)
    return StructureChunker(embedder, max_tokens=limit, overlap_tokens=options.overlap_tokens)


register_stage(
    StageDefinition(
        name="chunk",
        kind="ingestion",
        role="chunker",
        options=ChunkOptions,
        build=build_chunker,
        method="use_chunker",
        summary="How documents are cut into chunks.",
        single=True,
    )
)
