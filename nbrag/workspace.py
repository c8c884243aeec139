"""A workspace: one database file, and what belongs together in it.

Collections, pipelines, traces and evaluation runs are tables of the file; the models are held
here. Everything that magics and panels do goes through these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from nbrag.asking import DEFAULT_PIPELINE, AskingWorkspace
from nbrag.background import run, run_with_progress
from nbrag.chat_models import ChatModels
from nbrag.errors import (
    CollectionNotFound,
    ConfigurationError,
    DatabaseReadOnly,
    PipelineNotFound,
    did_you_mean,
)

if TYPE_CHECKING:
    from nbrag.evaluation import EvaluationReport, Judgements, KeptJudgements
    from nbrag.ingestion import (
        IngestionPipelineBuilder,
        IngestionProgress,
        IngestPreview,
        IngestReport,
    )
    from nbrag.models.chat import Budget, LedgerView, ManagedChatClient
    from nbrag.protocols import ChatClient, Collection, Embedder
    from nbrag.retrieval import RetrievalPipeline, RetrievalPipelineBuilder
    from nbrag.spec import BuildContext, PipelineSpec
    from nbrag.stores.duckdb import DuckDBDatabase
    from nbrag.types import RetrievalResults

__all__ = ["DEFAULT_PIPELINE", "Workspace"]


class Workspace(AskingWorkspace):
    """One DuckDB file with its collections and pipelines, and the models that they use.

    Parameters
    ----------
    path
        The database file, made when it does not exist; ``:memory:`` for a throw-away one.
    embedder
        An embedder, or its name (``minilm``, a folder, a hub name, ``litellm:provider/model``);
        None is the built-in model. It is loaded when it is first needed.
    read_only
        Whether the file is only read, which several processes may do at the same time.
    index
        How vectors are searched: ``exact``, ``hnsw``, or ``auto``: exact as long as the vectors
        fit a memory budget.
    chat
        A chat client, or its name (``openai/gpt-4o-mini``, ``local``, ``replay:replies.jsonl``);
        None takes the environment variable ``NBRAG_MODEL``. Only stages that ask a model need
        one. Replies are kept in the file, and each call is a row of ``nbrag.ledger``.
    budget
        How much the chat model may use up, or None for no limit.
    concurrency
        Most calls of the chat model at the same time.

    Raises
    ------
    DatabaseLocked
        When another process holds the file; its id is in the message.
    NewerFormat
        When the file was written by a newer nbrag.
    StoreError
        When the file is no database or can't be opened.

    Examples
    --------
    >>> workspace = Workspace(":memory:")  # doctest: +SKIP
    >>> workspace.ingest("docs", "handbook/")  # doctest: +SKIP
    >>> workspace.search("How long are backups kept?", collection="docs")  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path = ":memory:",
        *,
        embedder: Embedder | str | None = None,
        read_only: bool = False,
        index: Literal["auto", "exact", "hnsw"] = "auto",
        chat: ChatClient | str | Path | None = None,
        budget: Budget | None = None,
        concurrency: int = 8,
    ) -> None:
        from nbrag.stores.duckdb import DuckDBDatabase

        if index not in ("auto", "exact", "hnsw"):
            raise ConfigurationError(
                f"index {index!r} is not known.",
                hint=did_you_mean(str(index), ("auto", "exact", "hnsw")),
            )
        self.path = str(path)
        self.read_only = read_only
        self.index = index
        self.embedder_choice = embedder
        self._embedder: Embedder | None = None
        self._open: dict[str, Collection] = {}
        self._last_collection: str | None = None
        self.database: DuckDBDatabase = DuckDBDatabase(path, read_only=read_only)
        self.models = ChatModels(self.database, chat, budget=budget, concurrency=concurrency)

    # Models ------------------------------------------------------------------------------

    @property
    def embedder(self) -> Embedder:
        """The embedder of this workspace; found at first use, loaded when it first embeds."""
        if self._embedder is None:
            from nbrag.models.embedding import default_embedder, resolve_embedder

            choice = self.embedder_choice
            self._embedder = default_embedder() if choice is None else resolve_embedder(choice)
        return self._embedder

    @property
    def chat(self) -> ManagedChatClient:
        """The chat model of this workspace, with its cache, budget and accounts.

        Raises
        ------
        ConfigurationError
            When none is configured; with three ways to give one.
        """
        return self.models.client

    def use_chat(
        self,
        chat: ChatClient | str | Path | None,
        *,
        budget: Budget | None = None,
        concurrency: int = 8,
    ) -> None:
        """Take another chat model from now on; parameters and errors as for the workspace."""
        self.models.replace(chat, budget=budget, concurrency=concurrency)

    def ledger(self) -> LedgerView:
        """Return this session's calls of chat models; ``nbrag.ledger`` has those of all times."""
        return self.models.ledger()

    @property
    def context(self) -> BuildContext:
        """What stages are built with."""
        from nbrag.spec import BuildContext

        return BuildContext(
            embedder=lambda: self.embedder,
            chat=lambda: self.chat,
            other_chat=self.models.other,
        )

    # Collections -------------------------------------------------------------------------

    def collections(self) -> list[str]:
        """Return the names of the collections, in order."""
        from nbrag.stores.duckdb import list_collections

        return list_collections(self.database)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a collection of that name."""
        return name in self.collections()

    def __getitem__(self, name: str) -> Collection:
        """Return an existing collection.

        Raises
        ------
        CollectionNotFound
            With the nearest name there is.
        """
        from nbrag.stores.duckdb import open_collection

        known = self.collections()
        if name not in known:
            self._open.pop(name, None)
            raise CollectionNotFound(
                f"there is no collection '{name}' in {self._shown_path}.",
                hint=did_you_mean(name, known, what="collections"),
            )
        if name not in self._open:
            self._open[name] = open_collection(self.database, name, index=self.index)
        return self._open[name]

    def collection(self, name: str, *, embedder: Embedder | None = None) -> Collection:
        """Return the collection of that name; it is made for the embedder if need be."""
        from nbrag.stores.duckdb import create_collection

        if name in self.collections():
            return self[name]
        if self.read_only:
            raise DatabaseReadOnly(
                f"collection '{name}' can't be made: the workspace is open for reading only.",
                hint="open it with read_only=False",
            )
        self._open[name] = create_collection(
            self.database, name, (embedder or self.embedder).identity, index=self.index
        )
        return self._open[name]

    def drop_collection(self, name: str) -> None:
        """Delete a collection with all that is in it."""
        from nbrag.stores.duckdb import drop_collection

        _ = self[name]
        self._open.pop(name, None)
        drop_collection(self.database, name)

    def choose_collection(self, name: str | None, spec: PipelineSpec | None = None) -> Collection:
        """Return the collection that is meant.

        The named one; else the pipeline's own; else the one ingested last; else the only one.

        Raises
        ------
        CollectionNotFound
            When there is none, or several and nothing to choose by.
        """
        wanted = name or (spec.collection if spec is not None else None)
        if wanted:
            return self[wanted]
        known = self.collections()
        if self._last_collection in known:
            return self[str(self._last_collection)]
        if len(known) == 1:
            return self[known[0]]
        if not known:
            raise CollectionNotFound(
                f"there is no collection yet in {self._shown_path}.",
                hint="ingest documents first, e.g. %rag_ingest docs --from FOLDER",
            )
        raise CollectionNotFound(
            "there are several collections, and none was named.",
            hint=f"name one: {', '.join(known)}",
        )

    @property
    def _shown_path(self) -> str:
        return "this workspace" if self.path == ":memory:" else Path(self.path).name

    # Pipelines ---------------------------------------------------------------------------

    def ingestion_pipeline(self, name: str = "pipeline") -> IngestionPipelineBuilder:
        """Return a builder of ingestion pipelines."""
        from nbrag.ingestion import IngestionPipelineBuilder
        from nbrag.spec import PipelineSpec

        return IngestionPipelineBuilder(PipelineSpec("ingestion", name), self.context)

    def retrieval_pipeline(self, name: str = "pipeline") -> RetrievalPipelineBuilder:
        """Return a builder of retrieval pipelines."""
        from nbrag.retrieval import RetrievalPipelineBuilder
        from nbrag.spec import PipelineSpec

        return RetrievalPipelineBuilder(PipelineSpec("retrieval", name), self.context)

    def save_pipeline(self, spec: PipelineSpec) -> None:
        """Keep a retrieval pipeline under its name; one of the same name is replaced."""
        from nbrag.stores.duckdb.pipelines import keep_pipeline

        if spec.kind != "retrieval":
            raise ConfigurationError("only retrieval pipelines are kept under a name.")
        keep_pipeline(self.database, spec.name, spec.to_json())

    def pipelines(self) -> list[str]:
        """Return the names of the pipelines, the built-in one among them."""
        from nbrag.stores.duckdb.pipelines import kept_pipelines

        return sorted({DEFAULT_PIPELINE, *kept_pipelines(self.database)})

    def pipeline_spec(self, name: str) -> PipelineSpec:
        """Return the specification of a kept pipeline.

        Raises
        ------
        PipelineNotFound
            With the nearest name there is.
        """
        from nbrag.spec import PipelineSpec
        from nbrag.stores.duckdb.pipelines import kept_pipeline

        kept = kept_pipeline(self.database, name)
        if kept is not None:
            return PipelineSpec.from_json(kept)
        if name == DEFAULT_PIPELINE:
            return PipelineSpec("retrieval", DEFAULT_PIPELINE)
        raise PipelineNotFound(
            f"there is no pipeline '{name}'.",
            hint=did_you_mean(name, self.pipelines(), what="pipelines"),
        )

    def pipeline(self, name: str = DEFAULT_PIPELINE) -> RetrievalPipeline:
        """Return a kept pipeline, ready to run."""
        from nbrag.retrieval import RetrievalPipelineBuilder

        return RetrievalPipelineBuilder(self.pipeline_spec(name), self.context).build()

    # What is done with them --------------------------------------------------------------

    def ingest(
        self,
        collection: str,
        sources: Any = None,
        *,
        spec: PipelineSpec | None = None,
        remove_missing: bool = False,
        text_column: str = "text",
        progress: Callable[[IngestionProgress], None] | None = None,
    ) -> IngestReport:
        """Ingest sources into a collection, which is made if need be.

        Parameters
        ----------
        collection
            Its name.
        sources
            Files, folders, globs, URLs or records, one or several; None takes the
            specification's own.
        spec
            The stages; None for the default ones.
        remove_missing
            Whether documents that the sources no longer give are deleted.
        text_column
            Where records keep their text.
        progress
            Called in the calling thread, about ten times a second.
        """
        from nbrag.ingestion import IngestionPipelineBuilder
        from nbrag.ingestion.preview import given_sources
        from nbrag.spec import PipelineSpec

        chosen = spec or PipelineSpec("ingestion", collection)
        given = given_sources(chosen, sources)
        pipeline = IngestionPipelineBuilder(chosen, self.context).build()
        target = self.collection(collection, embedder=pipeline.embedder)
        report = run_with_progress(
            lambda keep: pipeline.run(
                given,
                target,
                remove_missing=remove_missing,
                text_column=text_column,
                progress=keep,
            ),
            progress,
        )
        self._last_collection = collection
        return report

    def preview(
        self,
        collection: str,
        sources: Any = None,
        *,
        spec: PipelineSpec | None = None,
        text_column: str = "text",
    ) -> IngestPreview:
        """Count what :meth:`ingest` would do: nothing is embedded, asked or written."""
        from nbrag.ingestion.preview import preview
        from nbrag.spec import PipelineSpec

        chosen = spec or PipelineSpec("ingestion", collection)
        known = self[collection] if collection in self.collections() else None
        return run(preview(chosen, sources, self.context, known, text_column=text_column))

    def search(
        self,
        question: str,
        *,
        collection: str | None = None,
        pipeline: str = DEFAULT_PIPELINE,
        top_k: int = 5,
        where: Any = None,
        content: str | None = None,
    ) -> RetrievalResults:
        """Search a collection through a kept pipeline.

        Parameters
        ----------
        question
            The question.
        collection
            Which collection; see :meth:`choose_collection`.
        pipeline
            Name of the pipeline.
        top_k
            Most results.
        where
            A filter expression or :class:`nbrag.stores.filters.Filter`.
        content
            A field to be taken as the chunks' text.
        """
        spec = self.pipeline_spec(pipeline)
        target = self.choose_collection(collection, spec)
        built = self.pipeline(pipeline)
        results = run(built.process(target, question, top_k=top_k, content=content, where=where))
        return self._with_recorded_trace(results, pipeline)

    @property
    def judgements(self) -> KeptJudgements:
        """Judgements that are kept in the file: what was marked in a panel, or from a script."""
        from nbrag.evaluation import KeptJudgements

        return KeptJudgements(self.database)

    def evaluate(
        self,
        pipelines: Sequence[str],
        judgements: Judgements | str | Path,
        *,
        collection: str | None = None,
        metrics: Iterable[str] = ("recall@5", "MRR", "nDCG@10"),
        progress: Callable[[int, int], None] | None = None,
    ) -> EvaluationReport:
        """Measure kept pipelines on judged questions.

        Parameters
        ----------
        pipelines
            Names; the first is what the others are compared with.
        judgements
            Judgements, a BEIR folder or JSON Lines file to load them from, or the name of those
            that are kept in the workspace.
        collection
            Which collection; see :meth:`choose_collection`.
        metrics
            Names such as ``nDCG@10``, ``recall@5``, ``MRR``, ``P@3``, ``MAP``.
        progress
            Called in the calling thread with questions done and questions in all.
        """
        from nbrag.evaluation import evaluate

        names = list(pipelines) or [DEFAULT_PIPELINE]
        specs: Mapping[str, PipelineSpec] = {name: self.pipeline_spec(name) for name in names}
        target = self.choose_collection(collection, specs[names[0]])
        loaded = self.judgements.find(judgements)

        def start(keep: Callable[[tuple[int, int]], None]) -> Any:
            return evaluate(
                {name: self.pipeline(name) for name in names},
                target,
                loaded,
                metrics=tuple(metrics),
                progress=lambda done, total: keep((done, total)),
            )

        tell = None if progress is None else lambda state: progress(*state)
        report: EvaluationReport = run_with_progress(start, tell)
        return report

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Run SQL over the workspace's tables and return a DuckDB relation.

        Each collection is a schema: ``docs.documents``, ``docs.chunks``; in a file of the same
        name write ``docs.docs.chunks``. nbrag's own tables are in the schema ``nbrag``.
        """
        return self.database.relation(query, parameters)

    # The end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close the database; the workspace can't be used afterwards."""
        self._open.clear()
        self.models.close()
        self.database.close()

    def __enter__(self) -> Self:
        """Return the workspace."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the database."""
        self.close()

    def __repr__(self) -> str:
        """Name the file and the collections, without opening a model."""
        return f"<Workspace {self._shown_path}>"
