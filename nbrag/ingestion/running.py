"""One run of an ingestion pipeline: its state and its steps."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nbrag.errors import EmptyDocument, NbragError, SourceNotFound, StageError
from nbrag.ingestion.preview import PreviewCounts
from nbrag.ingestion.problems import Problems
from nbrag.ingestion.report import DocumentOutcome, IngestionProgress, IngestReport
from nbrag.protocols import Collection, IngestionChunkProcessor, SourceItem
from nbrag.types import Chunk, Document, stable_hash

if TYPE_CHECKING:
    from nbrag.ingestion.embedding import VectorBatcher
    from nbrag.ingestion.pipeline import IngestionPipeline

__all__ = ["IngestionRun"]

#: Documents that may wait, read and cut, while vectors are computed.
_PREPARED_AHEAD = 16


@dataclass(slots=True)
class _Prepared:
    """A document that is read and cut, on its way to the embedder."""

    index: int
    document: Document
    chunks: list[Chunk]
    is_new: bool
    remarks: list[str] = field(default_factory=list)


class IngestionRun:
    """One run of a pipeline: its state and its steps.

    Parameters
    ----------
    pipeline
        Whose stages run.
    collection
        Where to write.
    text_column
        Where records keep their text.
    progress
        Called on the way.
    """

    def __init__(
        self,
        pipeline: IngestionPipeline,
        collection: Collection,
        text_column: str,
        progress: Callable[[IngestionProgress], None],
    ) -> None:
        from nbrag.ingestion.embedding import VectorBatcher

        self.pipeline = pipeline
        self.collection = collection
        self.text_column = text_column
        self.settings_hash = pipeline.settings_hash
        self.batcher: VectorBatcher = VectorBatcher(pipeline.embedder, collection.writer())
        self.outcomes: dict[int, DocumentOutcome] = {}
        self.uris: dict[str, int] = {}
        self.warnings: list[str] = []
        self.incomplete_sources = False
        self.emptied: dict[str, str] = {}
        self.notes: list[str] = []
        self.problems = Problems()
        self.only_counting = False
        self.total: int | None = None
        self._notify = progress
        self._prepared: dict[str, _Prepared] = {}
        self._at = ("reading", "")
        self._passed = Counter({"reading": 0, "cutting": 0})
        self._passed.update({each.name: 0 for each in pipeline.chunk_processors})
        self._written = 0

    def progress(self, stage: str, current: str = "") -> None:
        """Tell how far the run is."""
        self._at = (stage, current)
        embedded = self.batcher.embedded
        stages = {**self._passed, "embedding": embedded, "writing": self._written}
        self._notify(
            IngestionProgress(stage, len(self.outcomes), self.total, embedded, current, stages)
        )

    def settle(self, index: int, outcome: DocumentOutcome) -> None:
        """Note what became of a document."""
        self.outcomes[index] = outcome

    # Reading and cutting -----------------------------------------------------------------

    async def _items(self, sources: Any) -> AsyncIterator[tuple[int, SourceItem]]:
        from nbrag.ingestion.sources import expand_sources

        iterator: Iterator[SourceItem] = iter(expand_sources(sources, text_column=self.text_column))
        index = 0
        while True:
            item = await asyncio.to_thread(next, iterator, None)
            if item is None:
                self.total = index
                return
            yield index, item
            index += 1

    async def _prepare(self, sources: Any) -> AsyncIterator[_Prepared]:
        """Yield the documents that have to be written, read and cut, a few ahead."""
        queue: asyncio.Queue[_Prepared | BaseException | None] = asyncio.Queue(_PREPARED_AHEAD)

        async def produce() -> None:
            try:
                known = await self.collection.documents()
                async for index, item in self._items(sources):
                    prepared = await self._prepare_one(index, item, known)
                    if prepared is not None:
                        await queue.put(prepared)
                await queue.put(None)
            except Exception as error:  # noqa: BLE001 - raised again by the consumer
                await queue.put(error)

        task = asyncio.create_task(produce())
        try:
            while (got := await queue.get()) is not None:
                if isinstance(got, BaseException):
                    raise got
                yield got
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _prepare_one(
        self, index: int, item: SourceItem, known: dict[str, Any]
    ) -> _Prepared | None:
        self.progress("reading", item.uri)
        if item.uri in self.uris:
            reason = "the same document was given before in this run"
            self.settle(index, DocumentOutcome(item.uri, "duplicate", reason=reason))
            return None
        self.uris[item.uri] = index
        stored = known.get(item.uri)
        try:
            return await self._read_and_cut(index, item, stored)
        except EmptyDocument as error:
            if stored is None:
                self._fail(index, item.uri, error)
            else:
                self.emptied[stored.id] = item.uri
                if not self.only_counting:
                    # What the source no longer says must not be found any more.
                    await self.collection.delete_documents([stored.id])
                self.settle(
                    index,
                    DocumentOutcome(item.uri, "removed", reason=f"now empty: {error.message}"),
                )
        except NbragError as error:
            self.incomplete_sources |= isinstance(error, SourceNotFound)
            self._fail(index, item.uri, error, kept=stored is not None)
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            ArithmeticError,
            RuntimeError,
        ) as error:
            # A library that breaks on one file must not stop the others.
            self._fail(index, item.uri, error, kept=stored is not None)
        return None

    def _fail(self, index: int, uri: str, error: Exception, *, kept: bool = False) -> None:
        reason = error.message if isinstance(error, NbragError) else f"{error}"
        reason = reason.removeprefix(f"{uri} ")
        if isinstance(error, NbragError) and error.hint:
            reason += f" ({error.hint})"
        if kept:
            reason += " The version of before is kept."
        name = type(error).__name__
        self.settle(index, DocumentOutcome(uri, "failed", reason=reason or name, error=name))

    async def _read_and_cut(self, index: int, item: SourceItem, stored: Any) -> _Prepared | None:
        pipeline = self.pipeline
        if item.document is not None:
            document = item.document
            source_hash = document.source_hash or stable_hash(
                document.text, json.dumps(dict(document.metadata), sort_keys=True, default=str)
            )
        else:
            data: bytes = await asyncio.to_thread(item.load)
            source_hash = stable_hash(
                data.decode("latin-1"),
                json.dumps(dict(item.metadata), sort_keys=True, default=str),
            )
        if (
            stored is not None
            and stored.source_hash == source_hash
            and stored.settings_hash == self.settings_hash
        ):
            self.settle(index, DocumentOutcome(item.uri, "unchanged", stored.chunk_count))
            return None
        if item.document is None:
            document = await asyncio.to_thread(pipeline.reader, item, data)
        self._passed["reading"] += 1
        metadata = {**item.metadata, **document.metadata}
        warning = metadata.pop("reading_warning", None)
        document = replace(document, metadata=metadata, source_hash=source_hash)
        for processor in pipeline.document_processors:
            document = await processor.process(document)
        chunks = await asyncio.to_thread(pipeline.chunker.chunk, document)
        if not chunks:
            raise EmptyDocument(f"{item.uri} holds no text that could be indexed.")
        return _Prepared(index, document, chunks, stored is None, [str(warning)] if warning else [])

    async def preview(self, sources: Any) -> PreviewCounts:
        """Count what there is to do."""
        self.only_counting = True
        documents: dict[str, str] = {}
        kept: list[Chunk] = []
        looking = [each for each in self.pipeline.chunk_processors if _looks_ahead(each)]
        chunks = tokens = 0
        stream = await self._stages(sources)
        async with contextlib.aclosing(_as_generator(stream)) as found:
            async for chunk in found:
                prepared = self._prepared_for(chunk)
                documents[chunk.document_id] = prepared.document.uri
                chunks += 1
                tokens += chunk.token_count
                if looking:
                    kept.append(chunk)
        for processor in looking:
            await processor.preview(self.collection, kept, documents | self.emptied)
        outcomes = Counter(str(outcome.outcome) for outcome in self.outcomes.values())
        return PreviewCounts(len(documents), chunks, tokens, dict(outcomes))

    # Enriching, embedding, writing -------------------------------------------------------

    async def ingest(self, sources: Any) -> None:
        """Take all sources through the stages."""
        stream = await self._stages(sources)
        current: list[Chunk] = []
        async with contextlib.aclosing(_as_generator(stream)) as chunks:
            async for chunk in chunks:
                if current and chunk.document_id != current[0].document_id:
                    await self._embed(current)
                    current = []
                current.append(chunk)
        if current:
            await self._embed(current)
        await self._write(await self.batcher.flush())
        for prepared in self._prepared.values():
            reason = "a stage dropped all of its chunks"
            self.settle(
                prepared.index, DocumentOutcome(prepared.document.uri, "failed", reason=reason)
            )

    async def _stages(self, sources: Any) -> AsyncIterator[Chunk]:
        """Return the chunks as they leave the last stage."""
        stream = self._chunk_stream(sources)
        for processor in self.pipeline.chunk_processors:
            await processor.prepare(self.collection)
            stream = self._counted(processor.name, processor.process(stream))
        return stream

    async def _counted(self, name: str, stream: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Count what leaves a stage; one that asks a model may take long for each chunk."""
        async with contextlib.aclosing(_as_generator(stream)) as chunks:
            async for chunk in chunks:
                self._passed[name] += 1
                self.progress(*self._at)
                yield chunk

    async def _chunk_stream(self, sources: Any) -> AsyncIterator[Chunk]:
        async for prepared in self._prepare(sources):
            self._prepared[prepared.document.id] = prepared
            self._passed["cutting"] += len(prepared.chunks)
            for chunk in prepared.chunks:
                yield chunk

    async def _embed(self, chunks: list[Chunk]) -> None:
        prepared = self._prepared_for(chunks[0])
        self.progress("embedding", prepared.document.uri)
        await self._write(await self.batcher.add(prepared.document, chunks))

    def _prepared_for(self, chunk: Chunk) -> _Prepared:
        """Return the document that a chunk comes from."""
        prepared = self._prepared.get(chunk.document_id)
        if prepared is None:
            raise StageError(
                "chunks",
                f"a chunk processor gave a chunk of an unknown document {chunk.document_id}.",
                hint="derived chunks keep their parent's document_id",
            )
        return prepared

    async def _write(self, ready: Sequence[Any]) -> None:
        """Write the documents whose vectors are complete."""
        if not ready:
            return
        for processor in self.pipeline.chunk_processors:
            self.problems.note(processor.take_problems())
        for incomplete in (False, True):
            part = [entry for entry in ready if (entry.document.id in self.problems) is incomplete]
            if part:
                # Another hash than that of a complete document: the next run takes it up again.
                mark = "-incomplete" if incomplete else ""
                await self.batcher.write(part, settings_hash=self.settings_hash + mark)
        for entry in ready:
            prepared = self._prepared.pop(entry.document.id)
            remarks = [*prepared.remarks, *self.problems.of(entry.document.id)]
            outcome = DocumentOutcome(
                entry.document.uri,
                "added" if prepared.is_new else "changed",
                len(entry.chunks),
                entry.embedded,
                "; ".join(remarks),
            )
            self.settle(prepared.index, outcome)
        self._written += len(ready)
        self.progress("writing", ready[-1].document.uri)

    async def finalize(self) -> None:
        """Run the stages' corpus-level work."""
        for processor in self.pipeline.chunk_processors:
            self.progress("finalizing", processor.name)
            await processor.finalize(self.collection)
            self.problems.note_missing(processor.take_problems())
            self.notes += processor.take_notes()

    async def remove_missing(self) -> None:
        """Delete the documents that the sources no longer give."""
        if self.incomplete_sources:
            self.warnings.append(
                "nothing was removed: a source could not be found, so what it held is unknown"
            )
            return
        stored = await self.collection.documents()
        missing = [document for uri, document in stored.items() if uri not in self.uris]
        await self.collection.delete_documents([document.id for document in missing])
        for document in missing:
            self.settle(
                len(self.outcomes),
                DocumentOutcome(document.uri, "removed", reason="no longer in the sources"),
            )

    def report(self) -> IngestReport:
        """Return the outcomes in the order of the sources."""
        self.progress("done")
        rows = tuple(self.outcomes[index] for index in sorted(self.outcomes))
        warnings = (*self.warnings, *self.problems.summary())
        return IngestReport(self.collection.name, rows, warnings, tuple(self.notes))


def _looks_ahead(processor: IngestionChunkProcessor) -> bool:
    """Tell whether a stage has something to count beyond single chunks."""
    return type(processor).preview is not IngestionChunkProcessor.preview


async def _as_generator(stream: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk, None]:
    """Yield from any async iterator, and close the ones that can be closed."""
    try:
        async for chunk in stream:
            yield chunk
    finally:
        if inspect.isasyncgen(stream):
            await stream.aclose()
