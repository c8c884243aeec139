"""A summary tree as one search sees it: what is there, what may be shown, what fits the budget."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbrag.protocols import Collection
from nbrag.types import RetrievalChunk, SummaryTree, TreeLink

__all__ = ["Forest", "read_forest", "source_passages", "tokens_of", "within_budget"]

#: What a row whose tokens nobody counted is taken to have: an English token's usual length.
_CHARACTERS_PER_TOKEN = 4
_State = tuple[list[TreeLink], list[str], list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """One state of a collection's summary tree.

    Attributes
    ----------
    tree
        The links.
    missing
        How many summaries have no row: they went with a passage that was changed or deleted.
    loose
        Original chunks that pass the filter and stand beneath no summary, in document order.
    loose_in_all
        How many there are without the filter.
    summaries
        All rows of the kinds of summaries.
    present
        Those of them that the tree knows.
    shown
        Summaries that may be found: with a filter, only those whose own row and every passage
        beneath pass it.
    passing
        Original chunks that pass the filter; None without one.
    """

    tree: SummaryTree
    missing: int
    loose: tuple[str, ...]
    loose_in_all: int
    summaries: frozenset[str]
    present: frozenset[str]
    shown: frozenset[str]
    passing: frozenset[str] | None

    def warnings(self) -> list[str]:
        """Return what a person should know about the tree's state."""
        told = []
        again = "running %%rag_ingest with the stage tree again mends it"
        if self.missing:
            noun, verb = ("summary", "is") if self.missing == 1 else ("summaries", "are")
            told.append(
                f"{self.missing} {noun} of {len(self.tree)} {verb} missing since passages beneath"
                f" were changed or deleted; {again}"
            )
        if self.loose_in_all:
            one = self.loose_in_all == 1
            noun, verb = ("passage", "stands") if one else ("passages", "stand")
            told.append(f"{self.loose_in_all} {noun} {verb} beneath no summary; {again}")
        return [f"stage 'search': {warning}" for warning in told]

    def described(self, chunk: RetrievalChunk) -> RetrievalChunk:
        """Return a summary with its level and what is beneath it in the record.

        ``level``; ``summary_children``, the ids of what stands right beneath; and
        ``summary_passages``, how many original chunks it was made from.
        """
        if chunk.id not in self.present:
            return chunk
        about: Mapping[str, Any] = {
            "level": self.tree.level(chunk.id),
            "summary_children": list(self.tree.children(chunk.id)),
            "summary_passages": len(self.tree.passages_beneath(chunk.id)),
        }
        return replace(chunk, record={**chunk.record, **about})


#: The last tree of each collection and what it was made from: comparing that is far quicker.
_known: weakref.WeakKeyDictionary[Collection, tuple[_State, Forest]] = weakref.WeakKeyDictionary()


async def read_forest(collection: Collection, where: Any = None) -> Forest | None:
    """Return a collection's summary tree as it is now; None when it has none.

    Parameters
    ----------
    collection
        Whose tree.
    where
        The search's filter.

    Raises
    ------
    FilterError
        When the filter doesn't fit the collection's fields.
    """
    links = await collection.tree()
    if not links:
        return None
    state = (links, await collection.original_ids(), await collection.summary_ids())
    whole = _remembered(collection, state)
    if where is None:
        return whole
    passing = frozenset(await collection.original_ids(where=where))
    shown = frozenset(
        node
        for node in await collection.summary_ids(where=where)
        if node in whole.present and passing.issuperset(whole.tree.passages_beneath(node))
    )
    loose = tuple(chunk_id for chunk_id in whole.loose if chunk_id in passing)
    return replace(whole, loose=loose, shown=shown, passing=passing)


def _remembered(collection: Collection, state: _State) -> Forest:
    """Return the tree without a filter, made anew where it is another than the last time."""
    try:
        known = _known.get(collection)
    except TypeError:
        # Not every object can be held on to weakly.
        return _whole(*state)
    if known is None or known[0] != state:
        known = _known[collection] = (state, _whole(*state))
    return known[1]


def _whole(links: list[TreeLink], originals: list[str], rows: list[str]) -> Forest:
    """Return the tree as it is without a filter."""
    tree, summaries = SummaryTree(links), frozenset(rows)
    present = summaries.intersection(tree.summaries)
    loose = tuple(chunk_id for chunk_id in originals if chunk_id not in tree)
    missing = len(tree) - len(present)
    return Forest(tree, missing, loose, len(loose), summaries, present, present, None)


async def source_passages(collection: Collection, chunk_id: str) -> list[RetrievalChunk]:
    """Return the original chunks that a summary was made from, in the tree's order.

    What a citation of the summary rests on. Of any other chunk it is the chunk itself.

    Parameters
    ----------
    collection
        Where the summary is stored.
    chunk_id
        Its id.
    """
    beneath = SummaryTree(await collection.tree()).passages_beneath(chunk_id) or (chunk_id,)
    rows = await collection.chunks(beneath)
    return [rows[passage] for passage in beneath if passage in rows]


def within_budget(
    chunks: Sequence[RetrievalChunk], most: int, budget: int
) -> tuple[list[RetrievalChunk], int]:
    """Return the best chunks that together have no more tokens than the budget, and their tokens.

    In rank order; one that does not fit any more is left out, and shorter ones after it may still
    come in. The first is taken in any case, alone when it is over the budget by itself.

    Parameters
    ----------
    chunks
        Best first.
    most
        How many there may be.
    budget
        Tokens as the embedder counted them when the rows were stored.
    """
    kept: list[RetrievalChunk] = []
    used = 0
    for chunk in chunks:
        size = tokens_of(chunk)
        if kept and used + size > budget:
            continue
        kept.append(chunk)
        used += size
        if len(kept) == most:
            break
    return kept, used


def tokens_of(chunk: RetrievalChunk) -> int:
    """Return a row's tokens as they were counted when it was stored, or else an estimate."""
    counted = chunk.record.get("token_count")
    if isinstance(counted, int) and counted > 0:
        return counted
    return math.ceil(len(chunk.content) / _CHARACTERS_PER_TOKEN)
