"""The ingestion pipeline: sources in, searchable chunks out, one outcome per document.

    source -> reader -> document processors -> chunker -> chunk processors -> embed -> writer
           -> finalize

Documents are prepared ahead while vectors are computed. Vectors are computed in batches of a
token budget across documents, and each batch is committed before the next one begins, so that a
stop loses one batch at the most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nbrag.background import on_loop
from nbrag.errors import EmbedderMismatch
from nbrag.ingestion.preview import PreviewCounts
from nbrag.ingestion.report import IngestionProgress, IngestReport
from nbrag.ingestion.running import IngestionRun
from nbrag.protocols import (
    Chunker,
    Collection,
    Embedder,
    IngestionChunkProcessor,
    IngestionDocumentProcessor,
    SourceItem,
)
from nbrag.types import Document, EmbedderIdentity, stable_hash

if TYPE_CHECKING:
    from nbrag.spec.pipeline import PipelineSpec

__all__ = ["IngestionPipeline"]

#: Changes when the same sources and settings would give other chunks than before.
_FORMAT = "1"


class IngestionPipeline:
    """Reads sources, cuts, enriches and embeds them, and writes them to a collection.

    Parameters
    ----------
    embedder
        Computes the vectors; must be the collection's.
    chunker
        Cuts documents.
    document_processors, chunk_processors
        Own and built-in stages, in order.
    spec
        The specification that this was built from, for the views and the settings' hash.
    reader
        Turns a source item into a document; by default the registered readers.
    """

    def __init__(
        self,
        embedder: Embedder,
        chunker: Chunker,
        *,
        document_processors: Sequence[IngestionDocumentProcessor] = (),
        chunk_processors: Sequence[IngestionChunkProcessor] = (),
        spec: PipelineSpec | None = None,
        reader: Callable[[SourceItem, bytes], Document] | None = None,
    ) -> None:
        self.embedder = embedder
        self.chunker = chunker
        self.document_processors = tuple(document_processors)
        self.chunk_processors = tuple(chunk_processors)
        self.spec = spec
        self.reader = reader or _read

    @property
    def settings_hash(self) -> str:
        """Hash of all that decides which chunks and vectors a source gives."""
        stages: list[Any] = []
        processors = [
            *self.document_processors,
            *(each for each in self.chunk_processors if each.changes_chunks),
        ]
        without = {each.name for each in self.chunk_processors if not each.changes_chunks}
        if self.spec is not None:
            stages += [
                [
                    s.name,
                    s.options.model_dump(mode="json") if s.options else repr(type(s.processor)),
                ]
                for s in self.spec.stages
                if getattr(s.processor, "name", s.name) not in without
            ]
        identity = self.embedder.identity
        chunker = type(self.chunker)
        return stable_hash(
            _FORMAT,
            json.dumps(stages, sort_keys=True),
            f"{chunker.__module__}.{chunker.__qualname__}",
            json.dumps(
                [getattr(each, "settings", None) for each in (self.chunker, *processors)],
                sort_keys=True,
                default=str,
            ),
            *[type(p).__qualname__ for p in processors],
            f"{identity.name}@{identity.revision}",
        )

    async def run(
        self,
        sources: Any,
        collection: Collection,
        *,
        remove_missing: bool = False,
        text_column: str = "text",
        progress: Callable[[IngestionProgress], None] | None = None,
    ) -> IngestReport:
        """Ingest the sources.

        Documents whose bytes and settings are those of before are skipped before anything is
        read further or embedded. A changed document replaces its old version in one transaction;
        until then the old one is found. A document that fails is a row in the report.

        Parameters
        ----------
        sources
            One or several files, folders, globs, URLs or records; see
            :func:`nbrag.ingestion.sources.expand_sources`.
        collection
            Where to write.
        remove_missing
            Whether documents that the sources no longer give are deleted at the end.
        text_column
            Where records keep their text.
        progress
            Called on the way.

        Raises
        ------
        EmbedderMismatch
            When the collection's vectors come from another embedder.
        """
        return await on_loop(
            self._run(
                sources, collection, remove_missing, text_column, progress or (lambda _: None)
            )
        )

    async def preview(
        self, sources: Any, collection: Collection, *, text_column: str = "text"
    ) -> PreviewCounts:
        """Read and cut the sources and run the stages, but embed and write nothing.

        What stages ask a chat model is up to the client that they were built with: see
        :class:`nbrag.models.chat.PreviewChatClient`.

        Parameters
        ----------
        sources, text_column
            As for :meth:`run`.
        collection
            What is there already; it is only looked at.
        """
        return await on_loop(
            IngestionRun(self, collection, text_column, lambda _: None).preview(sources)
        )

    async def _run(
        self,
        sources: Any,
        collection: Collection,
        remove_missing: bool,  # noqa: FBT001 - private
        text_column: str,
        progress: Callable[[IngestionProgress], None],
    ) -> IngestReport:
        self._refuse_mixing(collection.name, collection.identity)
        run = IngestionRun(self, collection, text_column, progress)
        await run.ingest(sources)
        if remove_missing:
            # First, so that corpus-level work sees only what stays.
            await run.remove_missing()
        await run.finalize()
        return run.report()

    def _refuse_mixing(self, name: str, stored: EmbedderIdentity) -> None:
        """Refuse a collection whose vectors can't stand beside this pipeline's."""
        own = self.embedder.identity
        if stored == own:
            return
        if stored.searched_with == own.searched_with:
            made = "with" if stored == stored.as_late else "without"
            raise EmbedderMismatch(
                f"collection '{name}' was made {made} late chunking, and its vectors must not be "
                "mixed with others.",
                hint=f"ingest {made} 'chunk late=true', or into a new collection",
            )
        raise EmbedderMismatch(
            f"collection '{name}' was made with the embedder {stored.name}, not with {own.name}.",
            hint="use that embedder, or ingest into a new collection",
        )


def _read(item: SourceItem, data: bytes) -> Document:
    """Read a source's bytes with the reader that fits."""
    from nbrag.ingestion.readers import reader_for

    reader = reader_for(item.name, item.media_type, data)
    return reader.read(data, uri=item.uri, name=item.name)
