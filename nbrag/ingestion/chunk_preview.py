"""Where documents would be cut: the chunks of the first few, before anything is written."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nbrag.errors import NbragError
from nbrag.ingestion.preview import given_sources
from nbrag.rendering import Rendering, clip, plain
from nbrag.types import Chunk

if TYPE_CHECKING:
    from nbrag.ingestion.pipeline import IngestionPipeline
    from nbrag.protocols import SourceItem
    from nbrag.spec import BuildContext, PipelineSpec

__all__ = ["ChunkedDocument", "ChunkingPreview", "preview_chunks"]

#: Chunks of one document, and characters of one chunk, that are shown.
_SHOWN_CHUNKS = 20
_SHOWN_CHARACTERS = 1_500
_FRAME = "border:1px solid var(--jp-border-color2,#bbb);border-left-width:5px;margin:0 0 0.35em 0;"
_HEAD = "font-size:0.88em;opacity:0.8;padding:0.1em 0.5em;border-bottom:1px dashed #8888"
_BODY = "white-space:pre-wrap;padding:0.2em 0.5em;overflow-wrap:anywhere"


@dataclass(frozen=True, slots=True)
class ChunkedDocument:
    """One document and its chunks.

    Attributes
    ----------
    uri, title
        The document.
    text
        Its whole text.
    chunks
        What it is cut into, in order, as the chunker gives it.
    error
        Why it could not be read; empty when it was.
    """

    uri: str
    title: str = ""
    text: str = ""
    chunks: tuple[Chunk, ...] = ()
    error: str = ""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of each chunk, its context and the special tokens included."""
        return tuple(chunk.token_count for chunk in self.chunks)

    @property
    def summary(self) -> str:
        """One line."""
        if self.error:
            return f"{self.uri}: {self.error}"
        if not self.chunks:
            return f"{self.uri}: no text"
        sizes = self.tokens
        pieces = "1 chunk" if len(sizes) == 1 else f"{len(sizes)} chunks"
        return (
            f"{self.uri}: {pieces} of {min(sizes)} to {max(sizes)} tokens, {sum(sizes)} in all; "
            f"{len(self.text):,} characters"
        )


@dataclass(frozen=True, slots=True)
class ChunkingPreview:
    """The first documents of an ingestion, cut.

    Attributes
    ----------
    documents
        One per document, those that failed among them.
    limit
        The most tokens that the embedder takes.
    """

    documents: tuple[ChunkedDocument, ...]
    limit: int

    def __repr__(self) -> str:
        """Return one line per document."""
        return "\n".join(document.summary for document in self.documents) or "no documents"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Rendering:  # noqa: ARG002
        """Return the texts with visible borders between chunks."""
        lines: list[str] = []
        for document in self.documents:
            lines.append(plain(document.summary))
            for number, chunk in enumerate(document.chunks[:_SHOWN_CHUNKS], start=1):
                lines.append(f"  --- {_label(number, chunk)} ---")
                lines.append(f"  {clip(plain(chunk.content), 200)}")
        parts = "".join(self._document_html(document) for document in self.documents)
        return {
            "text/plain": "\n".join(lines) or "no documents",
            "text/html": parts or "<p>no documents</p>",
        }

    def _document_html(self, document: ChunkedDocument) -> str:
        words = html.escape(plain(document.summary), quote=True)
        if document.error:
            return f'<div role="note" style="margin:0.4em 0">{words}</div>'
        pieces = "".join(_chunk_html(number, *each) for number, each in _numbered(document))
        more = len(document.chunks) - _SHOWN_CHUNKS
        rest = f"<p>{more} more chunks are not shown.</p>" if more > 0 else ""
        opened = " open" if document is self.documents[0] else ""
        return (
            f'<details{opened} style="margin:0.4em 0"><summary>{words}</summary>'
            f'<ol style="list-style:none;padding:0;margin:0.4em 0">{pieces}</ol>{rest}</details>'
        )


def _numbered(document: ChunkedDocument) -> Iterator[tuple[int, tuple[Chunk, int]]]:
    """Yield the shown chunks with how many characters each repeats of the one before."""
    end = 0
    for number, chunk in enumerate(document.chunks[:_SHOWN_CHUNKS], start=1):
        repeated = 0
        if chunk.span is not None:
            repeated = min(max(end - chunk.span.start, 0), len(chunk.content))
            end = max(end, chunk.span.end)
        yield number, (chunk, repeated)


def _label(number: int, chunk: Chunk) -> str:
    """Return what stands above a chunk."""
    place = " > ".join(chunk.heading_path)
    return plain(f"chunk {number}: {chunk.token_count} tokens{f', {place}' if place else ''}")


def _chunk_html(number: int, chunk: Chunk, repeated: int) -> str:
    """Return a chunk in its frame; what it repeats of the one before is underlined, and said."""
    label = _label(number, chunk)
    if repeated:
        label += f"; its first {repeated} characters repeat the chunk before"
    text = plain(chunk.content[:_SHOWN_CHARACTERS])
    if len(chunk.content) > _SHOWN_CHARACTERS:
        text += f"… ({len(chunk.content) - _SHOWN_CHARACTERS:,} more characters)"
    again, own = (html.escape(part, quote=True) for part in (text[:repeated], text[repeated:]))
    if again:
        again = f'<u style="opacity:0.7">{again}</u>'
    shade = ("#0072b2", "#c77700")[number % 2]
    return (
        f'<li style="{_FRAME}border-left-color:{shade}"><div style="{_HEAD}">'
        f'{html.escape(label, quote=True)}</div><div dir="auto" style="{_BODY}">{again}{own}</div>'
        "</li>"
    )


async def preview_chunks(
    spec: PipelineSpec,
    sources: Any,
    context: BuildContext,
    *,
    documents: int = 3,
    text_column: str = "text",
) -> ChunkingPreview:
    """Read the first documents and cut them; nothing is embedded, asked or written.

    Parameters
    ----------
    spec
        The stages; those that work on chunks are left out.
    sources, text_column
        As for :meth:`nbrag.Workspace.ingest`; None takes the specification's own.
    context
        Where stages find their models.
    documents
        How many.

    Raises
    ------
    NbragError
        When no sources are given, or a stage can't be built. A document that can't be read is a
        row with its error.
    """
    from nbrag.ingestion.builder import IngestionPipelineBuilder
    from nbrag.ingestion.sources import expand_sources
    from nbrag.models.chat import PreviewChatClient

    given = given_sources(spec, sources)

    def prepared() -> tuple[IngestionPipeline, list[SourceItem]]:
        """Build and look into folders in a thread: both may take long."""
        counting = replace(context, chat=lambda: PreviewChatClient(context.chat()))
        built = IngestionPipelineBuilder(_cutting_only(spec), counting).build()
        items = expand_sources(given, text_column=text_column)
        return built, [item for item, _ in zip(items, range(documents), strict=False)]

    pipeline, items = await asyncio.to_thread(prepared)
    found = [await _cut(pipeline, item) for item in items]
    return ChunkingPreview(tuple(found), pipeline.embedder.max_tokens)


def _cutting_only(spec: PipelineSpec) -> PipelineSpec:
    """Return the stages up to the chunker."""
    from nbrag.spec import stage_definition

    def role(stage: Any) -> str:
        if stage.options is None:
            return str(stage.role)
        return str(stage_definition("ingestion", stage.name).role)

    return replace(spec, stages=tuple(s for s in spec.stages if role(s) != "chunk"))


async def _cut(pipeline: IngestionPipeline, item: SourceItem) -> ChunkedDocument:
    """Return one document's chunks, or its error."""
    try:
        document = item.document
        if document is None:
            data: bytes = await asyncio.to_thread(item.load)
            document = await asyncio.to_thread(pipeline.reader, item, data)
        for processor in pipeline.document_processors:
            document = await processor.process(document)
        chunks = await asyncio.to_thread(pipeline.chunker.chunk, document)
    except NbragError as error:
        hint = f" ({error.hint})" if error.hint else ""
        reason = error.message.removeprefix(f"{item.uri} ")
        return ChunkedDocument(item.uri, error=f"{type(error).__name__}: {reason}{hint}")
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError) as error:
        # A library that breaks on one file must not hide the others.
        return ChunkedDocument(item.uri, error=f"{type(error).__name__}: {error}")
    return ChunkedDocument(item.uri, document.title, document.text, tuple(chunks))
