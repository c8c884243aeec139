"""The magics: each a thin adapter over a method of the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import (
    Magics,
    line_cell_magic,
    line_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)

from nbrag.errors import (
    ConfigurationError,
    MagicUsageError,
    QueryError,
    did_you_mean,
)
from nbrag.notebook.adapter import Call, adapter, common_options
from nbrag.notebook.answering import ask
from nbrag.notebook.arguments import argument, magic_options, positive_integer, split_words
from nbrag.notebook.configuration import SettingsView
from nbrag.notebook.expansion import look_up
from nbrag.notebook.progress import Progress

if TYPE_CHECKING:
    from nbrag.evaluation import EvaluationReport
    from nbrag.ingestion import IngestionProgress, IngestPreview, IngestReport
    from nbrag.models.chat import LedgerView
    from nbrag.models.listing import ModelsView
    from nbrag.notebook.panels.base import Panel
    from nbrag.notebook.session import NotebookSession
    from nbrag.retrieval import RetrievalPipeline
    from nbrag.spec import PipelineSpec
    from nbrag.tracing import Trace
    from nbrag.types import Answer, RetrievalResults

__all__ = ["RagMagics"]

_DEFAULT_METRICS = ("recall@5", "MRR", "nDCG@10")


@magics_class
class RagMagics(Magics):
    """All magics of nbrag.

    Parameters
    ----------
    shell
        The IPython shell.
    session
        What the magics share.
    """

    def __init__(self, shell: Any, session: NotebookSession) -> None:
        super().__init__(shell)
        self.session = session

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @magic_options
    @argument("settings", nargs="*", metavar="KEY=VALUE", help="Settings to change.")
    @argument("--reset", action="store_true", help="Forget the named settings, or all of them.")
    @common_options
    @adapter()
    def rag_config(self, call: Call) -> SettingsView | None:
        """Change or show the settings of this notebook.

        %rag_config database=handbook.duckdb top_k=8
        %rag_config

        Without settings it shows each one's value, default and source. A setting comes from
        %rag_config, else from the environment (NBRAG_TOP_K=8), else from [tool.nbrag] of the
        nearest pyproject.toml. Keys of providers are read from the environment only.
        """
        words = [*call.options.settings, *_setting_lines(call.body or "")]
        if call.options.reset:
            self.session.reset(words)
        elif words:
            self.session.configure(_pairs(words))
        else:
            return self.session.configuration.view()
        return None

    @no_var_expand
    @needs_local_scope
    @line_magic
    @magic_options
    @common_options
    @adapter()
    def rag_ledger(self, call: Call) -> LedgerView:  # noqa: ARG002
        """Show what the chat model was asked, and what it cost, by stage.

        %rag_ledger

        A cost that is not known is shown as unknown. Each call is a row of the table
        nbrag.ledger, those of earlier sessions too.
        """
        return self.session.workspace.ledger()

    @no_var_expand
    @needs_local_scope
    @line_magic
    @magic_options
    @common_options
    @adapter()
    def rag_models(self, call: Call) -> ModelsView:  # noqa: ARG002
        """Show the embedding and reranking models of this machine, and how to get the usual ones.

        %rag_models

        What each is for, its size and licence, whether it is loaded, and what uses it. Nothing is
        downloaded or opened for it.
        """
        from nbrag.model_list import workspace_models

        return workspace_models(self.session.workspace)

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @magic_options
    @argument("collection", nargs="?", metavar="COLLECTION", help="Made when it is not there.")
    @argument("--from", dest="sources", nargs="+", metavar="PATH", help="Files, folders, URLs.")
    @argument("--from-var", metavar="NAME", help="A variable: texts, records, a data frame.")
    @argument("--text-column", default="text", metavar="FIELD", help="The text of records.")
    @argument("--replace", action="store_true", help="Remove documents that the sources lack.")
    @argument("--append", action="store_true", help="Keep them (this is the default).")
    @argument("--dry-run", action="store_true", help="Count documents, calls and tokens only.")
    @common_options
    @adapter()
    def rag_ingest(self, call: Call) -> IngestReport | IngestPreview:
        """Ingest documents into a collection; the cell holds the stages, one per line.

        %rag_ingest docs --from handbook/

        %%rag_ingest docs --from handbook/ notes.pdf --replace -o report
        chunk  max_tokens=200

        Documents that have not changed are skipped, changed ones are replaced. With -q only the
        summary line stays. --dry-run counts documents, chunks, and the calls and tokens of a chat
        model that stages would take, and does nothing else.
        """
        options = call.options
        name = options.collection or self.session.configuration["collection"]
        if name is None:
            raise MagicUsageError(
                "%rag_ingest: no collection is named.", hint="%rag_ingest docs --from FOLDER"
            )
        if options.replace and options.append:
            raise MagicUsageError("%rag_ingest: --replace and --append exclude each other.")
        if bool(options.sources) == bool(options.from_var):
            raise MagicUsageError(
                "%rag_ingest: say what to read, by either --from PATH or --from-var NAME.",
                hint="%rag_ingest docs --from FOLDER",
            )
        spec = _body_spec(call, "ingestion", name, sources=options.sources or ())
        sources = look_up(options.from_var, call.namespace) if options.from_var else options.sources
        if options.dry_run:
            return self.session.workspace.preview(
                name, sources, spec=spec, text_column=options.text_column
            )
        with Progress(self.shell) as progress:

            def show(state: IngestionProgress) -> None:
                progress.update(
                    _ingest_line(name, state), state.documents_done, state.documents_total
                )

            report = self.session.workspace.ingest(
                name,
                sources,
                spec=spec,
                remove_missing=options.replace,
                text_column=options.text_column,
                progress=show,
            )
            progress.finish(report, summary=report.summary if options.quiet else None)
        return report

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @magic_options
    @argument("name", metavar="NAME", help="The pipeline.")
    @argument("-c", "--collection", metavar="NAME", help="What it searches when nothing is named.")
    @argument("--file", metavar="FILE", help="Read it from a .json file or the text of a cell.")
    @common_options
    @adapter()
    def rag_pipeline(self, call: Call) -> RetrievalPipeline:
        """Define a retrieval pipeline, one stage per line; as a line magic, show it.

        %%rag_pipeline support -c docs
        search  mode=hybrid

        %rag_pipeline support
        """
        options, workspace = call.options, self.session.workspace
        body = (call.body or "").strip()
        if options.file and body:
            raise MagicUsageError("%%rag_pipeline: stages are given in the cell and by --file.")
        if options.file:
            from nbrag.notebook.pipeline_files import read_pipeline_file

            spec = read_pipeline_file(
                options.file, name=options.name, collection=options.collection
            )
            workspace.save_pipeline(spec)
        elif call.body is not None:
            workspace.save_pipeline(
                _body_spec(call, "retrieval", options.name, collection=options.collection)
            )
        elif options.collection:
            raise MagicUsageError(
                "%rag_pipeline: -c belongs to a definition.",
                hint="define the pipeline in a cell: %%rag_pipeline NAME -c COLLECTION",
            )
        return workspace.pipeline(options.name)

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @magic_options
    @argument("-p", "--pipeline", metavar="NAME", help="The pipeline.")
    @argument("-c", "--collection", metavar="NAME", help="The collection.")
    @argument("-k", "--top-k", type=positive_integer, metavar="N", help="Most results.")
    @argument("--where", metavar="FILTER", help="A filter, in quotes: 'page >= 3'.")
    @argument("question", nargs="*", metavar="QUESTION", help="Verbatim to the end of the line.")
    @common_options
    @adapter(free_text=True)
    def rag_search(self, call: Call) -> RetrievalResults:
        """Search a collection through a pipeline.

        %rag_search -c docs -k 3 How long are backups kept in the EU region?
        %rag_search --where 'source.startswith("ops/")' -o found What's a $5 -k "plan"?

        Options stand first; the question is taken as it is typed, or is the cell.
        """
        options, workspace = call.options, self.session.workspace
        if not call.text:
            raise QueryError(
                "the question is empty.", hint="%rag_search How long are backups kept?"
            )
        settings = self.session.configuration.resolve()
        pipeline = options.pipeline or settings["pipeline"].value
        collection = options.collection or workspace.pipeline_spec(pipeline).collection
        results = workspace.search(
            call.text,
            pipeline=pipeline,
            collection=collection or settings["collection"].value,
            top_k=options.top_k or settings["top_k"].value,
            where=options.where,
        )
        self.session.last_results = results
        return results

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @magic_options
    @argument("-p", "--pipeline", metavar="NAME", help="The pipeline.")
    @argument("-c", "--collection", metavar="NAME", help="The collection.")
    @argument("-k", "--top-k", type=positive_integer, metavar="N", help="Most passages.")
    @argument("--where", metavar="FILTER", help="A filter, in quotes: 'page >= 3'.")
    @argument("--model", metavar="NAME", help="Another chat model, for this answer.")
    @argument("--no-citations", action="store_true", help="The answer alone.")
    @argument("--follow-up", action="store_true", help="Go on from the answer before.")
    @argument("question", nargs="*", metavar="QUESTION", help="Verbatim to the end of the line.")
    @common_options
    @adapter(free_text=True)
    def rag_ask(self, call: Call) -> Answer:
        """Answer a question from a collection, with citations that are checked.

        %rag_ask -c docs How long are backups kept in the EU region?
        %rag_ask --follow-up And in the US?

        Options stand first; the question is taken as it is typed, or is the cell. Each question
        stands alone, so that a cell gives the same whenever it is run; with --follow-up it goes on
        from the answer before, and a question without it begins anew.
        """
        return ask(self.session, self.shell, call)

    @no_var_expand
    @needs_local_scope
    @line_magic
    @magic_options
    @argument("pipelines", nargs="+", metavar="PIPELINE", help="The first is the baseline.")
    @argument("--cases", required=True, metavar="FILE", help="A .jsonl file or BEIR folder.")
    @argument("--metrics", nargs="+", metavar="METRIC", help="recall@5 MRR nDCG@10 by default.")
    @argument("-c", "--collection", metavar="NAME", help="The collection.")
    @common_options
    @adapter()
    def rag_eval(self, call: Call) -> EvaluationReport:
        """Measure pipelines on judged questions.

        %rag_eval plain support --cases handbook/questions.jsonl
        %rag_eval default --cases beir/scifact --metrics nDCG@10,recall@20
        """
        options, workspace = call.options, self.session.workspace
        given = [part for word in options.metrics or () for part in word.split(",") if part]
        baseline = workspace.pipeline_spec(options.pipelines[0])
        label = ", ".join(options.pipelines)
        with Progress(self.shell) as progress:
            report = workspace.evaluate(
                options.pipelines,
                _cases(options.cases, call),
                collection=options.collection
                or baseline.collection
                or self.session.configuration["collection"],
                metrics=given or _DEFAULT_METRICS,
                progress=lambda done, total: progress.update(
                    f"{label}: {done} of {total} questions", done, total
                ),
            )
            progress.finish(report, summary=f"{label}: measured" if options.quiet else None)
        return report

    @no_var_expand
    @needs_local_scope
    @line_magic
    @magic_options
    @argument("panel", metavar="PANEL", help="ingest, pipeline, search, eval or map.")
    @argument("names", nargs="*", metavar="NAME", help="Pipelines; for ingest, what is read.")
    @argument("-c", "--collection", metavar="NAME", help="The collection.")
    @argument("--question", metavar="TEXT", help="What is asked at once, in quotes.")
    @argument("--cases", metavar="CASES", help="Judgements to measure on.")
    @argument("--file", metavar="FILE", help="A pipeline's file to begin with.")
    @common_options
    @adapter()
    def rag_panel(self, call: Call) -> Panel:
        """Open a panel: build, run and inspect pipelines with controls.

        %rag_panel pipeline support
        %rag_panel search plain support -c docs --question "How long are backups kept?"
        %rag_panel ingest handbook/ notes/*.md -c docs
        %rag_panel eval plain support --cases cases.jsonl
        %rag_panel map -c docs --question "How long are backups kept?"

        Running the cell again closes the panel that it showed before.
        """
        from nbrag.notebook.panels import panel, panel_definitions

        options = call.options
        given = {
            name: getattr(options, name)
            for name in ("collection", "question", "cases", "file")
            if getattr(options, name) is not None
        }
        if "cases" in given:
            given["cases"] = _cases(given["cases"], call)
        definition = panel_definitions().get(options.panel)
        collection = self.session.configuration["collection"]
        if definition and "collection" in definition.options and collection is not None:
            given.setdefault("collection", collection)
        return panel(options.panel, lambda: self.session.workspace, *options.names, **given)

    @no_var_expand
    @needs_local_scope
    @line_magic
    @magic_options
    @argument("result", nargs="?", metavar="RESULT", help="By default the last search.")
    @argument("--stage", metavar="NAME", help="This stage alone.")
    @common_options
    @adapter()
    def rag_trace(self, call: Call) -> Trace:
        """Show what each stage of a search did.

        %rag_trace
        %rag_trace found --stage keyword
        """
        name = call.options.result
        results = look_up(name, call.namespace) if name else self.session.last_results
        if results is None:
            raise MagicUsageError(
                "%rag_trace: there was no search yet.", hint="run %rag_search first"
            )
        trace: Trace | None = getattr(results, "trace", None)
        if trace is None:
            kind = type(results).__name__
            raise MagicUsageError(
                f"%rag_trace: a {kind} without a trace can't be shown.",
                hint="give the result of a search: %rag_search -o found ...",
            )
        return trace if call.options.stage is None else _one_stage(trace, call.options.stage)


def _setting_lines(body: str) -> list[str]:
    """Return the words of a cell of settings; lines that begin with # are comments."""
    lines = [line for line in body.splitlines() if not line.lstrip().startswith("#")]
    return [word for line in lines for word in split_words(line)]


def _pairs(words: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigurationError(
                f"'{word}' is not KEY=VALUE.", hint=f"write {word}=..., or --reset {word}"
            )
        if name in pairs:
            raise ConfigurationError(f"setting '{name}' is given twice.")
        pairs[name] = value
    return pairs


def _body_spec(call: Call, kind: Any, name: str, **place: Any) -> PipelineSpec:
    """Return the specification in a cell's body; errors count lines from the magic's line."""
    from nbrag.spec import PipelineSpec

    return PipelineSpec.from_body(kind, call.body or "", name=name, first_line=2, **place)


def _cases(name: str, call: Call) -> Any:
    """Return what ``--cases`` names: a path that exists, else a variable, else the path."""
    if not Path(name).exists() and name.isidentifier() and name in call.namespace:
        return call.namespace[name]
    return name


def _one_stage(trace: Trace, name: str) -> Trace:
    """Return the trace of one stage alone."""
    from dataclasses import replace

    kept = [record for record in trace.stages if record.stage == name]
    if not kept:
        known = {record.stage for record in trace.stages}
        raise MagicUsageError(
            f"%rag_trace: the search had no stage '{name}'.",
            hint=did_you_mean(name, known, what="stages"),
        )
    return replace(trace, stages=kept)


def _ingest_line(name: str, state: IngestionProgress) -> str:
    total = "" if state.documents_total is None else f" of {state.documents_total}"
    return (
        f"{name}: {state.documents_done}{total} documents, "
        f"{state.chunks_embedded} chunks embedded ({state.stage})"
    )
