"""What the search panel does, through the same calls as magics and scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from nbrag.errors import QueryError
from nbrag.notebook.panels.filter_conditions import condition, joined, operators
from nbrag.notebook.panels.passages import SURROUNDINGS, Passage, read_passage
from nbrag.notebook.panels.search_state import SIDES, SearchState
from nbrag.notebook.panels.searching import search_with
from nbrag.stores.filters import as_filter
from nbrag.stores.metadata import BUILT_IN_FIELDS
from nbrag.types import RetrievalResults

if TYPE_CHECKING:
    from nbrag.notebook.panels.jobs import Report
    from nbrag.workspace import Workspace

__all__ = [
    "PAGE",
    "Outcome",
    "add_condition",
    "begin",
    "choose_field",
    "find_values",
    "mark",
    "open_passage",
    "read_fields",
    "read_marks",
    "refresh",
    "search",
    "set_where",
]

#: Values of a field that are read at once.
PAGE = 25
Outcome = RetrievalResults | BaseException
Work = Callable[["Report"], Coroutine[Any, Any, Any]]


def refresh(workspace: Workspace, state: SearchState) -> None:
    """Look which collections and pipelines there are, and whether marks can be kept."""
    state.collections = tuple(workspace.collections())
    state.pipelines = tuple(workspace.pipelines())
    state.writable = not workspace.read_only


def begin(
    workspace: Workspace, state: SearchState, names: tuple[str, ...], collection: str | None
) -> None:
    """Choose what is compared; unknown names are refused with the nearest known one."""
    refresh(workspace, state)
    if len(names) > len(SIDES):
        raise QueryError(
            f"{len(names)} pipelines can't be compared side by side.", hint="name one or two"
        )
    specs = [workspace.pipeline_spec(name) for name in names]
    state.first = names[0] if names else "default"
    state.second = names[1] if len(names) > 1 else ""
    target = workspace.choose_collection(collection, specs[0] if specs else None)
    state.collection = target.name


# The filter ------------------------------------------------------------------------------


def read_fields(workspace: Workspace, state: SearchState) -> tuple[Work, Callable[[Any], None]]:
    """Return the work that reads the collection's fields, and what takes its end."""
    name = state.collection

    async def read() -> dict[str, str]:
        """Return the collection's fields with their types."""
        collection = await asyncio.to_thread(lambda: workspace[name])
        return await collection.fields()

    def take(fields: dict[str, str]) -> None:
        # A collection's own fields say more than those that all have.
        order = sorted(fields, key=lambda name: (name in BUILT_IN_FIELDS, name))
        state.fields = {name: fields[name] for name in order}
        if state.field not in fields:
            choose_field(state, next(iter(state.fields), ""))

    return lambda _: read(), take


def choose_field(state: SearchState, name: str) -> None:
    """Choose the field of a condition; the operator changes with the field's type."""
    with state.hold_trait_notifications():
        state.field = name
        known = operators(state.fields.get(name, ""))
        if state.operator not in known:
            state.operator = known[0]
        state.value = ""
        state.values = ()


def find_values(
    workspace: Workspace, state: SearchState, *, more: bool = False
) -> tuple[Work, Callable[[Any], None]]:
    """Return the work that reads values of the field, a page at a time, and what takes its end."""
    name, field, typed = state.collection, state.field, state.value.strip()
    before = tuple(state.values) if more else ()

    async def read() -> list[Any]:
        """Return the next page of the field's values, and one more where there is one."""
        collection = await asyncio.to_thread(lambda: workspace[name])
        return await collection.field_values(
            field, limit=PAGE + 1, start=len(before), containing=typed
        )

    def take(values: list[Any]) -> None:
        if state.field == field:
            state.values = (*before, *(_typed(value) for value in values[:PAGE]))
            state.more_values = len(values) > PAGE

    return lambda _: read(), take


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def add_condition(state: SearchState, how: str) -> None:
    """Join the condition in the making to the filter."""
    made = condition(state.field, state.fields.get(state.field, ""), state.operator, state.value)
    state.where = joined(state.where, made, how)


def set_where(state: SearchState, text: str) -> None:
    """Take the filter as it was typed; what does not parse is kept, and told."""
    state.where = text
    as_filter(text)


# Searching -------------------------------------------------------------------------------


def search(workspace: Workspace, state: SearchState) -> tuple[Work, Callable[[Any], None]]:
    """Return the work that asks both pipelines, and what takes its end."""
    as_filter(state.where)
    question, collection = state.question, state.collection
    sides = [side for side in SIDES if state.pipeline(side)]
    specs = {side: workspace.pipeline_spec(state.pipeline(side)) for side in sides}

    top_k, where = state.top_k, state.where or None

    async def ask() -> dict[str, Outcome]:
        """Return what each side's pipeline finds."""
        found = await asyncio.gather(
            *(
                search_with(
                    workspace,
                    specs[side],
                    question,
                    collection=collection or None,
                    top_k=top_k,
                    where=where,
                )
                for side in sides
            ),
            return_exceptions=True,
        )
        return dict(zip(sides, found, strict=True))

    def take(outcomes: dict[str, Outcome]) -> None:
        found = {s: o for s, o in outcomes.items() if isinstance(o, RetrievalResults)}
        asked = next((r.trace.collection for r in found.values()), collection)
        with state.hold_trait_notifications():
            state.asked = (question, asked)
            state.found = found
            if state.chunk() is None or state.passage is None:
                state.chosen, state.passage = "", None
        if found:
            read_marks(workspace, state)
        for outcome in outcomes.values():
            if isinstance(outcome, BaseException):
                # The other side stays on show.
                raise outcome

    return lambda _: ask(), take


def open_passage(
    workspace: Workspace, state: SearchState, *, more: bool = False
) -> tuple[Work, Callable[[Passage], None]] | None:
    """Return the work that reads the chosen result in its document, and what takes its end."""
    chunk = state.chunk()
    if chunk is None:
        return None
    around = SURROUNDINGS
    if more and state.passage is not None:
        around = 3 * max(len(state.passage.before), len(state.passage.after), SURROUNDINGS)
    name = state.asked[1]

    async def read() -> Passage:
        """Return the passage in its document."""
        collection = await asyncio.to_thread(lambda: workspace[name])
        return await read_passage(collection, chunk, around)

    def take(passage: Passage) -> None:
        state.passage = passage

    return lambda _: read(), take


# Marks -----------------------------------------------------------------------------------


def read_marks(workspace: Workspace, state: SearchState) -> None:
    """Read which results were marked before."""
    question, collection = state.asked
    marks = workspace.judgements
    state.marks = marks.grades(question, collection=collection, name=state.judgements)


def mark(workspace: Workspace, state: SearchState, grade: int | None) -> None:
    """Keep, or forget, how well the chosen result answers the question.

    Raises
    ------
    QueryError
        When no result is chosen.
    DatabaseReadOnly
        When nothing can be kept.
    """
    chunk = state.chunk()
    if chunk is None:
        raise QueryError("no result is chosen.", hint="choose one in the list of A or B")
    question, collection = state.asked
    marks, name = workspace.judgements, state.judgements
    if grade is None:
        marks.unmark(question, chunk.source, chunk.id, collection=collection, name=name)
        state.status = "The mark is forgotten."
    else:
        marks.mark(question, chunk.source, chunk.id, collection=collection, grade=grade, name=name)
        words = "relevant" if grade else "not relevant"
        state.status = f"Marked {words}: %rag_eval PIPELINE --cases {name} measures on it."
    read_marks(workspace, state)
