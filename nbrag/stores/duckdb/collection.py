"""A collection in a DuckDB file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import ConfigurationError
from nbrag.stores.duckdb import catalog, names, rows, tree
from nbrag.stores.duckdb.database import DuckDBDatabase
from nbrag.stores.duckdb.identifiers import CollectionName, check_collection_name, table
from nbrag.stores.duckdb.loading import present_state
from nbrag.stores.duckdb.search import search, warm
from nbrag.stores.duckdb.state import CollectionState, IndexSettings, state_of
from nbrag.stores.duckdb.writer import DuckDBWriteSession, delete_documents
from nbrag.stores.filters import as_filter
from nbrag.stores.metadata import field_type
from nbrag.stores.vectors import require_identity
from nbrag.types import EmbedderIdentity, RankedList, RetrievalChunk, SearchPlan, Span, TreeLink

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from nbrag.protocols import StoredDocument

__all__ = [
    "DuckDBCollection",
    "create_collection",
    "drop_collection",
    "list_collections",
    "open_collection",
]

IndexMode = Literal["auto", "exact", "hnsw"]
_Item = TypeVar("_Item")
_MODES = ("auto", "exact", "hnsw")


class DuckDBCollection:
    """Documents, chunks and vectors in one schema of a DuckDB file.

    Implements :class:`nbrag.protocols.Collection`. Made by :func:`create_collection` and
    :func:`open_collection`. Several searches may run at the same time, also beside a write; each
    sees one committed state.

    Parameters
    ----------
    database
        The open file.
    entry
        What the catalogue says about the collection.
    settings
        How its vectors are searched.
    """

    def __init__(
        self,
        database: DuckDBDatabase,
        entry: catalog.CollectionEntry,
        settings: IndexSettings,
    ) -> None:
        self.database = database
        self.settings = settings
        self._entry = entry
        self._state: CollectionState = state_of(database.instance, entry, settings)

    @property
    def name(self) -> CollectionName:
        """The collection's name, also its schema's."""
        return self._entry.name

    @property
    def identity(self) -> EmbedderIdentity:
        """The embedder that the vectors come from."""
        return self._entry.identity

    def __repr__(self) -> str:
        return f"<DuckDBCollection '{self.name}'>"

    # Searching and reading ---------------------------------------------------------------

    async def search(self, plan: SearchPlan) -> list[RankedList]:
        """Run the plan's legs at the same time; one list per leg and variant.

        Parameters
        ----------
        plan
            What is looked for.

        Returns
        -------
        list of RankedList
            Vector lists (cosine similarity) before keyword lists (BM25), each at most
            ``plan.candidates`` long, in the order of the variants, with ties in the order in
            which the rows were written. ``explanation`` says how it was searched.

        Raises
        ------
        FilterError
            When the filter doesn't fit the collection's fields.
        QueryError
            When a vector is missing, zero or of another length.
        """
        return await self.database.run(lambda cursor: search(cursor, self._state, plan))

    async def chunks(
        self, ids: Sequence[str], *, content: str | None = None
    ) -> dict[str, RetrievalChunk]:
        """Return the stored rows by id, in the order asked for; ids that are gone are left out.

        Parameters
        ----------
        ids
            Chunk ids.
        content
            The field that is taken as the text; None for the chunk's own. A row without that
            field gives its own text.

        Raises
        ------
        ConfigurationError
            When there is no such field.
        """
        if not ids:
            return {}
        return await self.database.run(
            lambda cursor: rows.chunks_by_id(
                cursor, self.name, ids, content=content, hints=self._state.indices.places(ids)
            )
        )

    async def neighbours(self, chunk_id: str, before: int, after: int) -> list[RetrievalChunk]:
        """Return the original chunks around one, itself included, in document order.

        Parameters
        ----------
        chunk_id
            The chunk; a derived one stands for the original that it leads to.
        before, after
            How many on either side.
        """
        return await self.database.run(
            lambda cursor: rows.neighbours(cursor, self.name, chunk_id, before, after)
        )

    async def vectors(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored vectors, float32 of shape (dimension,), by chunk id."""
        if not ids:
            return {}
        return await self.database.run(
            lambda cursor: rows.vectors_by_id(cursor, self.name, ids, self.identity.dimension)
        )

    async def document_text(self, document_id: str, span: Span | None = None) -> str:
        """Return a document's text, or the stretch of it.

        Raises
        ------
        DocumentNotFound
            When there is no such document.
        """
        return await self.database.run(
            lambda cursor: rows.document_text(cursor, self.name, document_id, span)
        )

    async def documents(self) -> dict[str, StoredDocument]:
        """Return all stored documents by URI."""
        return await self.database.run(lambda cursor: rows.stored_documents(cursor, self.name))

    async def count(self) -> tuple[int, int]:
        """Return how many documents and chunks there are."""

        def counted(cursor: DuckDBPyConnection) -> tuple[int, int]:
            """Return the counts of documents and chunks."""
            found = cursor.execute(
                f"SELECT (SELECT count(*) FROM {table(self.name, 'documents')}),"
                f" (SELECT count(*) FROM {table(self.name, 'chunks')})"
            ).fetchone()
            return (0, 0) if found is None else (int(found[0]), int(found[1]))

        return await self.database.run(counted)

    async def fields(self) -> dict[str, str]:
        """Return the fields that a filter may name, with their types.

        Types are ``VARCHAR``, ``BIGINT``, ``DOUBLE``, ``BOOLEAN`` and ``VARCHAR[]``.
        """
        return await self.database.run(lambda cursor: catalog.field_types(cursor, self.name))

    async def field_values(
        self, field: str, *, limit: int = 10_000, start: int = 0, containing: str = ""
    ) -> list[Any]:
        """Return the distinct values of a field, most frequent first; of a list, its members.

        Parameters
        ----------
        field
            The field.
        limit
            The most values.
        start
            How many of the first ones are passed over.
        containing
            Only values whose text holds these words, whichever the case.

        Raises
        ------
        FilterError
            When there is no such field.
        """

        def found(cursor: DuckDBPyConnection) -> list[Any]:
            """Return the values."""
            kind = field_type(field, catalog.field_types(cursor, self.name))
            return rows.field_values(
                cursor, self.name, field, kind, limit, start=start, containing=containing
            )

        return await self.database.run(found)

    async def original_ids(self, *, where: Any = None) -> list[str]:
        """Return the ids of the original chunks that pass a filter, in document order.

        Raises
        ------
        FilterError
            When the filter doesn't fit the collection's fields.
        """
        return await self._remembered("originals", where, tree.original_ids)

    async def summary_ids(self, *, where: Any = None) -> list[str]:
        """Return the ids of the summaries whose own rows pass a filter.

        Raises
        ------
        FilterError
            When the filter doesn't fit the collection's fields.
        """
        return await self._remembered("summaries", where, tree.summary_ids)

    async def tree(self) -> list[TreeLink]:
        """Return the links of the summary tree, in the order in which they were written.

        None in a collection without a tree. The links of summaries whose rows are missing, until
        the tree is built anew, are among them.
        """
        return await self._remembered("links", None, tree.read_links)

    async def _remembered(
        self,
        what: str,
        where: Any,
        read: Callable[[DuckDBPyConnection, CollectionName, Any], list[_Item]],
    ) -> list[_Item]:
        """Return a list; without a filter it is kept in memory until something is written."""

        def found(cursor: DuckDBPyConnection) -> list[_Item]:
            """Read it in one transaction with the stamp of what it belongs to."""
            if as_filter(where) is not None:
                return read(cursor, self.name, where)
            cursor.begin()
            try:
                present = present_state(cursor, self.name, self._entry.uid)
                stamp = "" if present is None else present[0]
                kept = self._state.lists.get(what)
                if kept is None or kept[0] != stamp:
                    kept = self._state.lists[what] = (stamp, read(cursor, self.name, None))
                return list(kept[1])
            finally:
                cursor.rollback()

        return await self.database.run(found)

    async def aliases(self) -> dict[str, dict[str, str]]:
        """Return the other names that filters may use, by what they stand for, for each field."""
        return await self.database.run(lambda cursor: names.read_aliases(cursor, self.name))

    # Writing -----------------------------------------------------------------------------

    @property
    def state(self) -> CollectionState:
        """The indices, shared with other openers of the collection."""
        return self._state

    def writer(self) -> DuckDBWriteSession:
        """Return a session that writes to the collection.

        Raises
        ------
        DatabaseReadOnly
            When the database is open for reading only.
        """
        self.database.require_writable()
        return DuckDBWriteSession(self)

    async def add_aliases(self, aliases: Mapping[str, Mapping[str, str]]) -> None:
        """Let filters use other names; one that is known already gets its new meaning.

        Parameters
        ----------
        aliases
            For each field ``entities_...``, other names by what they stand for.
        """
        self.database.require_writable()
        await self.database.run(
            lambda cursor: names.write_aliases(cursor, self.name, aliases),
            write=True,
            after=self._state.follow,
        )

    async def delete_documents(self, document_ids: Sequence[str]) -> int:
        """Delete documents with all that hangs on them, from every leg.

        Parameters
        ----------
        document_ids
            Their ids; unknown ones are passed over.

        Returns
        -------
        int
            How many documents there were.
        """
        self.database.require_writable()
        if not document_ids:
            return 0
        change = await self.database.run(
            lambda cursor: delete_documents(cursor, self.name, document_ids),
            write=True,
            after=self._state.follow,
        )
        return change.documents

    # Indices -----------------------------------------------------------------------------

    async def warm(self) -> None:
        """Load the indices now rather than at the first search."""
        await self.database.run(lambda cursor: warm(cursor, self._state))

    async def flush(self) -> None:
        """Bring the indices up to date and keep on disk what makes the next opening fast."""
        await self.warm()
        if not self.database.read_only:
            await self.database.run(lambda _: self._state.save())


def _checked_mode(index: str) -> IndexMode:
    if index not in _MODES:
        raise ConfigurationError(f"There is no index '{index}'.", hint="use auto, exact or hnsw")
    return index  # type: ignore[return-value]


def create_collection(
    database: DuckDBDatabase,
    name: str,
    identity: EmbedderIdentity,
    *,
    index: str = "auto",
    language: str | None = "english",
) -> DuckDBCollection:
    """Create an empty collection and return it.

    Parameters
    ----------
    database
        The open file.
    name
        A letter followed by letters, digits, ``_`` and ``-``.
    identity
        The embedder whose vectors it will hold.
    index
        ``auto``: exact while the vectors fit the memory budget, HNSW above; ``exact``;
        ``hnsw``.
    language
        Language of the keyword leg's stemmer; None for none.

    Raises
    ------
    ConfigurationError
        When the name or the index can't be used.
    StoreError
        When there is a collection or schema of that name.
    """
    check_collection_name(name)
    mode = _checked_mode(index)
    database.run_sync(
        lambda cursor: catalog.add_entry(
            cursor, name, identity, language=language, index_mode=mode
        ),
        write=True,
    )
    return open_collection(database, name)


def open_collection(
    database: DuckDBDatabase,
    name: str,
    *,
    identity: EmbedderIdentity | None = None,
    index: str | None = None,
    memory_budget: int = 2**30,
    recall: float = 0.95,
) -> DuckDBCollection:
    """Return an existing collection.

    Parameters
    ----------
    database
        The open file.
    name
        The collection's name.
    identity
        The embedder in use; None leaves it unchecked.
    index
        As for :func:`create_collection`, for this opening; None takes the collection's own.
    memory_budget
        Bytes that the matrix of an ``auto`` index may take; default 1 GiB.
    recall
        Share of true neighbours that HNSW has to reach on sampled queries; default 0.95.

    Raises
    ------
    CollectionNotFound
        With the nearest name there is.
    EmbedderMismatch
        When it was made with another embedder.
    """
    entry = database.run_sync(lambda cursor: catalog.entry_of(cursor, name))
    if identity is not None:
        require_identity(name, entry.identity, identity)
    mode = _checked_mode(index or entry.index_mode)
    return DuckDBCollection(database, entry, IndexSettings(mode, memory_budget, recall))


def list_collections(database: DuckDBDatabase) -> list[str]:
    """Return the names of the file's collections, in order."""
    return database.run_sync(catalog.names)


def drop_collection(database: DuckDBDatabase, name: str) -> None:
    """Delete a collection with all that is in it, and its indices.

    Raises
    ------
    CollectionNotFound
        With the nearest name there is.
    """

    def forget(entry: catalog.CollectionEntry) -> None:
        shared = database.instance.shared
        for key in [key for key in shared if entry.uid in key]:
            shared.pop(key).discard()

    database.run_sync(lambda cursor: catalog.remove_entry(cursor, name), write=True, after=forget)
