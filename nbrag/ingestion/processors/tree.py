"""The stage ``tree``: summaries above the passages of a collection, in two forms."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from nbrag.errors import ConfigurationError
from nbrag.ingestion.trees.building import TreeBuild
from nbrag.ingestion.trees.clustering import require_clustering
from nbrag.ingestion.trees.nodes import Passage
from nbrag.ingestion.trees.options import TreeOptions
from nbrag.ingestion.trees.reading import read_passages, read_summaries
from nbrag.ingestion.trees.summaries import STAGE, Lengths
from nbrag.protocols import (
    ChatClient,
    Collection,
    Embedder,
    IngestionChunkProcessor,
    StageProblem,
)
from nbrag.spec import StageDefinition, register_stage
from nbrag.tracing import stage_span
from nbrag.types import Chunk

__all__ = ["TreeIndexProcessor"]

_log = logging.getLogger("nbrag.ingestion")


class TreeIndexProcessor(IngestionChunkProcessor):
    """Puts a tree of summaries above the passages of a collection.

    ``form=outline``: a summary of each document and one of the collection; what is over
    ``group_tokens`` is summarised in groups first.

    ``form=raptor``: recursive abstractive processing for tree-organised retrieval (Sarthi et
    al., 2024; chunks of 100 tokens, summaries of 131 on average, 6.7 children each; clusters of
    at most 3,500 tokens). Passages are clustered across documents, see
    :func:`nbrag.ingestion.trees.clustering.soft_clusters`, each cluster is summarised, the
    summaries are clustered, and so on: up to 11 nodes (``dimensions`` and one) that fit into one
    prompt get one summary, the root. Needs the extra ``nbrag[tree]``.

    Summaries are rows of their own, of the kinds ``branch_summary`` and ``root_summary``, with
    their ``level``. They carry the fields that all passages beneath them share, so that a filter
    finds a summary only when it holds for all that it sums up. Their passages are told by
    :meth:`nbrag.protocols.Collection.tree`.

    The tree is made after all documents are stored, and written at once. Summaries whose
    children are the same are kept without a call; an edit costs the summaries of what changed
    and those above. With ``form=raptor`` clusters stay where they are: new passages go to the
    nearest one, and only when more than ``recluster`` of the passages have come or gone since,
    or options changed, all clusters are formed anew. A summary for which the model gives no
    usable answer stays missing; each run asks for what is missing, and makes those above it
    again.

    Parameters
    ----------
    chat
        The model that writes the summaries.
    embedder
        Counts tokens, and gives the summaries' vectors.
    options
        The form of the tree, and its measures.

    Raises
    ------
    ConfigurationError
        When there is no chat client or no embedder.
    MissingDependency
        When ``form=raptor`` and scikit-learn is not installed.
    """

    name = STAGE
    changes_chunks = False

    def __init__(
        self, chat: ChatClient, embedder: Embedder, options: TreeOptions | None = None
    ) -> None:
        if not isinstance(chat, ChatClient):
            raise ConfigurationError(
                f"stage '{self.name}' needs a chat client, not {chat!r}.",
                hint="give an object with `model` and `complete`",
            )
        if not isinstance(embedder, Embedder):
            raise ConfigurationError(
                f"stage '{self.name}' needs an embedder, not {embedder!r}.",
                hint="give the embedder of the collection",
            )
        self.chat = chat
        self.embedder = embedder
        self.options = options or TreeOptions()
        if self.options.form == "raptor":
            require_clustering()
        self.lengths = Lengths.within(self.options.summary_tokens, embedder.max_tokens)
        self._problems: list[StageProblem] = []
        self._notes: list[str] = []

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks as they are: summaries come when all of them are stored."""
        async for chunk in chunks:
            yield chunk

    def take_problems(self) -> list[StageProblem]:
        """Return the summaries that could not be made in the last run."""
        problems, self._problems = self._problems, []
        return problems

    def take_notes(self) -> list[str]:
        """Return what the last run made of the tree, in one line."""
        notes, self._notes = self._notes, []
        return notes

    async def finalize(self, collection: Collection) -> None:
        """Make what is missing or no longer true of the tree, and write it.

        Raises
        ------
        ModelError
            When the person has to mend something, such as a wrong key; answers that were given
            are kept by the chat client's cache.
        """
        if self.lengths.aimed < self.options.summary_tokens:
            _log.warning(
                "%s: stage 'tree' asks for summaries of %d tokens instead of %d, because the "
                "embedding model takes %d at most.",
                collection.name,
                self.lengths.aimed,
                self.options.summary_tokens,
                self.embedder.max_tokens,
            )
        with stage_span(f"nbrag.stage {self.name}", {"nbrag.stage": self.name}) as outcome:
            build = await self._build(collection, await read_passages(collection))
            await build.make()
            changed = await build.write()
            outcome["nbrag.summaries"] = build.maker.made
            if build.maker.problems:
                outcome["error.type"] = "ChatError"
        self._problems += build.maker.problems
        self._notes.append(build.note(changed=changed))

    async def preview(
        self, collection: Collection, chunks: Sequence[Chunk], documents: Mapping[str, str]
    ) -> None:
        """Ask for what is missing in a client that only counts; of clusters, an estimate."""
        passages = await read_passages(collection, chunks, documents)
        name = self.name if self.options.form == "outline" else f"{self.name} (estimate)"
        with stage_span(f"nbrag.stage {self.name}", {"nbrag.stage": name}):
            build = await self._build(
                collection, passages, new={chunk.id: chunk for chunk in chunks}
            )
            await build.make()

    async def _build(
        self,
        collection: Collection,
        passages: Sequence[Passage],
        new: Mapping[str, Chunk] | None = None,
    ) -> TreeBuild:
        """Return what makes the tree; it only counts when chunks are new that are not stored."""
        return TreeBuild(
            self.chat,
            self.embedder,
            self.options,
            self.lengths,
            collection=collection,
            passages=passages,
            links=await collection.tree(),
            stored=await read_summaries(collection),
            new=new,
        )


register_stage(
    StageDefinition(
        name="tree",
        kind="ingestion",
        role="chunk",
        options=TreeOptions,
        build=lambda options, context: TreeIndexProcessor(
            context.chat(), context.embedder(), options
        ),
        method="use_tree_index",
        summary="Summaries above passages: by documents, or by clusters (RAPTOR).",
        single=True,
    )
)
