"""A collection in memory, without a database: for tests, trials and small throw-away work."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import DocumentNotFound, StoreError
from nbrag.protocols import StoredDocument
from nbrag.stores._memory_rows import Row, fitting, lost_passages
from nbrag.stores.answers import exact_answers, keyword_answers
from nbrag.stores.filters import Filter, as_filter
from nbrag.stores.filters_sql import check_filter
from nbrag.stores.indices import CollectionIndices, IndexView, RowBatch, searched_kinds
from nbrag.stores.metadata import BUILT_IN_FIELDS, FieldTypes, clean_text, field_type
from nbrag.stores.names import NameTable, in_stored_spelling
from nbrag.stores.plans import LegAnswer, LegRequest, leg_requests, ranked_lists
from nbrag.stores.questions import Scope
from nbrag.stores.records import chunk_from_record, record_from_chunk
from nbrag.stores.trees import (
    SUMMARY_KINDS,
    alike_documents,
    checked_links,
    owners,
    standing,
    without_lost,
)
from nbrag.stores.vectors import checked_vectors, require_identity
from nbrag.types import (
    Chunk,
    ChunkKind,
    Document,
    EmbedderIdentity,
    RankedList,
    RetrievalChunk,
    SearchPlan,
    Span,
    TreeLink,
    stable_hash,
)

__all__ = ["MemoryCollection"]

Entry = tuple[Document, Sequence[Chunk], NDArray[np.float32]]


class MemoryCollection:
    """Documents, chunks and vectors in memory; implements :class:`nbrag.protocols.Collection`.

    Answers as a DuckDB collection does, and is its own write session.

    Parameters
    ----------
    name
        The collection's name.
    identity
        The embedder whose vectors it holds.
    language
        Language of the keyword leg's stemmer; None for none.
    """

    def __init__(
        self, name: str, identity: EmbedderIdentity, *, language: str | None = "english"
    ) -> None:
        self._name = name
        self._identity = identity
        self._lock = threading.RLock()
        self._generation = 0
        self._next_row = 0
        self._rows: dict[int, Row] = {}
        self._row_of: dict[str, int] = {}
        self._documents: dict[str, tuple[Document, str]] = {}
        self._staged: dict[str, NDArray[np.float32]] = {}
        self._types = FieldTypes()
        self._links: list[TreeLink] = []
        self._aliases: dict[str, dict[str, str]] = {}
        self._indices = CollectionIndices(identity.dimension, language)
        self._indices.change(self._stamp, removed=np.empty(0, np.int64), added=[])

    @property
    def name(self) -> str:
        """The collection's name."""
        return self._name

    @property
    def identity(self) -> EmbedderIdentity:
        """The embedder that the vectors come from."""
        return self._identity

    @property
    def _stamp(self) -> str:
        return f"{self._generation}-memory"

    def require_identity(self, used: EmbedderIdentity) -> None:
        """Raise EmbedderMismatch when the embedder in use is another one."""
        require_identity(self._name, self._identity, used)

    # Searching and reading ---------------------------------------------------------------

    async def search(self, plan: SearchPlan) -> list[RankedList]:
        """Run the plan's legs at the same time; see the DuckDB collection's method."""
        requests = leg_requests(plan)
        with self._lock:
            view = self._indices.view(self._stamp)
            scope = self._scope(view, as_filter(plan.filter), plan.kinds)
        legs = (
            asyncio.to_thread(self._leg, view, request, plan.candidates, scope)
            for request in requests
        )
        answers = [answer for found in await asyncio.gather(*legs) for answer in found]
        return ranked_lists(answers, view.ids_of)

    def _scope(
        self, view: IndexView, condition: Filter | None, kinds: frozenset[ChunkKind]
    ) -> Scope:
        if condition is None:
            return view.scope(kinds)
        names = {str(kind) for kind in searched_kinds(kinds)}
        checked = self._checked(condition)
        passing = [
            row
            for row, stored in self._rows.items()
            if stored.record["kind"] in names and checked.evaluate(stored.record)
        ]
        return view.scope(kinds, np.array(sorted(passing), np.int64))

    def _leg(self, view: IndexView, request: LegRequest, k: int, scope: Scope) -> list[LegAnswer]:
        if request.leg == "keyword":
            queries = [self._indices.keyword.query(text) for text in request.texts]
            return keyword_answers(request, queries, len(view), k, scope)
        if view.exact is None:
            return []
        vectors = request.vectors(self._identity.dimension)
        return exact_answers(request, view.exact, vectors, k, scope)

    async def chunks(
        self, ids: Sequence[str], *, content: str | None = None
    ) -> dict[str, RetrievalChunk]:
        """Return the stored rows by id; see the DuckDB collection's method."""
        with self._lock:
            return {
                chunk_id: self._chunk(self._row_of[chunk_id], content)
                for chunk_id in ids
                if chunk_id in self._row_of
            }

    def _chunk(self, row: int, content: str | None = None) -> RetrievalChunk:
        record = {**dict.fromkeys(self._types.types), **self._rows[row].record}
        return chunk_from_record(record, content)

    async def neighbours(self, chunk_id: str, before: int, after: int) -> list[RetrievalChunk]:
        """Return the original chunks around one; see the DuckDB collection's method."""
        with self._lock:
            seen: set[str | None] = set()
            current: str | None = chunk_id
            while current in self._row_of and current not in seen:
                record = self._rows[self._row_of[current]].record
                if record["kind"] == ChunkKind.ORIGINAL:
                    return self._around(record, before, after)
                seen.add(current)
                current = record["parent_id"]
            return []

    def _around(self, record: Mapping[str, Any], before: int, after: int) -> list[RetrievalChunk]:
        first, last = record["ordinal"] - before, record["ordinal"] + after
        rows = [
            (stored.record["ordinal"], row)
            for row, stored in self._rows.items()
            if stored.record["document_id"] == record["document_id"]
            and stored.record["kind"] == ChunkKind.ORIGINAL
            and first <= stored.record["ordinal"] <= last
        ]
        return [self._chunk(row) for _, row in sorted(rows)]

    async def vectors(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored vectors, float32 of shape (dimension,), by chunk id."""
        with self._lock:
            return {i: self._rows[self._row_of[i]].vector for i in ids if i in self._row_of}

    async def document_text(self, document_id: str, span: Span | None = None) -> str:
        """Return a document's text, or the stretch of it; DocumentNotFound when it is gone."""
        with self._lock:
            if document_id not in self._documents:
                raise DocumentNotFound(
                    f"Collection '{self._name}' has no document with the id {document_id}."
                )
            text = clean_text(self._documents[document_id][0].text)
        return text if span is None else text[span.start : span.end]

    async def documents(self) -> dict[str, StoredDocument]:
        """Return all stored documents by URI."""
        with self._lock:
            counts = dict.fromkeys(self._documents, 0)
            for stored in self._rows.values():
                of = stored.record["document_id"]
                if of in counts and stored.record["kind"] not in SUMMARY_KINDS:
                    counts[of] += 1
            listed = sorted(self._documents.items(), key=lambda pair: pair[1][0].uri)
            return {
                document.uri: StoredDocument(
                    key, document.uri, document.source_hash, settings, counts[key]
                )
                for key, (document, settings) in listed
            }

    async def count(self) -> tuple[int, int]:
        """Return how many documents and chunks there are."""
        with self._lock:
            return len(self._documents), len(self._rows)

    async def fields(self) -> dict[str, str]:
        """Return the fields that a filter may name, with their types."""
        with self._lock:
            return self._field_types()

    async def field_values(
        self, field: str, *, limit: int = 10_000, start: int = 0, containing: str = ""
    ) -> list[Any]:
        """Return the distinct values of a field, most frequent first; of a list, its members."""
        with self._lock:
            kind = field_type(field, self._field_types())
            counts: Counter[Any] = Counter()
            for stored in self._rows.values():
                value = stored.record.get(field)
                if value is not None and stored.record["document_id"]:
                    counts.update(value if kind.endswith("[]") else [value])
        order = sorted(counts, key=lambda value: (-counts[value], value))
        if containing:
            wanted = containing.lower()
            order = [value for value in order if wanted in str(value).lower()]
        return order[start : start + limit]

    async def original_ids(self, *, where: Any = None) -> list[str]:
        """Return the ids of the original chunks that pass a filter; see the DuckDB collection."""
        found = self._passing(frozenset((ChunkKind.ORIGINAL,)), where)
        found.sort(key=lambda record: (record["source"], record["ordinal"]))
        return [record["id"] for record in found]

    async def summary_ids(self, *, where: Any = None) -> list[str]:
        """Return the ids of the summaries whose own rows pass a filter."""
        return [record["id"] for record in self._passing(SUMMARY_KINDS, where)]

    async def tree(self) -> list[TreeLink]:
        """Return the links of the summary tree; see the DuckDB collection's method."""
        with self._lock:
            return list(self._links)

    async def aliases(self) -> dict[str, dict[str, str]]:
        """Return the other names that filters may use; see the DuckDB collection's method."""
        return {field: dict(pairs) for field, pairs in self._aliases.items()}

    async def add_aliases(self, aliases: Mapping[str, Mapping[str, str]]) -> None:
        """Let filters use other names; see the DuckDB collection's method."""
        for field, pairs in aliases.items():
            self._aliases.setdefault(field, {}).update(pairs)

    def _passing(self, kinds: frozenset[ChunkKind], where: Any) -> list[dict[str, Any]]:
        condition = as_filter(where)
        with self._lock:
            condition = None if condition is None else self._checked(condition)
            return [
                stored.record
                for stored in self._rows.values()
                if stored.record["kind"] in kinds
                and (condition is None or condition.evaluate(stored.record))
            ]

    def _checked(self, condition: Filter) -> Filter:
        """Return a filter that fits the fields, with names as they are stored."""
        check_filter(condition, self._field_types())

        def table_of(field: str) -> NameTable:
            """Return what is known of a field's names."""
            lists = (stored.record.get(field) or () for stored in self._rows.values())
            names = (name for found in lists for name in found)
            return NameTable.of_field(field, names, self._aliases.get(field))

        return in_stored_spelling(condition, table_of)

    def _field_types(self) -> dict[str, str]:
        return {**BUILT_IN_FIELDS, **dict(sorted(self._types.types.items()))}

    # Writing -----------------------------------------------------------------------------

    def writer(self) -> MemoryCollection:
        """Return the collection, which writes to itself."""
        return self

    async def known_vectors(self, hashes: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored and staged vectors by the hash of their embedding text."""
        with self._lock:
            stored = {row.text_hash: row.vector for row in self._rows.values()}
            known = {**self._staged, **stored}
            return {text_hash: known[text_hash] for text_hash in hashes if text_hash in known}

    async def stage_vectors(self, hashes: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep computed vectors until their documents are written."""
        array = checked_vectors(
            vectors, len(hashes), self._identity.dimension, collection=self._name
        )
        with self._lock:
            for text_hash, vector in zip(hashes, array, strict=True):
                self._staged.setdefault(text_hash, vector.copy())

    async def write_document(
        self,
        document: Document,
        chunks: Sequence[Chunk],
        vectors: NDArray[np.float32],
        *,
        settings_hash: str,
    ) -> None:
        """Replace a document with all that hangs on it; see the DuckDB session's method."""
        await self.write_documents([(document, chunks, vectors)], settings_hash=settings_hash)

    async def write_documents(self, documents: Sequence[Entry], *, settings_hash: str) -> None:
        """Replace several documents at once; see the DuckDB session's method."""
        entries = list({entry[0].id: entry for entry in documents}.values())
        checked = [
            checked_vectors(
                vectors, len(chunks), self._identity.dimension, collection=self._name
            ).copy()
            for _, chunks, vectors in entries
        ]
        with self._lock:
            replaced = {document.id for document, _, _ in entries}
            gone, _ = self._hanging_on(replaced, entries)
            self._refuse_taken_ids([chunk.id for _, chunks, _ in entries for chunk in chunks], gone)
            self._remove(replaced, entries)
            first = self._next_row
            for (document, chunks, _), vectors in zip(entries, checked, strict=True):
                self._documents[document.id] = (document, settings_hash)
                for chunk, vector in zip(chunks, vectors, strict=True):
                    self._store(document, chunk, vector)
            self._widen()
            self._advance(gone, list(range(first, self._next_row)))

    def _refuse_taken_ids(self, ids: list[str], gone: set[int]) -> None:
        if len(set(ids)) < len(ids):
            raise StoreError("Two chunks of one write have the same id.")
        for chunk_id in ids:
            if chunk_id in self._row_of and self._row_of[chunk_id] not in gone:
                raise StoreError(f"Another document of '{self._name}' has a chunk {chunk_id}.")

    async def write_tree(
        self, summaries: Sequence[Chunk], vectors: NDArray[np.float32], links: Sequence[TreeLink]
    ) -> None:
        """Replace the whole summary tree; see the DuckDB session's method."""
        array = checked_vectors(
            vectors, len(summaries), self._identity.dimension, collection=self._name
        ).copy()
        with self._lock:
            stored = {
                s.record["id"]: row
                for row, s in self._rows.items()
                if s.record["kind"] in SUMMARY_KINDS
            }
            passages = self._row_of.keys() - stored.keys()
            kept, lost = standing(checked_links(summaries, links, passages), passages)
            pairs = [
                (chunk, vector)
                for chunk, vector in zip(summaries, array, strict=True)
                if chunk.id not in lost
            ]
            standing_for = owners(
                [chunk for chunk, _ in pairs],
                kept,
                {key: document for key, (document, _) in self._documents.items()},
            )
            records = [
                self._record(document, chunk, chunk.document_id)
                for document, (chunk, _) in zip(standing_for, pairs, strict=True)
            ]
            self._widen()
            same = {
                record["id"]
                for record in records
                if record["id"] in stored
                and self._rows[stored[record["id"]]].record == fitting(record, self._types.types)
            }
            gone = {row for chunk_id, row in stored.items() if chunk_id not in same}
            first, self._links = self._next_row, kept
            for row in gone:
                del self._row_of[self._rows.pop(row).record["id"]]
            for record, (chunk, vector) in zip(records, pairs, strict=True):
                if chunk.id not in same:
                    self._add(fitting(record, self._types.types), chunk, vector)
            self._advance(gone, list(range(first, self._next_row)))

    def _store(self, document: Document, chunk: Chunk, vector: NDArray[np.float32]) -> None:
        self._add(self._record(document, chunk, document.id), chunk, vector)

    def _record(self, document: Document, chunk: Chunk, document_id: str) -> dict[str, Any]:
        [metadata] = self._types.learn_document(document.metadata, [chunk.metadata])
        return {**record_from_chunk(document, chunk, document_id), **metadata}

    def _add(self, record: dict[str, Any], chunk: Chunk, vector: NDArray[np.float32]) -> None:
        text_hash = stable_hash(chunk.embedding_text)
        self._staged.pop(text_hash, None)
        text = clean_text(chunk.embedding_text)
        self._rows[self._next_row] = Row(record, vector, text_hash, text)
        self._row_of[chunk.id] = self._next_row
        self._next_row += 1

    def _widen(self) -> None:
        """Bring all values to their fields' types, which may have grown."""
        for stored in self._rows.values():
            stored.record.update(fitting(stored.record, self._types.types))

    def _remove(self, document_ids: set[str], incoming: Sequence[Entry] = ()) -> set[int]:
        """Take out the documents' rows and those derived from them; return which these are.

        Summaries above passages that come back as they were are not among them.
        """
        gone, links = self._hanging_on(document_ids, incoming)
        for row in gone:
            del self._row_of[self._rows.pop(row).record["id"]]
        self._links = links
        return gone

    def _hanging_on(
        self, document_ids: set[str], incoming: Sequence[Entry]
    ) -> tuple[set[int], list[TreeLink]]:
        known = document_ids & self._documents.keys()
        links, above = without_lost(
            self._links, lost_passages(self._rows.values(), known, incoming)
        )
        alike = {
            document.id
            for document, _, _ in incoming
            if document.id in known and alike_documents(document, self._documents[document.id][0])
        }
        kept = {link.parent for link in self._links} - above
        gone = {self._row_of[chunk_id] for chunk_id in above if chunk_id in self._row_of}
        gone |= {
            row
            for row, s in self._rows.items()
            if s.record["document_id"] in known
            and not (s.record["document_id"] in alike and s.record["id"] in kept)
        }
        ids = {self._rows[row].record["id"] for row in gone}
        while ids:
            found = {
                row
                for row, s in self._rows.items()
                if row not in gone and s.record["parent_id"] in ids
            }
            gone |= found
            ids = {self._rows[row].record["id"] for row in found}
        return gone, links

    def _advance(self, gone: set[int], added: list[int]) -> None:
        self._generation += 1
        stored = [self._rows[row] for row in added]
        batch = RowBatch(
            np.array(added, np.int64),
            [row.record["id"] for row in stored],
            [row.record["kind"] for row in stored],
            [row.text for row in stored],
            np.stack([row.vector for row in stored])
            if stored
            else np.empty((0, self._identity.dimension), np.float32),
            [row.record["parent_id"] for row in stored],
        )
        self._indices.change(self._stamp, removed=np.array(sorted(gone), np.int64), added=[batch])

    async def delete_documents(self, document_ids: Sequence[str]) -> int:
        """Delete documents with all that hangs on them; return how many there were."""
        with self._lock:
            known = set(document_ids) & self._documents.keys()
            gone = self._remove(known)
            for document_id in known:
                del self._documents[document_id]
            if known:
                self._advance(gone, [])
            return len(known)
