"""Making maps: a sample of a collection, projected, with a question and what it finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from nbrag.background import on_loop, run
from nbrag.errors import CollectionNotFound, ConfigurationError, FilterError, did_you_mean
from nbrag.maps.collection_map import CollectionMap, MapHit
from nbrag.maps.projection import principal_axes, umap_points
from nbrag.stores.duckdb import DuckDBCollection
from nbrag.stores.duckdb.sampling import Sample, few_valued, sample_rows
from nbrag.types import MetadataKeys

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nbrag.protocols import Collection
    from nbrag.types import RetrievalResults
    from nbrag.workspace import Workspace

__all__ = ["colour_fields", "make_map", "map_collection"]

DOCUMENT = "document"
_NOTHING = "(none)"
#: A field with more values than that would be nearly all "other".
_MOST_VALUES = 30
_COVERED = 0.5
_OFFERED = ("media_type", "page")
_METHODS = ("pca", "umap")


def map_collection(
    workspace: Workspace, collection: str | None = None, **options: Any
) -> CollectionMap:
    """Return a map of a collection; see :func:`make_map` for the options.

    Examples
    --------
    >>> nbrag.maps.map_collection(workspace, "docs", by="team")  # doctest: +SKIP
    """
    return run(make_map(workspace, collection, **options))


async def make_map(
    workspace: Workspace,
    collection: str | None = None,
    *,
    by: str | None = None,
    method: Literal["pca", "umap"] = "pca",
    question: str = "",
    pipeline: str = "default",
    top_k: int = 5,
    most: int = 3_000,
) -> CollectionMap:
    """Return a map of a collection's source passages.

    Parameters
    ----------
    workspace
        Where the collection is.
    collection
        Its name; see :meth:`nbrag.Workspace.choose_collection`.
    by
        What the marks tell: ``document``, or a field with single values. None takes the main
        topic where there is one, else the first metadata field with few values, else the
        document.
    method
        ``pca``: the two principal components, at once; ``umap``: neighbourhoods, with the extra
        ``umap``, in half a minute for 3,000 chunks.
    question, pipeline, top_k
        What is marked: a question, and what a kept pipeline finds for it.
    most
        Most chunks that are shown, a fixed random sample of them all.

    Raises
    ------
    CollectionNotFound
        When there is no such collection, or it is empty.
    FilterError
        When there is no such field, or it holds lists.
    MissingDependency
        When umap-learn is not installed.
    """
    if method not in _METHODS:
        raise ConfigurationError(
            f"there is no method '{method}'.", hint=did_you_mean(method, _METHODS, what="methods")
        )
    if most < 1:
        raise ConfigurationError(f"a map of {most} chunks.", hint="show 1 or more")
    return await on_loop(
        _make(
            workspace,
            collection,
            by=by,
            method=method,
            question=question.strip(),
            pipeline=pipeline,
            top_k=top_k,
            most=most,
        )
    )


async def colour_fields(collection: Collection) -> list[str]:
    """Return what a collection's chunks can be marked by, the best first.

    The main topic, metadata fields with about 30 values or fewer, and the document.
    """
    kinds = await collection.fields()
    own = [f for f, kind in kinds.items() if not kind.endswith("[]") and _is_offered(f)]
    if isinstance(collection, DuckDBCollection):
        name = collection.name
        few = await collection.database.run(lambda c: few_valued(c, name, own, _MOST_VALUES))
    else:
        few = await _few_valued(collection, own)
    ordered = sorted(
        few,
        key=lambda field: (
            field != MetadataKeys.TOPIC_PRIMARY,
            # A mark that most chunks lack, and a number, tell little.
            few[field] < _COVERED,
            field in _OFFERED,
            kinds[field] != "VARCHAR",
        ),
    )
    return [*ordered, DOCUMENT]


async def _few_valued(collection: Collection, fields: Sequence[str]) -> dict[str, float]:
    """Return fields with few values, and the share of chunks that have one, of any store."""
    rows = await collection.chunks(await collection.original_ids())
    few: dict[str, float] = {}
    for field in fields:
        values = [row.record[field] for row in rows.values() if row.record.get(field) is not None]
        if 1 <= len(set(values)) <= _MOST_VALUES:
            few[field] = len(values) / len(rows)
    return few


def _is_offered(field: str) -> bool:
    from nbrag.stores.metadata import BUILT_IN_FIELDS

    return field in _OFFERED or field not in BUILT_IN_FIELDS


async def _make(
    workspace: Workspace,
    collection: str | None,
    *,
    by: str | None,
    method: str,
    question: str,
    pipeline: str,
    top_k: int,
    most: int,
) -> CollectionMap:
    target = await asyncio.to_thread(workspace.choose_collection, collection)
    field = await _checked_field(target, by)
    column = "source" if field == DOCUMENT else field
    sample = await _sample(target, most, list(dict.fromkeys(("id", "source", column))))
    if not sample.total:
        raise CollectionNotFound(
            f"collection '{target.name}' is empty.",
            hint=f"ingest documents first, e.g. %rag_ingest {target.name} --from FOLDER",
        )
    notes: list[str] = []
    results: RetrievalResults | None = None
    marked: NDArray[np.float32] | None = None
    chunks: list[Any] = []
    has_query = False
    if question:
        results = await _search(workspace, target, pipeline, question, top_k)
        notes += list(results.warnings)
        chunks, has_query, marked = await _marked(workspace, target, question, results, notes)
    points, extra, shares = await asyncio.to_thread(_project, method, sample.vectors, marked)
    query = extra.pop(0) if has_query else None
    hits = tuple(
        MapHit(number, *place, chunk.source, chunk.content)
        for (number, chunk), place in zip(chunks, extra, strict=True)
    )
    return CollectionMap(
        target.name,
        field,
        method,
        sample.total,
        tuple(sample.columns["id"]),
        tuple(str(source or "") for source in sample.columns["source"]),
        tuple(_shown(value) for value in sample.columns[column]),
        tuple(points),
        shares,
        question,
        query,
        hits,
        tuple(notes),
    )


async def _checked_field(collection: Collection, by: str | None) -> str:
    """Return the field that was asked for, or the one that tells the most."""
    if by is None:
        return (await colour_fields(collection))[0]
    kinds = await collection.fields()
    if by != DOCUMENT and by not in kinds:
        raise FilterError(
            f"there is no field '{by}'.", hint=did_you_mean(by, [*kinds, DOCUMENT], what="fields")
        )
    if kinds.get(by, "").endswith("[]"):
        raise FilterError(
            f"field '{by}' holds lists: a chunk has one mark.", hint="take a field of single values"
        )
    return by


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NOTHING if value is None or value == "" else str(value)


async def _sample(collection: Collection, most: int, columns: Sequence[str]) -> Sample:
    """Return a sample; by one look into the database where there is one."""
    dimension = collection.identity.dimension
    if isinstance(collection, DuckDBCollection):
        name = collection.name
        return await collection.database.run(
            lambda cursor: sample_rows(cursor, name, most, dimension, columns)
        )
    import numpy as np

    ids = await collection.original_ids()
    drawn = sorted(random.Random(0).sample(range(len(ids)), min(most, len(ids))))  # noqa: S311
    chosen = [ids[place] for place in drawn]
    vectors, rows = await collection.vectors(chosen), await collection.chunks(chosen)
    values: dict[str, list[Any]] = {
        column: [rows[i].record.get(column) for i in chosen] for column in columns
    }
    values["id"] = chosen
    stacked = [vectors[i] for i in chosen] or np.zeros((0, dimension), np.float32)
    return Sample(len(ids), values, np.asarray(stacked, np.float32))


async def _search(
    workspace: Workspace, target: Collection, pipeline: str, question: str, top_k: int
) -> RetrievalResults:
    built = await asyncio.to_thread(workspace.pipeline, pipeline)
    return await built.process(target, question, top_k=top_k)


async def _marked(
    workspace: Workspace,
    target: Collection,
    question: str,
    results: RetrievalResults,
    notes: list[str],
) -> tuple[list[tuple[int, Any]], bool, NDArray[np.float32]]:
    """Return the results with a place, whether the question has one, and the vectors of both."""
    import numpy as np

    vectors: list[NDArray[np.float32]] = []
    embedder = await asyncio.to_thread(lambda: workspace.embedder)
    fits = embedder.identity.searched_with == target.identity.searched_with
    if fits:
        vectors += list(await embedder.embed_queries([question]))
    else:
        notes.append("the question has no place: the collection is of another embedder")
    stored = await target.vectors([chunk.id for chunk in results])
    chunks = [(n, chunk) for n, chunk in enumerate(results, start=1) if chunk.id in stored]
    vectors += [stored[chunk.id] for _, chunk in chunks]
    empty = np.zeros((0, target.identity.dimension), np.float32)
    return chunks, fits, np.stack(vectors).astype(np.float32) if vectors else empty


def _project(
    method: str, vectors: NDArray[np.float32], marked: NDArray[np.float32] | None
) -> tuple[list[tuple[float, float]], list[tuple[float, float]], tuple[float, float] | None]:
    """Return the points, those of the question and its results, and the axes' shares."""
    import numpy as np

    both = vectors if marked is None else np.concatenate([vectors, marked])
    if method == "pca":
        axes = principal_axes(vectors)
        places, shares = axes.points(both), axes.shares
    else:
        places, shares = umap_points(both), None
    pairs = [(float(x), float(y)) for x, y in places]
    return pairs[: len(vectors)], pairs[len(vectors) :], shares
