"""The pipeline panel: stages and their options, with a live question beside them."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

from nbrag.errors import NbragError
from nbrag.notebook.panels import pipeline_actions as actions
from nbrag.notebook.panels.base import Panel
from nbrag.notebook.panels.controls import (
    button,
    choice,
    column,
    markup,
    number,
    row,
    text_area,
    text_line,
)
from nbrag.notebook.panels.messages import without_private
from nbrag.notebook.panels.pipeline_state import PipelineState, compared_table
from nbrag.notebook.panels.snapshots import facts, part
from nbrag.notebook.panels.stages_view import StageEditor
from nbrag.notebook.pipeline_files import read_pipeline_file, read_pipeline_text
from nbrag.rendering import Rendering
from nbrag.spec import PipelineSpec

if TYPE_CHECKING:
    from nbrag.workspace import Workspace

__all__ = ["PipelinePanel"]

_ANY = ("whichever is chosen", "")


class PipelinePanel(Panel):
    """Builds a retrieval pipeline: the same one as a cell or the builder makes.

    Parameters
    ----------
    workspace
        Where it searches and is saved.
    name
        A saved pipeline to begin with; without one the default search.
    collection
        The collection that the pipeline is to search.
    question
        What is asked at once.
    cell, file
        The text of a cell, or a file, to begin with instead.
    """

    heading = "Pipeline"
    state: PipelineState

    def __init__(
        self,
        workspace: Workspace | Callable[[], Workspace],
        name: str | None = None,
        *,
        collection: str | None = None,
        question: str = "",
        cell: str | None = None,
        file: str | None = None,
    ) -> None:
        state = PipelineState()
        super().__init__(workspace, state)
        state.question = question
        self.editor = StageEditor(self, state, self._follow_change)
        self._make_controls()
        self._tie()
        self.act(lambda: self._begin(name, collection, cell, file))
        if question and not state.alert:
            self.act(self.search)
            self.settle()

    def _make_controls(self) -> None:
        self._name = text_line("Name", width="22em")
        self._collection = choice("Collection", [_ANY], "", width="22em")
        self._save = button("Save", kind="primary", help_text="Keep it under its name")
        self._saved = choice("Saved pipeline", [], width="22em")
        self._load = button("Load", help_text="Edit the saved pipeline")
        self._file = text_line("File", placeholder="pipeline.json or .txt", width="22em")
        self._load_file = button("Load file", help_text="Edit the pipeline in the file")
        self._question = text_line(
            "Question", placeholder="How long are backups kept?", width="34em"
        )
        self._top_k = number("Results", 5, least=1, most=100, width="14em")
        self._live = choice(
            "When changed",
            [("ask again", True), ("wait for Search", False)],
            True,
            width="19em",
        )
        self._search = button("Search", kind="primary")
        self._found = markup()
        self._as_cell = button("Show as cell")
        self._as_python = button("Show as Python")
        self._code = text_area("Text", placeholder="a cell, its stages alone, or JSON", rows=7)
        self._load_text = button("Load text", help_text="Edit the pipeline that the text says")
        beside = column(
            row(self._question, self._search),
            row(self._top_k, self._live),
            self._found,
            grow=True,
        )
        stages = column(self.editor.view, width="35em")
        stages.layout.margin = "0 1.5em 0 0"
        both = row(stages, beside)
        both.layout.align_items = "flex-start"
        self.lay_out(
            row(self._name, self._collection, self._save),
            row(self._saved, self._load, self._file, self._load_file),
            both,
            row(self._as_cell, self._as_python, self._load_text),
            self._code,
        )

    def _tie(self) -> None:
        state = self.state
        self.on_change(self._name, lambda value: state.set_trait("name", value.strip()))
        self.on_change(self._collection, lambda value: state.set_trait("collection", value))
        self.on_change(self._question, self._ask)
        self.on_change(self._top_k, lambda value: state.set_trait("top_k", value))
        self.on_change(self._live, lambda value: state.set_trait("live", value))
        self.on_change(self._code, self._typed)
        self.on_click(self._search, self.search)
        self.on_click(self._save, lambda: actions.save(self.workspace, state))
        self.on_click(self._load, lambda: actions.load(self.workspace, state, self._saved.value))
        self.on_click(self._load_file, self._from_file)
        self.on_click(self._load_text, self._from_text)
        self.on_click(self._as_cell, lambda: self._show("cell"))
        self.on_click(self._as_python, lambda: self._show("python"))
        self.follow(["name", "collection", "collections", "saved"], self._redraw_names)
        self.follow(["question", "top_k", "live"], self._redraw_question)
        self.follow(["results", "asking"], self._redraw_results)
        self.follow(["code"], lambda: self._code.set_trait("value", state.code))
        watched = ["top_k", "collection", "live"]
        state.observe(lambda _: self._follow_change(), names=watched)
        state.observe(lambda _: self._refresh_code(), names=["stages", "name", "collection"])

    # Actions -----------------------------------------------------------------------------

    def _begin(
        self, name: str | None, collection: str | None, cell: str | None, file: str | None
    ) -> None:
        actions.refresh(self.workspace, self.state)
        if cell is not None:
            self._take(read_pipeline_text("retrieval", cell, name=name or "pipeline"))
        elif file is not None:
            self._take(read_pipeline_file(file, name=name))
        else:
            actions.begin(self.workspace, self.state, name)
        if collection is not None:
            self.state.collection = collection

    def _take(self, spec: PipelineSpec) -> None:
        actions.take(self.workspace, self.state, spec)

    def _from_file(self) -> None:
        self._take(read_pipeline_file(self._file.value.strip()))
        # A path of this machine does not belong into a saved notebook.
        with self.rendering():
            self._file.value = ""

    def _from_text(self) -> None:
        self._take(read_pipeline_text("retrieval", self._code.value, name=self.state.name))

    def _ask(self, question: str) -> None:
        self.state.question = question
        if question.strip():
            self.search()

    def search(self) -> None:
        """Ask the question of the pipeline as it is now."""
        work, keep = actions.search(self.workspace, self.state)
        self.start(work, keep, label="Searching")

    def _follow_change(self) -> None:
        if actions.should_ask(self.state):
            self.act(self.search)

    def _show(self, kind: str) -> None:
        actions.show_code(self.workspace, self.state, kind)

    def _refresh_code(self) -> None:
        """Keep the shown text true while stages change."""
        with self.guard():
            actions.refresh_code(self.workspace, self.state)

    def _typed(self, text: str) -> None:
        self.state.code_kind = ""
        self.state.code = text

    # Drawing -----------------------------------------------------------------------------

    def _redraw_names(self) -> None:
        state = self.state
        self._name.value = state.name
        known = list(state.collections)
        # A collection that is gone stays visible, so that a saved pipeline tells the truth.
        if state.collection and state.collection not in known:
            known.append(state.collection)
        self._collection.options = [_ANY, *((name, name) for name in known)]
        self._collection.value = state.collection
        before = self._saved.value
        self._saved.options = state.saved
        if state.saved:
            kept = state.name if state.name in state.saved else before
            self._saved.value = kept if kept in state.saved else state.saved[0]

    def _redraw_question(self) -> None:
        self._question.value = self.state.question
        self._top_k.value = self.state.top_k
        self._live.value = self.state.live

    def _redraw_results(self) -> None:
        state = self.state
        note = ""
        if state.asking and state.live:
            words = "A stage asks a chat model: press Search to ask again."
            note = f'<p style="opacity:0.75">{html.escape(words)}</p>'
        if state.results is None:
            self._found.value = note or '<p style="opacity:0.75">Ask a question to try it.</p>'
        else:
            table = compared_table(state.results, state.before)["text/html"]
            self._found.value = note + without_private(table)

    def snapshot_parts(self) -> list[Rendering]:
        """Return the pipeline as a cell, and what the question found."""
        state = self.state
        parts = [facts("Settings", [("name", state.name), ("collection", state.collection)])]
        try:
            cell = state.pipeline().to_cell()
            parts.append(part(cell, f"<pre>{html.escape(cell, quote=True)}</pre>"))
        except NbragError as error:
            parts.append(part(str(error)))
        if state.results is not None:
            parts.append(compared_table(state.results, None))
        return parts
