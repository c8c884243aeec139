"""What the pipeline panel does, through the same calls as magics and scripts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from nbrag.errors import SpecificationError
from nbrag.notebook.panels.messages import shown_database
from nbrag.notebook.panels.searching import search_with
from nbrag.spec import PipelineSpec
from nbrag.types import RetrievalResults

if TYPE_CHECKING:
    from nbrag.notebook.panels.jobs import Report
    from nbrag.notebook.panels.pipeline_state import PipelineState
    from nbrag.workspace import Workspace

__all__ = [
    "begin",
    "load",
    "refresh",
    "refresh_code",
    "save",
    "search",
    "should_ask",
    "show_code",
    "take",
]


def refresh(workspace: Workspace, state: PipelineState) -> None:
    """Look which collections and pipelines there are."""
    state.collections = tuple(workspace.collections())
    state.saved = tuple(workspace.pipelines())


def begin(workspace: Workspace, state: PipelineState, name: str | None) -> None:
    """Begin with a saved pipeline, or with the default search under a name that is free."""
    if name is not None:
        load(workspace, state, name)
        return
    spec = workspace.pipeline_spec("default")
    take(workspace, state, spec if spec.stages else spec.with_stage("search"))
    state.name = "pipeline"


def load(workspace: Workspace, state: PipelineState, name: str) -> None:
    """Edit a saved pipeline."""
    take(workspace, state, workspace.pipeline_spec(name))


def take(workspace: Workspace, state: PipelineState, spec: PipelineSpec) -> None:
    """Edit a pipeline."""
    state.load(spec)
    state.collection = spec.collection or ""
    refresh(workspace, state)


def save(workspace: Workspace, state: PipelineState) -> None:
    """Keep the pipeline under its name, for ``%rag_search -p NAME``."""
    if not state.name:
        raise SpecificationError("the pipeline has no name.", hint="write one, e.g. support")
    spec = state.pipeline()
    workspace.save_pipeline(spec)
    refresh(workspace, state)
    state.status = f"Saved: %rag_search -p {spec.name} uses it."


def search(
    workspace: Workspace, state: PipelineState
) -> tuple[
    Callable[[Report], Coroutine[Any, Any, RetrievalResults]], Callable[[RetrievalResults], None]
]:
    """Return the work that asks the question of the pipeline as it is, and what takes its end."""
    spec = state.pipeline()
    question, top_k, asked = state.question, state.top_k, state.fingerprint(spec)

    def work(_: Report) -> Coroutine[Any, Any, RetrievalResults]:
        return search_with(workspace, spec, question, top_k=top_k)

    return work, lambda results: state.keep(results, asked)


def should_ask(state: PipelineState) -> bool:
    """Return whether a change is to be followed by a search: it costs nothing, and is news."""
    if not state.follows:
        return False
    try:
        spec = state.pipeline()
    except SpecificationError:
        return False  # the line beside the option says what is wrong
    return state.fingerprint(spec) != state.asked


def show_code(workspace: Workspace, state: PipelineState, kind: str) -> None:
    """Show the pipeline as a ``cell`` or as ``python``."""
    spec = state.pipeline()
    path = shown_database(workspace.path)
    state.code_kind = kind
    state.code = spec.to_cell() if kind == "cell" else spec.to_python(database=path)


def refresh_code(workspace: Workspace, state: PipelineState) -> None:
    """Keep the shown text true; there is none of a pipeline that does not fit."""
    if state.code_kind:
        try:
            show_code(workspace, state, state.code_kind)
        except SpecificationError:
            state.code = ""
