"""The builder of a filter: field, comparison and value, and the text that comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbrag.notebook.panels import search_actions as actions
from nbrag.notebook.panels.controls import button, choice, column, row, text_line
from nbrag.notebook.panels.filter_conditions import operators

if TYPE_CHECKING:
    from nbrag.notebook.panels.base import Panel
    from nbrag.notebook.panels.search_state import SearchState

__all__ = ["FilterBuilder"]

_KINDS = {
    "VARCHAR": "text",
    "BIGINT": "whole number",
    "DOUBLE": "number",
    "BOOLEAN": "true or false",
    "VARCHAR[]": "list",
}


class FilterBuilder:
    """The controls of a search panel's filter.

    Parameters
    ----------
    panel
        The panel that it is part of.
    state
        The panel's state.

    Attributes
    ----------
    view
        The box to be laid out.
    """

    def __init__(self, panel: Panel, state: SearchState) -> None:
        self._panel = panel
        self._state = state
        self._field = choice("Field", [], width="21em")
        self._operator = choice("Comparison", [], width="18em")
        self._value = text_line(
            "Value", suggestions=(), width="22em", label_width="initial", as_typed=True
        )
        self._more = button("More values", help_text="Read further values of the field")
        self._how = choice(
            "Join with", [("and", "and"), ("or", "or")], "and", width="10em", label_width="initial"
        )
        self._add = button("Add condition", help_text="Join the condition to the filter")
        self._where = text_line("Filter", placeholder='topic == "security" and page >= 3')
        self._where.layout.width = "46em"
        self._clear = button("Clear filter")
        self.view = column(
            row(self._field, self._operator, self._value, self._more, self._how, self._add),
            row(self._where, self._clear),
        )
        panel.on_change(self._field, self._choose)
        panel.on_change(self._operator, lambda words: state.set_trait("operator", words))
        panel.on_change(self._value, self._type)
        panel.on_change(self._where, lambda text: actions.set_where(state, text))
        panel.on_click(self._more, lambda: self.find_values(more=True))
        panel.on_click(self._add, lambda: actions.add_condition(state, self._how.value))
        panel.on_click(self._clear, lambda: actions.set_where(state, ""))
        panel.follow(["fields", "field", "operator"], self._redraw_field)
        panel.follow(["value", "values", "more_values"], self._redraw_value)
        panel.follow(["where"], lambda: self._where.set_trait("value", state.where))

    def read_fields(self) -> None:
        """Read the collection's fields in the background, and values of the first."""
        work, take = actions.read_fields(self._panel.workspace, self._state)

        def found(fields: dict[str, str]) -> None:
            take(fields)
            self.find_values()

        self._panel.start(work, found, key="fields", quiet=True)

    def find_values(self, *, more: bool = False) -> None:
        """Read values of the field that hold what is typed."""
        if self._state.field:
            work, take = actions.find_values(self._panel.workspace, self._state, more=more)
            self._panel.start(work, take, key="values", quiet=True)

    def _choose(self, name: str) -> None:
        actions.choose_field(self._state, name or "")
        self.find_values()

    def _type(self, value: str) -> None:
        self._state.value = value
        # A value that was chosen from the list needs no further ones.
        if value not in self._state.values:
            self.find_values()

    def _redraw_field(self) -> None:
        state = self._state
        self._field.options = [
            (f"{name} ({_KINDS.get(kind, kind)})", name) for name, kind in state.fields.items()
        ]
        self._field.value = state.field or None
        self._operator.options = operators(state.fields.get(state.field, ""))
        self._operator.value = state.operator

    def _redraw_value(self) -> None:
        state = self._state
        self._value.options = state.values
        if self._value.value != state.value:
            self._value.value = state.value
        self._more.disabled = not state.more_values
