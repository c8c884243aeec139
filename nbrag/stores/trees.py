"""Summary trees in a store: what may be written, and what a lost passage takes with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from nbrag.errors import StoreError
from nbrag.types import Chunk, ChunkKind, Document, SummaryTree, TreeLink

__all__ = [
    "SUMMARY_KINDS",
    "alike_documents",
    "checked_links",
    "owners",
    "standing",
    "without_lost",
]

#: Kinds of rows that belong to the tree.
SUMMARY_KINDS = frozenset((ChunkKind.BRANCH_SUMMARY, ChunkKind.ROOT_SUMMARY))


def checked_links(
    summaries: Sequence[Chunk], links: Iterable[TreeLink], passages: Collection[str]
) -> list[TreeLink]:
    """Return the links, each once, when they and the summaries make a tree.

    Parameters
    ----------
    summaries
        The rows to be written.
    links
        All links of the tree.
    passages
        Ids of the stored rows that are no summaries.

    Raises
    ------
    StoreError
        When a row is no summary, has an id that is taken or stands above nothing; or when a link
        leads up or sideways.
    """
    ids = [chunk.id for chunk in summaries]
    if len(set(ids)) < len(ids):
        raise StoreError("Two summaries of one tree have the same id.")
    unique = list(dict.fromkeys(links))
    levels: dict[str, int] = {}
    for link in unique:
        if levels.setdefault(link.parent, link.level) != link.level or link.level < 1:
            raise StoreError(f"The summary {link.parent} has no single level of 1 or more.")
    for link in unique:
        if levels.get(link.child, 0) >= link.level:
            raise StoreError(f"{link.child} can't stand beneath {link.parent}: it is no lower.")
    for chunk in summaries:
        if chunk.kind not in SUMMARY_KINDS:
            raise StoreError(f"The row {chunk.id} is of kind '{chunk.kind}', not a summary.")
        if chunk.id in passages:
            raise StoreError(f"A passage has the id {chunk.id} already.")
        if chunk.id not in levels:
            raise StoreError(f"The summary {chunk.id} has no link to what it sums up.")
    return unique


def standing(
    links: Sequence[TreeLink], passages: Collection[str]
) -> tuple[list[TreeLink], set[str]]:
    """Return the links that lead to stored passages, and the summaries that lost one.

    A passage that was deleted while its summary was being written is lost to it.

    Parameters
    ----------
    links
        As :func:`checked_links` returns them.
    passages
        Ids of the stored rows that are no summaries.
    """
    parents = {link.parent for link in links}
    lost = {link.child for link in links} - parents - set(passages)
    return without_lost(links, lost) if lost else (list(links), set())


def without_lost(
    links: Sequence[TreeLink], lost: Collection[str]
) -> tuple[list[TreeLink], set[str]]:
    """Return the links without those to lost passages, and all summaries above these.

    A summary that has nothing beneath it any more is no longer part of the tree.
    """
    above = SummaryTree(links).above(lost)
    dead = set(lost)
    while dead:
        left = [link for link in links if link.child not in dead]
        emptied = {link.parent for link in links} - {link.parent for link in left}
        links, dead = left, emptied
    return list(links), above


def owners(
    summaries: Sequence[Chunk], links: Iterable[TreeLink], documents: Mapping[str, Document]
) -> list[Document]:
    """Return the document that each summary is shown with; a nameless one where it has none.

    Parameters
    ----------
    summaries
        The rows to be written.
    links
        The tree's links.
    documents
        The stored documents by id.

    Raises
    ------
    StoreError
        When a summary's document is not stored.
    """
    tree = SummaryTree(links)
    found = []
    for chunk in summaries:
        if chunk.document_id and chunk.document_id not in documents:
            raise StoreError(f"The summary {chunk.id} is of a document that is not stored.")
        count = len(tree.passages_beneath(chunk.id))
        noun = "passage" if count == 1 else "passages"
        title = f"Summary of {count} {noun} (level {tree.level(chunk.id)})"
        nameless = Document("", "", title=title, media_type="")
        found.append(documents[chunk.document_id] if chunk.document_id else nameless)
    return found


def alike_documents(one: Document, other: Document) -> bool:
    """Tell whether two versions of a document are shown and filtered alike."""
    same_title = (one.title, one.media_type) == (other.title, other.media_type)
    return same_title and dict(one.metadata) == dict(other.metadata)
