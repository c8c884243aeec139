"""One making of a tree: what is kept, what is asked for, what is written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence

from nbrag.ingestion.trees.dividing import Divider, OrderDivider, VectorDivider
from nbrag.ingestion.trees.nodes import (
    Passage,
    Shape,
    TreeNode,
    links_of,
    read_shape,
    with_counts,
)
from nbrag.ingestion.trees.options import TreeOptions
from nbrag.ingestion.trees.outline import outline_nodes
from nbrag.ingestion.trees.raptor import RaptorTree
from nbrag.ingestion.trees.reading import PassageTexts, own_fields
from nbrag.ingestion.trees.summaries import STAGE, Lengths, SummaryMaker, WrittenSummary
from nbrag.ingestion.trees.vectors import NodeVectors, embedded
from nbrag.models.chat.passages import clip_words
from nbrag.protocols import ChatClient, Collection, Embedder
from nbrag.types import (
    Chunk,
    ChunkKind,
    MetadataKeys,
    MetadataValue,
    RetrievalChunk,
    TreeLink,
    stable_hash,
)

__all__ = ["TreeBuild"]

#: Changes when the same passages and settings would give another tree than before.
_FORMAT = "1"
#: Most words of a document's title before its summary.
_TITLE_WORDS = 40


class TreeBuild:
    """Makes a collection's tree from its passages, as far as it is not there.

    Parameters
    ----------
    chat, embedder, options, lengths
        As the stage has them.
    collection
        Whose tree it is.
    passages
        All original chunks, in order.
    links, stored
        The tree that is stored, and the summaries that are not missing in it, by id.
    new
        Chunks that are not stored, by id, when work is only counted; None when it is done.
    """

    def __init__(
        self,
        chat: ChatClient,
        embedder: Embedder,
        options: TreeOptions,
        lengths: Lengths,
        *,
        collection: Collection,
        passages: Sequence[Passage],
        links: Sequence[TreeLink],
        stored: Mapping[str, RetrievalChunk],
        new: Mapping[str, Chunk] | None = None,
    ) -> None:
        self._embedder = embedder
        self._options = options
        self._collection = collection
        self._passages = passages
        self._links = links
        self._stored = stored
        self._counting = new is not None
        self._nodes: list[TreeNode] = []
        self._remark = ""
        self.maker = SummaryMaker(
            chat,
            embedder,
            PassageTexts(collection, new),
            lengths=lengths,
            limit=options.group_tokens,
            temperature=options.temperature,
            stored=stored.values(),
            stand_in=" ".join(["word"] * lengths.words) if self._counting else None,
        )
        shaping = options.model_dump(mode="json", exclude={"recluster", "temperature"})
        self._settings = stable_hash(_FORMAT, json.dumps(shaping, sort_keys=True), str(lengths))

    async def make(self) -> None:
        """Plan the tree, and make the summaries that are not there, level by level."""
        if not self._passages:
            return
        if self._options.form == "raptor":
            await self._make_raptor()
            return
        self._nodes = outline_nodes(
            self._passages,
            limit=self._options.group_tokens,
            longest=self.maker.lengths.longest,
            settings=self._settings,
        )
        by_level = sorted(self._nodes, key=lambda node: node.level)
        for _, level in itertools.groupby(by_level, lambda node: node.level):
            await self.maker.make(list(level))

    async def _make_raptor(self) -> None:
        options = self._options
        shape, changed = self._present_shape()
        tree = RaptorTree(
            self._divider(),
            self.maker,
            limit=options.group_tokens,
            few=options.few,
            levels=options.levels,
            settings=self._settings,
        )
        nodes = await tree.build(self._passages, shape)
        # A top node is the same summary under its final id.
        self._nodes = with_counts(nodes, len(self._passages), changed)
        for plain, final in zip(nodes, self._nodes, strict=True):
            if plain.id in self.maker.written:
                self.maker.written[final.id] = self.maker.written[plain.id]

    def _divider(self) -> Divider:
        options = self._options
        if self._counting:
            order = {passage.id: place for place, passage in enumerate(self._passages)}
            return OrderDivider(options.group_tokens, order)
        return VectorDivider(
            NodeVectors(self._embedder, self._collection, self._text, self._beneath),
            limit=options.group_tokens,
            threshold=options.threshold,
            dimensions=options.dimensions,
            most=options.clusters,
        )

    def _text(self, node: str) -> str | None:
        summary = self.maker.written.get(node)
        return None if summary is None else summary.text

    def _beneath(self, node: str) -> Sequence[str]:
        missing = self.maker.missing.get(node)
        return () if missing is None else missing.children

    def _present_shape(self) -> tuple[Shape | None, int]:
        """Return the shape to build on, and how many passages changed since it was formed."""
        shape = read_shape(self._links, self._settings)
        if shape is None:
            self._remark = "clusters formed anew"
            return None, 0
        present = {passage.id for passage in self._passages}
        staying = len(present & shape.passages)
        new = len(present) - staying
        # An edit takes a passage away and brings another: one change.
        changed = shape.changed + max(new, shape.total - staying)
        if changed > self._options.recluster * len(present):
            self._remark = f"clusters formed anew after {changed} changed passages"
            return None, 0
        if new:
            self._remark = f"{new} new {'passage' if new == 1 else 'passages'} put into clusters"
        return shape, changed

    # Writing -----------------------------------------------------------------------------

    async def write(self) -> bool:
        """Write the tree where it is not the stored one; return whether it was another."""
        rows = self._rows()
        links = links_of(self._nodes)
        if set(links) == set(self._links) and self._all_stored(rows):
            return False
        vectors = await embedded(
            self._embedder, self._collection, [row.embedding_text for row in rows]
        )
        import numpy as np

        matrix = np.empty((len(rows), self._collection.identity.dimension), np.float32)
        for place, row in enumerate(rows):
            matrix[place] = vectors[row.embedding_text]
        await self._collection.writer().write_tree(rows, matrix, links)
        return True

    def _rows(self) -> list[Chunk]:
        """Return the rows of all summaries that there are."""
        beneath = {child for node in self._nodes for child in node.children}
        passages = {passage.id: passage for passage in self._passages}
        shared: dict[str, dict[str, MetadataValue]] = {}
        rows = []
        for node in self._nodes:
            shared[node.id] = _shared(
                shared[child] if child in shared else passages[child].metadata
                for child in node.children
            )
            summary = self.maker.written.get(node.id)
            if summary is not None:
                kind = ChunkKind.BRANCH_SUMMARY if node.id in beneath else ChunkKind.ROOT_SUMMARY
                title = next(
                    (passages[child].title for child in node.children if child in passages), ""
                )
                metadata = {**shared[node.id], MetadataKeys.LEVEL: node.level, **summary.lineage}
                rows.append(self._row(node, summary, kind, metadata, title))
        return rows

    def _row(
        self,
        node: TreeNode,
        summary: WrittenSummary,
        kind: ChunkKind,
        metadata: Mapping[str, MetadataValue],
        title: str,
    ) -> Chunk:
        """Return a summary's row; a document's has its title before it, where that fits."""
        context = clip_words(title, _TITLE_WORDS) if node.document_id else ""
        tokens = summary.tokens
        if context:
            [tokens] = self._embedder.count_tokens([f"{context}\n{summary.text}"])
            if tokens > self._embedder.max_tokens:
                context = ""
                [tokens] = self._embedder.count_tokens([summary.text])
        return Chunk(
            node.id,
            node.document_id,
            summary.text,
            context=context,
            kind=kind,
            token_count=tokens,
            metadata=metadata,
        )

    def _all_stored(self, rows: Sequence[Chunk]) -> bool:
        return len(rows) == len(self._stored) and all(
            row.id in self._stored and _is_stored(row, self._stored[row.id]) for row in rows
        )

    def note(self, *, changed: bool) -> str:
        """Return what became of the tree, in one line."""
        maker = self.maker
        parts = [f"{_summaries(maker.made)} made", f"{maker.kept} kept"]
        if maker.problems:
            parts.append(f"{len(maker.problems)} missing")
        if self._remark:
            parts.append(self._remark)
        height = max((node.level for node in self._nodes), default=0)
        parts.append(f"{height} {'level' if height == 1 else 'levels'}")
        return f"{STAGE}: {', '.join(parts)}" + ("" if changed else "; nothing had to be written")


def _shared(fields: Iterable[Mapping[str, MetadataValue]]) -> dict[str, MetadataValue]:
    """Return the fields that all have, with the same value."""
    found: dict[str, MetadataValue] | None = None
    for own in fields:
        if found is None:
            found = dict(own)
        else:
            found = {
                name: value for name, value in found.items() if name in own and own[name] == value
            }
    return found or {}


def _is_stored(row: Chunk, stored: RetrievalChunk) -> bool:
    """Tell whether a row is stored as it is."""
    record = stored.record
    fields = {name: value for name, value in row.metadata.items() if value is not None}
    return (
        (row.content, row.document_id) == (stored.content, stored.document_id)
        and str(row.kind) == record.get("kind")
        and row.context == record.get("context")
        and all(record.get(name) == value for name, value in fields.items())
        and own_fields(stored).keys() <= fields.keys()
    )


def _summaries(count: int) -> str:
    return "1 summary" if count == 1 else f"{count} summaries"
