"""The fluent builder of ingestion pipelines."""

from __future__ import annotations

from typing import Any, Self

from nbrag.ingestion.functions import as_processor
from nbrag.ingestion.pipeline import IngestionPipeline
from nbrag.ingestion.processors.chunk import ChunkOptions, build_chunker
from nbrag.protocols import Chunker, Embedder, IngestionDocumentProcessor
from nbrag.spec import BuildContext, PipelineSpec, SpecBuilder, stage_definition

__all__ = ["IngestionPipelineBuilder"]


class IngestionPipelineBuilder(SpecBuilder):
    """Builds an :class:`~nbrag.ingestion.pipeline.IngestionPipeline` stage by stage.

    Parameters
    ----------
    spec
        What has been built so far.
    context
        Where stages find the models.
    """

    def __init__(self, spec: PipelineSpec, context: BuildContext) -> None:
        super().__init__(spec)
        self._context = context

    def _with_spec(self, spec: PipelineSpec) -> Self:
        return type(self)(spec, self._context)

    def use(self, processor: Any) -> Self:
        """Add an own processor: an object, or a function annotated with Document or Chunk."""
        built = as_processor(processor)
        role = "document" if isinstance(built, IngestionDocumentProcessor) else "chunk"
        return self._with_spec(self._spec.with_processor(built, role))

    def use_own_chunker(self, chunker: Chunker) -> Self:
        """Cut documents with an own chunker."""
        return self._with_spec(self._spec.with_processor(chunker, "chunker"))

    def build(self) -> IngestionPipeline:
        """Return the pipeline."""
        by_role: dict[str, list[Any]] = {"document": [], "chunker": [], "chunk": []}
        for stage in self._spec.stages:
            if stage.options is None:
                by_role[stage.role].append(stage.processor)
            else:
                definition = stage_definition("ingestion", stage.name)
                by_role[definition.role].append(definition.build(stage.options, self._context))
        own = by_role["chunker"]
        chunker = own[-1] if own else build_chunker(ChunkOptions(), self._context)
        return IngestionPipeline(
            self._embedder(),
            chunker,
            document_processors=by_role["document"],
            chunk_processors=by_role["chunk"],
            spec=self._spec,
        )

    def _embedder(self) -> Embedder:
        """Return the embedder, for late chunking where the stage ``chunk`` asks for it."""
        embedder: Embedder = self._context.embedder()
        options = [stage.options for stage in self._spec.stages]
        if any(isinstance(each, ChunkOptions) and each.late for each in options):
            from nbrag.models.embedding import LateEmbedder

            return LateEmbedder(embedder)
        return embedder
