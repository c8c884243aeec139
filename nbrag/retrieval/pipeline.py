"""The retrieval pipeline: a question in, ranked chunks out.

query processors -> one search (vector and keyword legs at the same time) -> fusion
    -> duplicates dropped -> result processors -> cut to top_k -> expansion of what is left

Duplicates go before the stages see them, so that none is paid for twice; what is missing then is
searched for, deeper. Stages run once each, and what a stage drops stays dropped.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nbrag.background import on_loop
from nbrag.errors import EmbedderMismatch, QueryError, SpecificationError, StageError
from nbrag.protocols import (
    Collection,
    Embedder,
    Orchestrator,
    RetrievalQueryProcessor,
    RetrievalResultProcessor,
    Retriever,
)
from nbrag.rendering import Rendering, render_table
from nbrag.retrieval.distinct import distinct_chunks
from nbrag.retrieval.forest import Forest, read_forest, within_budget
from nbrag.retrieval.searching import Found, Searcher, SearchOptions, encodable
from nbrag.retrieval.stages import StageRunner
from nbrag.spec.grammar import format_value
from nbrag.spec.pipeline import StageSpec
from nbrag.spec.stages import StageOptions
from nbrag.tracing import Trace, stage_span
from nbrag.types import Fallback, RetrievalChunk, RetrievalQuery, RetrievalResults, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from nbrag.retrieval.retrievers import PipelineRetriever
    from nbrag.spec.pipeline import PipelineSpec

__all__ = ["RetrievalPipeline"]

#: Doublings of what is looked at when duplicates leave too few distinct chunks.
_MOST_WIDENINGS = 10


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
    answering
        Makes what answers, from a retriever; see :meth:`as_answerer`.
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
        answering: Callable[[Retriever], Orchestrator] | None = None,
    ) -> None:
        self.search_options = search or SearchOptions()
        self.query_processors = tuple(query_processors)
        self.result_processors = tuple(result_processors)
        self.spec = spec
        self.strict = strict
        self._embedder = embedder
        self._answering = answering

    # Running -----------------------------------------------------------------------------

    async def process(
        self,
        collection: Collection,
        query: str | RetrievalQuery,
        top_k: int | None = None,
        content: str | None = None,
        where: Any = None,
    ) -> RetrievalResults:
        """Answer a question with chunks of a collection.

        Parameters
        ----------
        collection
            Where to search.
        query
            The question, or a prepared query.
        top_k
            Most results; as many are returned whenever that many distinct ones exist and no
            stage drops them. None: 5, or what a prepared query asks for.
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
        top_k: int | None,
        content: str | None,
        where: Any,
    ) -> RetrievalResults:
        prepared = _prepare(query, top_k, where)
        trace = Trace(prepared.text, collection.name)
        runner = StageRunner(collection, trace, strict=self.strict)
        attributes = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": collection.name,
            "gen_ai.request.top_k": prepared.top_k,
        }
        with stage_span(f"retrieval {collection.name}", attributes) as outcome:
            for query_processor in self.query_processors:
                prepared = await runner.change_query(query_processor, prepared)
            results = await self._search(prepared, collection, content, runner, trace)
            prepared = results.query
            fallback = prepared.fallback
            if fallback is not None and len(results) < min(fallback.minimum, prepared.top_k):
                prepared = _fallen_back(prepared, fallback, len(results))
                results = await self._search(prepared, collection, content, runner, trace)
                prepared = results.query
            for processor in self.result_processors:
                if not processor.after_cut:
                    results = await runner.change_results(processor, results)
            results = _cut(results, trace, self.search_options.token_budget)
            for processor in self.result_processors:
                if processor.after_cut:
                    results = await runner.change_results(processor, results)
            outcome["nbrag.results"] = len(results)
        warnings = (*prepared.warnings, *results.warnings)
        return replace(results, warnings=tuple(dict.fromkeys(warnings)), trace=trace)

    async def _planted(
        self, query: RetrievalQuery, collection: Collection
    ) -> tuple[RetrievalQuery, Forest | None]:
        """Return the query with a strategy that there is, and the summary tree it goes through."""
        mode = Strategy(self.search_options.mode)
        if (query.strategy or mode) is not Strategy.TREE:
            return query, None
        forest = await read_forest(collection, query.filter)
        if forest is None:
            reason, way = "there is no summary tree to search", "the stage tree of %%rag_ingest"
            if self.strict:
                raise StageError("search", f"{reason}.", hint=f"{way} makes one")
            instead = Strategy.HYBRID if mode is Strategy.TREE else mode
            return replace(query, strategy=instead, fallback=None).with_warning(
                f"stage 'search': {reason}; {instead} search was used instead ({way} makes one)"
            ), None
        for warning in forest.warnings():
            query = query.with_warning(warning)
        return replace(query, strategy=Strategy.TREE), forest

    async def _search(
        self,
        query: RetrievalQuery,
        collection: Collection,
        content: str | None,
        runner: StageRunner,
        trace: Trace,
    ) -> RetrievalResults:
        """Search, ever deeper until there are as many distinct chunks as the stages want."""
        needed = [p.candidates_needed(query.top_k) for p in self.result_processors]
        wanted = max(query.top_k, *needed) if needed else query.top_k
        searcher = Searcher(self.search_options, self._matching_embedder(collection))
        size, depth = wanted, max(wanted, self.search_options.candidates)
        with runner.span("search") as outcome:
            query, forest = await self._planted(query, collection)

            async def look() -> Found:
                return await searcher.search(query, collection, depth, wanted=size, forest=forest)

            found = await look()
            chunks: list[RetrievalChunk] = []
            for widening in range(_MOST_WIDENINGS + 1):
                rows = await _rows(found, len(chunks), size, collection, content)
                chunks += rows if forest is None else map(forest.described, rows)
                distinct = distinct_chunks(chunks)
                seen_all = size >= len(found.fused)
                nothing_left = seen_all and found.complete(depth)
                if len(distinct) >= wanted or nothing_left or widening == _MOST_WIDENINGS:
                    break
                size = max(size * 2, self.search_options.candidates)
                if seen_all:
                    # A deeper search may order its results differently: all rows anew.
                    depth, chunks = depth * 2, []
                    found = await look()
            outcome["nbrag.candidates"] = len(found.fused)
        trace.note_lists(found.lists)
        for level in found.levels:
            ranked = [(item.chunk_id, item.score) for item in level.items]
            trace.note(
                f"level {level.number}", ranked, explanation=f"{level.looked_at} were looked at"
            )
        explanation = searcher.explanation(query)
        trace.note_chunks(
            "search", chunks, milliseconds=outcome["milliseconds"], explanation=explanation
        )
        if len(distinct) < len(chunks):
            trace.note_chunks("distinct", distinct[:wanted], explanation="repeated texts dropped")
        return RetrievalResults(query, tuple(distinct[:wanted]), dict(query.metadata))

    def _matching_embedder(self, collection: Collection) -> Callable[[], Embedder]:
        """Return the embedder, refusing one that the collection was not made with."""

        def embedder() -> Embedder:
            found = self._embedder()
            if found.identity != collection.identity.searched_with:
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

    def as_answerer(self, collection: Collection) -> Orchestrator:
        """Return what answers questions about one collection by the pipeline's last stage.

        Without such a stage it is the plain ``answer``.

        Raises
        ------
        ConfigurationError
            When there is no chat model.
        SpecificationError
            When the pipeline was not built from a specification.
        """
        if self._answering is None:
            raise SpecificationError(
                "this pipeline was made from objects and has no stage that answers.",
                hint="hand pipeline.as_retriever(collection) to an nbrag.orchestration.Answerer",
            )
        return self._answering(self.as_retriever(collection))

    def _require_spec(self) -> PipelineSpec:
        if self.spec is None:
            raise SpecificationError(
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
        name = self.spec.name if self.spec else "pipeline"
        rows = [[stage, options] for stage, options in self._stages()]
        return render_table(f"Pipeline {name}", ["stage", "options"], rows)

    def _stages(self) -> Iterator[tuple[str, str]]:
        """Yield each stage's name and options, in the order in which they run."""
        early = [p for p in self.result_processors if not p.after_cut]
        late = [p for p in self.result_processors if p.after_cut]
        for processor in self.query_processors:
            yield processor.name, _shown(getattr(processor, "options", None))
        yield "search", _shown(self.search_options)
        for result_processor in (*early, *late):
            yield result_processor.name, _shown(getattr(result_processor, "options", None))
        answering = None if self.spec is None else self.spec.answer_stage()
        if answering is not None:
            yield answering.name, _shown(answering.options)

    def __repr__(self) -> str:
        """Name the stages."""
        return f"<RetrievalPipeline {' -> '.join(name for name, _ in self._stages())}>"

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


def _shown(options: Any) -> str:
    """Return a stage's options as a cell has them."""
    if not isinstance(options, StageOptions):
        return "an own object"
    changed = StageSpec("", options).changed_options()
    pairs = [f"{key}={format_value(value)}" for key, value in changed.items()]
    return "  ".join(pairs) or "default options"


def _asked(query: Any) -> RetrievalQuery:
    """Return what was asked as a query."""
    if isinstance(query, RetrievalQuery):
        return query
    if isinstance(query, str):
        return RetrievalQuery(query)
    raise QueryError(
        f"the question is a {type(query).__name__}.", hint="give text or a RetrievalQuery"
    )


def _prepare(query: str | RetrievalQuery, top_k: int | None, where: Any) -> RetrievalQuery:
    """Return the query that the stages start from."""
    prepared = _asked(query)
    if not prepared.text.strip() and not any(v.vector is not None for v in prepared.variants):
        raise QueryError("the question is empty.", hint="write what you want to find")
    if encodable(prepared.text) != prepared.text:
        raise QueryError(
            "the question holds half of a surrogate pair, which is no character.",
            hint="decode it with errors='replace'",
        )
    wanted: Any = prepared.top_k if top_k is None else top_k
    # Whole numbers of NumPy and pandas count too.
    if not isinstance(wanted, Integral) or int(wanted) < 1:
        raise QueryError(f"top_k is {wanted!r}.", hint="ask for a whole number, 1 or more")
    prepared = replace(prepared, top_k=int(wanted))
    if where is not None:
        from nbrag.stores.filters import as_filter

        given = as_filter(where)
        both = given if prepared.filter is None or given is None else prepared.filter & given
        prepared = replace(prepared, filter=both)
    return prepared


def _fallen_back(query: RetrievalQuery, fallback: Fallback, found: int) -> RetrievalQuery:
    """Return the query without what narrowed it, and the warning that says so."""
    chunks = "1 chunk" if found == 1 else f"{found} chunks"
    how = "" if fallback.strategy is None else f"{fallback.strategy} "
    widened = replace(query, strategy=fallback.strategy, filter=fallback.filter, fallback=None)
    return widened.with_warning(
        f"{fallback.reason} found {chunks}; a {how}search without it was used instead"
    )


async def _rows(
    found: Found, start: int, stop: int, collection: Collection, content: str | None
) -> list[RetrievalChunk]:
    """Return the stored chunks of a stretch of the fused list, with their ranks so far."""
    items = found.fused[start:stop]
    rows = await collection.chunks([item.chunk_id for item in items], content=content)
    histories = found.histories(rows)
    return [
        replace(rows[item.chunk_id], history=histories[item.chunk_id]).ranked(
            "search", rank, item.score
        )
        for rank, item in enumerate(items, start=start + 1)
        if item.chunk_id in rows
    ]


def _cut(results: RetrievalResults, trace: Trace, budget: int) -> RetrievalResults:
    """Return the best ``top_k`` results, without repeats that stages may have brought in.

    What was found in a summary tree has to fit the token budget too.
    """
    distinct, most, said = distinct_chunks(results.chunks), results.query.top_k, ""
    if results.query.strategy is Strategy.TREE:
        distinct, used = within_budget(distinct, most, budget)
        said = f"{used} tokens of {budget}"
        results = replace(results, metadata={**results.metadata, "tree_tokens": used})
    cut = tuple(
        chunk.ranked("result", rank, None) for rank, chunk in enumerate(distinct[:most], start=1)
    )
    trace.note_chunks("result", cut, explanation=said)
    return replace(results, chunks=cut)
