"""One search through a pipeline that need not be kept, on the background loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nbrag.errors import CollectionNotFound
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.spec import PipelineSpec
from nbrag.types import RetrievalResults

if TYPE_CHECKING:
    from nbrag.protocols import Collection
    from nbrag.retrieval import RetrievalPipeline
    from nbrag.workspace import Workspace

__all__ = ["search_with"]


async def search_with(
    workspace: Workspace,
    spec: PipelineSpec,
    question: str,
    *,
    collection: str | None = None,
    top_k: int = 5,
    where: Any = None,
) -> RetrievalResults:
    """Return what a question finds through a pipeline; the same as ``Workspace.search``.

    Parameters
    ----------
    workspace
        Where to search.
    spec
        The pipeline.
    question
        The question.
    collection
        Which collection; see :meth:`nbrag.Workspace.choose_collection`.
    top_k
        Most results.
    where
        A filter expression.

    Raises
    ------
    NbragError
        As :meth:`nbrag.Workspace.search`; and when the collection is empty.
    """

    def prepared() -> tuple[RetrievalPipeline, Collection]:
        """Return the pipeline and where it searches."""
        # Opening a collection reads the file, and building may load a model: not on the loop.
        target = workspace.choose_collection(collection, spec)
        return RetrievalPipelineBuilder(spec, workspace.context).build(), target

    pipeline, target = await asyncio.to_thread(prepared)
    if (await target.count())[1] == 0:
        raise CollectionNotFound(
            f"collection '{target.name}' is empty.",
            hint=f"ingest documents first, e.g. %rag_ingest {target.name} --from FOLDER",
        )
    return await pipeline.process(target, question, top_k=top_k, where=where)
