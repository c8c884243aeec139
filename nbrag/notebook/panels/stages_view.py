"""The editor of a list of stages: a list, its buttons, and the options of the chosen stage."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from nbrag.notebook.panels.controls import button, choice, column, listing, markup, row, title
from nbrag.notebook.panels.option_controls import (
    NOT_GIVEN,
    OptionControl,
    bounds_text,
    option_control,
)
from nbrag.notebook.panels.snapshots import alert_html
from nbrag.notebook.panels.stages_actions import Models, look_at_models
from nbrag.rendering import plain
from nbrag.spec import stage_definition, stage_definitions
from nbrag.spec.stages import StageDefinition

if TYPE_CHECKING:
    from nbrag.notebook.panels.base import Panel
    from nbrag.notebook.panels.stages_state import StageEntry, StageListState

__all__ = ["StageEditor"]

_WHEN = {
    "query": "before the search",
    "search": "the search itself",
    "result": "after the search",
    "document": "on whole documents",
    "chunker": "between the two, to cut documents",
    "chunk": "on chunks",
}
_MUTED = "opacity:0.75;font-size:0.92em;line-height:1.35"


class StageEditor:
    """The controls over a :class:`~nbrag.notebook.panels.stages_state.StageListState`.

    Parameters
    ----------
    panel
        The panel that it is part of.
    state
        The stages.
    looked
        Called after each change, once it is known which models are missing or would be asked.

    Attributes
    ----------
    view
        The box to be laid out.
    """

    def __init__(
        self, panel: Panel, state: StageListState, looked: Callable[[], None] | None = None
    ) -> None:
        self._panel = panel
        self._looked = looked
        self._state = state
        self._shown = (0, "")
        self._controls: dict[str, OptionControl] = {}
        self._errors: dict[str, Any] = {}
        self._list = listing("Stages", rows=6)
        self._up = button("Move up", help_text="The chosen stage runs earlier")
        self._down = button("Move down", help_text="The chosen stage runs later")
        self._switch = button("Switch off", help_text="Leave it out, and keep its options")
        self._remove = button("Remove", help_text="Take the chosen stage out of the pipeline")
        self._new = choice("New stage", self._known(), width="25em")
        self._add = button("Add stage")
        self._options = column()
        self.view = column(
            self._list,
            row(self._up, self._down, self._switch, self._remove),
            row(self._new, self._add),
            self._options,
        )
        panel.on_change(self._list, self._select)
        panel.on_click(self._up, partial(state.move, -1))
        panel.on_click(self._down, partial(state.move, 1))
        panel.on_click(self._switch, state.switch)
        panel.on_click(self._remove, state.remove)
        panel.on_click(self._add, lambda: state.add(self._new.value))
        panel.follow(["stages", "selected", "missing"], self._redraw)
        panel.follow(["missing"], self._redraw_new)
        state.observe(lambda _: self.look(), names=["stages"])

    def look(self) -> None:
        """See in the background which stages lack a model."""
        with self._panel.guard():
            context = self._panel.workspace.context
            entries = self._state.stages
            self._panel.start(
                lambda _: look_at_models(self._state.kind, entries, context),
                self._found,
                key="models",
                quiet=True,
            )

    def _found(self, models: Models) -> None:
        self._state.missing = models.missing
        self._state.asking = set(models.asking)
        if self._looked is not None:
            self._looked()

    def _select(self, number: int | None) -> None:
        self._state.selected = number or 0

    def _known(self) -> list[tuple[str, str]]:
        missing = self._state.missing
        return [
            (f"{name} (its model is missing)" if name in missing else name, name)
            for name in stage_definitions(self._state.kind)
        ]

    # Drawing -----------------------------------------------------------------------------

    def _redraw_new(self) -> None:
        before = self._new.value
        self._new.options = self._known()
        self._new.value = before or self._new.options[0][1]

    def _redraw(self) -> None:
        state = self._state
        entry = state.entry()
        self._list.options = [(state.label(e), e.number) for e in state.stages]
        self._list.value = None if entry is None else entry.number
        place = -1 if entry is None else state.stages.index(entry)
        self._up.disabled = place < 1
        self._down.disabled = entry is None or place == len(state.stages) - 1
        self._switch.disabled = self._remove.disabled = entry is None
        self._switch.description = "Switch on" if entry and not entry.enabled else "Switch off"
        shown = (0, "") if entry is None else (entry.number, entry.name)
        if shown != self._shown or not self._options.children:
            self._shown = shown
            self._build(entry)
        if entry is not None:
            self._refresh(entry)

    def _build(self, entry: StageEntry | None) -> None:
        """Make the controls of another stage."""
        self._controls, self._errors = {}, {}
        if entry is None:
            empty = markup("<p>No stage is chosen: add one, or choose one in the list.</p>")
            self._panel.replace_children(self._options, [empty])
            return
        definition = stage_definition(self._state.kind, entry.name)
        self._errors[""] = markup()
        rows: list[Any] = [
            title(f"Options of {html.escape(entry.name)}", level=4),
            markup(f'<div style="{_MUTED}">{self._summary(definition)}</div>'),
            self._errors[""],
        ]
        for name, info in definition.options.model_fields.items():
            value = entry.values.get(name, None if info.is_required() else info.default)
            made = option_control(name, info, value)
            self._controls[name] = made
            self._errors[name] = markup()
            self._panel.on_change(made.control, partial(self._set, name))
            words = "; ".join(filter(None, (plain(info.description or ""), bounds_text(info))))
            note = markup(f'<div style="{_MUTED}">{html.escape(words, quote=True)}</div>')
            note.layout.width, note.layout.flex = "auto", "1 1 9em"
            rows.append(column(row(made.control, note), self._errors[name]))
        if not definition.options.model_fields:
            rows.append(markup("<p>This stage has no options.</p>"))
        self._panel.replace_children(self._options, rows)

    def _summary(self, definition: StageDefinition) -> str:
        words = f"{definition.summary} Runs {_WHEN[definition.role]}."
        if definition.role == "search":
            words = definition.summary
        return html.escape(words, quote=True)

    def _refresh(self, entry: StageEntry) -> None:
        """Show values and errors in the controls that are there, without taking the focus."""
        problem = entry.problem(self._state.kind)
        key = "" if problem is None else (problem.key or "")
        fields = stage_definition(self._state.kind, entry.name).options.model_fields
        for name, made in self._controls.items():
            info = fields[name]
            value = entry.values.get(name, None if info.is_required() else info.default)
            written = made.write(value)
            if made.control.value != written:
                made.control.value = written
        for name, line in self._errors.items():
            lines = list(self._state.lacks(entry)) if name == "" else []
            if problem is not None and name == key:
                lines = [f"{type(problem).__name__}: {problem.message}"]
                lines += [f"Hint: {problem.hint}"] if problem.hint else []
            line.value = alert_html(lines)

    def _set(self, name: str, value: Any) -> None:
        given = self._controls[name].read(value)
        if given is NOT_GIVEN:
            self._state.clear_option(name)
        else:
            self._state.set_option(name, given)
