"""Computes the vectors of an ingestion in batches of a token budget, across documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nbrag.models.embedding import LateEmbedder
from nbrag.protocols import Embedder, WriteSession
from nbrag.types import Chunk, Document, stable_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BATCH_TOKENS", "ReadyDocument", "VectorBatcher"]

#: Tokens that are embedded between two commits: a few seconds of work on two cores.
BATCH_TOKENS = 16_384


@dataclass(slots=True, eq=False)
class ReadyDocument:
    """A document with its chunks, and their vectors as far as they are known.

    Attributes
    ----------
    document, chunks
        What is to be written.
    hashes
        Hash of each chunk's embedding text; in late chunking each chunk's id, because there the
        same text has another vector at another place.
    vectors
        float32 vectors by hash.
    embedded
        How many of them were computed in this run.
    """

    document: Document
    chunks: Sequence[Chunk]
    hashes: list[str]
    vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    embedded: int = 0

    @property
    def complete(self) -> bool:
        """Whether every chunk has its vector."""
        return all(text_hash in self.vectors for text_hash in self.hashes)


class VectorBatcher:
    """Collects chunks up to a token budget, embeds what is new, and hands on whole documents.

    Vectors of late chunking depend on the whole document: nothing that is known from elsewhere or
    from before is used for them, and each document is embedded at once.

    Parameters
    ----------
    embedder
        Computes the vectors; a :class:`~nbrag.models.embedding.LateEmbedder` by late chunking.
    session
        Knows earlier vectors, keeps those of unfinished documents, and writes.
    batch_tokens
        Token budget of one batch.
    """

    def __init__(
        self, embedder: Embedder, session: WriteSession, *, batch_tokens: int = BATCH_TOKENS
    ) -> None:
        self._embedder = embedder
        self._late = embedder if isinstance(embedder, LateEmbedder) else None
        self._session = session
        self._budget = batch_tokens
        self._open: list[ReadyDocument] = []
        self._pending: dict[str, tuple[str, int]] = {}
        self._pending_tokens = 0
        self.embedded = 0

    async def add(self, document: Document, chunks: Sequence[Chunk]) -> list[ReadyDocument]:
        """Take a document; return those, in order, that are complete now."""
        if self._late is not None:
            return await self._add_late(self._late, document, chunks)
        entry = ReadyDocument(
            document, list(chunks), [stable_hash(chunk.embedding_text) for chunk in chunks]
        )
        entry.vectors.update(await self._session.known_vectors(list(dict.fromkeys(entry.hashes))))
        self._open.append(entry)
        for chunk, text_hash in zip(entry.chunks, entry.hashes, strict=True):
            if text_hash in entry.vectors or text_hash in self._pending:
                continue
            tokens = max(chunk.token_count, 1)
            if self._pending and self._pending_tokens + tokens > self._budget:
                await self._embed_pending()
            self._pending[text_hash] = (chunk.embedding_text, tokens)
            self._pending_tokens += tokens
            entry.embedded += 1
        return self._take_complete()

    async def _add_late(
        self, embedder: LateEmbedder, document: Document, chunks: Sequence[Chunk]
    ) -> list[ReadyDocument]:
        """Embed a document as a whole; return the documents collected when they are enough."""
        import numpy as np

        entry = ReadyDocument(document, list(chunks), [chunk.id for chunk in chunks])
        placed = [(chunk.id, chunk.span) for chunk in chunks if chunk.span is not None]
        derived = [chunk for chunk in chunks if chunk.span is None]
        vectors = np.concatenate(
            [
                await embedder.embed_spans(
                    document.text, [(span.start, span.end) for _, span in placed]
                ),
                await embedder.embed_documents([chunk.embedding_text for chunk in derived]),
            ]
        )
        names = [name for name, _ in placed] + [chunk.id for chunk in derived]
        entry.vectors.update(zip(names, vectors, strict=True))
        entry.embedded = len(names)
        self.embedded += len(names)
        self._open.append(entry)
        self._pending_tokens += sum(max(chunk.token_count, 1) for chunk in chunks)
        if self._pending_tokens < self._budget:
            return []
        self._pending_tokens = 0
        return self._take_complete()

    async def flush(self) -> list[ReadyDocument]:
        """Embed what is left; return the documents that are complete now: all of them."""
        await self._embed_pending()
        return self._take_complete()

    async def _embed_pending(self) -> None:
        if not self._pending:
            return
        hashes = list(self._pending)
        texts = [text for text, _ in self._pending.values()]
        vectors = await self._embedder.embed_documents(texts)
        self._pending, self._pending_tokens = {}, 0
        self.embedded += len(hashes)
        computed = dict(zip(hashes, vectors, strict=True))
        unfinished: set[str] = set()
        for entry in self._open:
            entry.vectors.update({h: computed[h] for h in entry.hashes if h in computed})
            if not entry.complete:
                unfinished.update(h for h in entry.hashes if h in computed)
        if unfinished:
            # Vectors of a document that spans batches are kept, in case the run stops here.
            import numpy as np

            kept = sorted(unfinished)
            await self._session.stage_vectors(kept, np.stack([computed[h] for h in kept]))

    def _take_complete(self) -> list[ReadyDocument]:
        ready = [entry for entry in self._open if entry.complete]
        if ready:
            self._open = [entry for entry in self._open if not entry.complete]
        return ready

    async def write(self, ready: Sequence[ReadyDocument], *, settings_hash: str) -> None:
        """Write complete documents, all in one transaction."""
        import numpy as np

        entries: list[tuple[Document, Sequence[Chunk], Any]] = [
            (
                entry.document,
                entry.chunks,
                np.stack([entry.vectors[text_hash] for text_hash in entry.hashes]),
            )
            for entry in ready
        ]
        await self._session.write_documents(entries, settings_hash=settings_hash)
