"""The retrieval pipeline: a question in, ranked chunks out.

query processors -> one search (vector and keyword legs at the same time) -> fusion
    -> result processors -> duplicates dropped -> cut to top_k -> expansion of what is left
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nbrag.background import on_loop
from nbrag.errors import EmbedderMismatch, NbragError, QueryError, StageError
from nbrag.protocols import (
    Collection,
    Embedder,
    RetrievalQueryProcessor,
    RetrievalResultProcessor,
)
from nbrag.rendering import Rendering, render_table
from nbrag.retrieval.searching import Searcher, SearchOptions
from nbrag.tracing import Trace, stage_span
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from nbrag.retrieval.retrievers import PipelineRetriever
    from nbrag.spec.pipeline import PipelineSpec

__all__ = ["RetrievalPipeline"]

#: Doublings of the candidates when duplicates leave too few results.
_MOST_WIDENINGS = 8


class RetrievalPipeline:
    """Runs a question through its stages; serves any number of collections.

    Parameters
    ----------
    embedder
        Gives the embedder of questions; called when a vector is needed for the first time.
    search
        Options of the search itself.
    query_processors, result_processors
        The stages before and after the search, in order.
    spec
        The specification that this was built from.
    strict
        Whether a failing stage raises; otherwise it is passed over with a warning.
    """

    def __init__(
        self,
        embedder: Callable[[], Embedder],
        *,
        search: SearchOptions | None = None,
        query_processors: Sequence[RetrievalQueryProcessor] = (),
        result_processors: Sequence[RetrievalResultProcessor] = (),
        spec: PipelineSpec | None = None,
        strict: bool = False,
    ) -> None:
        self.search_options = search or SearchOptions()
        self.query_processors = tuple(query_processors)
        self.result_processors = tuple(result_processors)
        self.spec = spec
        self.strict = strict
        self._embedder = embedder

    # Running -----------------------------------------------------------------------------

    async def process(
        self,
        collection: Collection,
        query: str | RetrievalQuery,
        top_k: int = 5,
        content: str | None = None,
        where: Any = None,
    ) -> RetrievalResults:
        """Answer a question with chunks of a collection.

        Parameters
        ----------
        collection
            Where to search.
        query
            The question, or a prepared query (its ``top_k`` counts then).
        top_k
            Most results; as many are returned whenever that many distinct ones exist.
        content
            Which field of a record is its text; None for the chunk's own.
        where
            A filter expression or :class:`nbrag.stores.filters.Filter` that results must pass.

        Raises
        ------
        QueryError
            When the question is empty or ``top_k`` is less than 1.
        FilterError
            When the filter doesn't parse or names an unknown field.
        EmbedderMismatch
            When the collection's vectors come from another embedder.
        StageError
            When a stage fails and the pipeline is strict.
        """
        return await on_loop(self._process(collection, query, top_k, content, where))

    async def _process(
        self,
        collection: Collection,
        query: str | RetrievalQuery,
        top_k: int,
        content: str | None,
        where: Any,
    ) -> RetrievalResults:
        prepared = _prepare(query, top_k, where)
        trace = Trace(prepared.text, collection.name)
        attributes = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": collection.name,
            "gen_ai.request.top_k": prepared.top_k,
        }
        with stage_span(f"retrieval {collection.name}", attributes) as outcome:
            prepared = await self._before(prepared, collection, trace)
            results = await self._search_until_enough(prepared, collection, content, trace)
            results = await self._after(results, collection, trace, after_cut=True)
            outcome["nbrag.results"] = len(results)
        warnings = (*prepared.warnings, *results.warnings)
        return replace(results, warnings=tuple(dict.fromkeys(warnings)), trace=trace)

    async def _before(
        self, query: RetrievalQuery, collection: Collection, trace: Trace
    ) -> RetrievalQuery:
        for processor in self.query_processors:
            with self._stage(processor.name) as outcome:
                try:
                    changed = await processor.process(query, collection)
                except Exception as error:  # noqa: BLE001 - degraded or raised by _failed
                    query = query.with_warning(self._failed(processor.name, error))
                else:
                    # What was asked is never changed, whatever a stage does.
                    query = replace(changed, text=query.text)
            trace.note(processor.name, (), milliseconds=outcome["milliseconds"])
        return query

    async def _search_until_enough(
        self, query: RetrievalQuery, collection: Collection, content: str | None, trace: Trace
    ) -> RetrievalResults:
        """Search, with ever more candidates until top_k distinct results are there."""
        processors = [p for p in self.result_processors if not p.after_cut]
        wanted = max([query.top_k, *(p.candidates_needed(query.top_k) for p in processors)])
        searcher = Searcher(self.search_options, self._matching_embedder(collection))
        depth = max(wanted, self.search_options.candidates)
        for _ in range(_MOST_WIDENINGS):
            steps = Trace(query.text, collection.name)
            results, exhausted = await self._search_once(
                searcher,
                query,
                collection,
                content=content,
                sizes=(wanted, depth),
                trace=steps,
            )
            results = await self._after(results, collection, steps, after_cut=False)
            distinct = _without_duplicates(results.chunks)
            if len(distinct) >= query.top_k or exhausted:
                break
            wanted, depth = wanted * 2, depth * 2
        trace.stages += steps.stages
        trace.labels.update(steps.labels)
        if len(distinct) < len(results.chunks):
            trace.note_chunks("distinct", distinct)
        cut = tuple(
            chunk.ranked("result", rank, None)
            for rank, chunk in enumerate(distinct[: query.top_k], start=1)
        )
        trace.note_chunks("result", cut)
        return replace(results, chunks=cut)

    async def _search_once(
        self,
        searcher: Searcher,
        query: RetrievalQuery,
        collection: Collection,
        *,
        content: str | None,
        sizes: tuple[int, int],
        trace: Trace,
    ) -> tuple[RetrievalResults, bool]:
        wanted, depth = sizes
        with self._stage("search") as outcome:
            found = await searcher.search(query, collection, depth)
        kept = found.fused[:wanted]
        rows = await collection.chunks([item.chunk_id for item in kept], content=content)
        histories = found.histories(rows)
        chunks = [
            replace(rows[item.chunk_id], history=histories[item.chunk_id]).ranked(
                "search", rank, item.score
            )
            for rank, item in enumerate(kept, start=1)
            if item.chunk_id in rows
        ]
        trace.note_lists(found.lists)
        trace.note_chunks(
            "search",
            chunks,
            milliseconds=outcome["milliseconds"],
            explanation=searcher.explanation(query),
        )
        exhausted = len(found.fused) <= wanted and all(
            len(ranked.items) < depth for ranked in found.lists
        )
        return RetrievalResults(query, tuple(chunks), dict(query.metadata)), exhausted

    async def _after(
        self, results: RetrievalResults, collection: Collection, trace: Trace, *, after_cut: bool
    ) -> RetrievalResults:
        for processor in self.result_processors:
            if processor.after_cut is not after_cut:
                continue
            with self._stage(processor.name) as outcome:
                try:
                    results = await processor.process(results, collection)
                except Exception as error:  # noqa: BLE001 - degraded or raised by _failed
                    results = results.with_warning(self._failed(processor.name, error))
            trace.note_chunks(processor.name, results.chunks, milliseconds=outcome["milliseconds"])
        return results

    def _stage(self, name: str) -> contextlib.AbstractContextManager[dict[str, Any]]:
        return stage_span(f"nbrag.stage {name}", {"nbrag.stage": name})

    def _failed(self, stage: str, error: Exception) -> str:
        """Return the warning for a failed stage; raise when nothing may be passed over."""
        if isinstance(error, NbragError):
            # Wrong settings, missing packages and the like are the person's to mend.
            raise error
        if self.strict:
            raise StageError(stage, f"{type(error).__name__}: {error}") from error
        return f"stage '{stage}' failed and was passed over: {type(error).__name__}: {error}"

    def _matching_embedder(self, collection: Collection) -> Callable[[], Embedder]:
        """Return the embedder, refusing one that the collection was not made with."""

        def embedder() -> Embedder:
            found = self._embedder()
            if found.identity != collection.identity:
                raise EmbedderMismatch(
                    f"collection '{collection.name}' was made with the embedder "
                    f"{collection.identity.name}, not with {found.identity.name}.",
                    hint="use that embedder, or ingest into a new collection",
                )
            return found

        return embedder

    # Views -------------------------------------------------------------------------------

    def as_retriever(self, collection: Collection) -> PipelineRetriever:
        """Bind the pipeline to one collection."""
        from nbrag.retrieval.retrievers import PipelineRetriever

        return PipelineRetriever(self, collection)

    def _require_spec(self) -> PipelineSpec:
        if self.spec is None:
            raise QueryError(
                "this pipeline was made from objects and has no specification.",
                hint="build it with workspace.retrieval_pipeline()",
            )
        return self.spec

    def to_cell(self) -> str:
        """Return the pipeline as a notebook cell."""
        return self._require_spec().to_cell()

    def to_python(self, *, database: str = ":memory:") -> str:
        """Return a plain Python script that builds the pipeline."""
        return self._require_spec().to_python(database=database)

    def to_dict(self) -> dict[str, Any]:
        """Return the pipeline as plain values."""
        return self._require_spec().to_dict()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return a table of the stages."""
        stages = self.spec.stages if self.spec else ()
        rows: list[list[str]] = [
            [
                stage.name,
                ", ".join(f"{k}={v}" for k, v in stage.changed_options().items())
                or "default options",
            ]
            for stage in stages
        ] or [["search", "default options"]]
        name = self.spec.name if self.spec else "pipeline"
        return render_table(f"Pipeline {name}", ["stage", "options"], rows)

    def __repr__(self) -> str:
        """Name the stages."""
        names = [p.name for p in self.query_processors]
        names += ["search", *(p.name for p in self.result_processors)]
        return f"<RetrievalPipeline {' -> '.join(names)}>"

    # The end -----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the processors that hold models or connections."""
        for processor in (*self.query_processors, *self.result_processors):
            close = getattr(processor, "aclose", None) or getattr(processor, "close", None)
            if close is not None:
                closing = close()
                if inspect.isawaitable(closing):
                    await closing

    async def __aenter__(self) -> Self:
        """Return the pipeline."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the processors."""
        await on_loop(self.aclose())

    def __enter__(self) -> Self:
        """Return the pipeline."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the processors."""
        from nbrag.background import run

        run(self.aclose())


def _prepare(query: str | RetrievalQuery, top_k: int, where: Any) -> RetrievalQuery:
    """Return the query that the stages start from."""
    prepared = RetrievalQuery(query, top_k=top_k) if isinstance(query, str) else query
    if not prepared.text.strip() and not any(v.vector is not None for v in prepared.variants):
        raise QueryError("the question is empty.", hint="write what you want to find")
    if prepared.top_k < 1:
        raise QueryError(f"top_k is {prepared.top_k}.", hint="ask for 1 result or more")
    if where is not None:
        from nbrag.stores.filters import as_filter

        given = as_filter(where)
        both = given if prepared.filter is None or given is None else prepared.filter & given
        prepared = replace(prepared, filter=both)
    if prepared.strategy is Strategy.TREE:
        raise QueryError(
            "this collection has no summary tree to search.", hint="use another search mode"
        )
    return prepared


def _without_duplicates(chunks: Sequence[RetrievalChunk]) -> list[RetrievalChunk]:
    """Return the chunks, each text once, with the other places of the text in the record."""
    places: dict[str, list[str]] = {}
    kept: dict[str, RetrievalChunk] = {}
    for chunk in chunks:
        text = " ".join(chunk.content.split())
        if text in kept:
            if kept[text].id != chunk.id:
                places.setdefault(text, []).append(chunk.source)
        else:
            kept[text] = chunk
    return [
        replace(chunk, record={**chunk.record, "also_in": list(dict.fromkeys(places[text]))})
        if text in places
        else chunk
        for text, chunk in kept.items()
    ]
