"""Searching: both legs at the same time, over one and the same state of the rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbrag.errors import CollectionNotFound
from nbrag.stores.answers import exact_answers, keyword_answers
from nbrag.stores.duckdb.identifiers import literal, table
from nbrag.stores.duckdb.loading import present_state, synchronise
from nbrag.stores.duckdb.names import compiled
from nbrag.stores.duckdb.rows import stored_similarities
from nbrag.stores.duckdb.state import CollectionState
from nbrag.stores.filters import Filter, as_filter
from nbrag.stores.indices import IndexView, Moved, searched_kinds
from nbrag.stores.plans import LegAnswer, LegRequest, leg_requests, ranked_lists
from nbrag.stores.questions import Scope, led_answers
from nbrag.types import ChunkKind, RankedList, SearchPlan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["search", "warm"]

Rows = NDArray[np.int64]
#: What runs beside the vector leg; apart from the threads that wait for it, which can't starve it.
_beside = ThreadPoolExecutor(max_workers=4, thread_name_prefix="nbrag-search")
#: Tries beside running writes before a search holds the writers up for a moment.
_TRIES = 3


def search(
    cursor: DuckDBPyConnection, state: CollectionState, plan: SearchPlan
) -> list[RankedList]:
    """Run the plan, as :meth:`nbrag.protocols.Collection.search`, in this thread and another.

    The answer shows one committed state: when a write comes in between, it starts again.
    """
    requests = leg_requests(plan)
    condition = as_filter(plan.filter)
    try:
        found = _from_memory(cursor, state, plan, requests, condition)
        if found is not None:
            return found
    except Moved:
        pass
    for _ in range(_TRIES):
        try:
            return _search_once(cursor, state, plan, requests, condition)
        except Moved:
            continue
    with state.instance.write_lock:
        return _search_once(cursor, state, plan, requests, condition)


def warm(cursor: DuckDBPyConnection, state: CollectionState) -> None:
    """Bring the indices up to date without searching."""
    with state.instance.write_lock:
        cursor.begin()
        try:
            _current_view(cursor, state)
        finally:
            cursor.rollback()


def _from_memory(
    cursor: DuckDBPyConnection,
    state: CollectionState,
    plan: SearchPlan,
    requests: list[LegRequest],
    condition: Filter | None,
) -> list[RankedList] | None:
    """Return the answer where the indices alone can give it, None where they can't.

    They are current, hold every vector, and know which rows the filter leaves: nothing but the
    state's stamp is read, which needs no transaction, and while the legs run. What they find is
    let go of when the table turns out to be further.
    """
    stamp = state.indices.stamp
    if stamp is None:
        return None
    view = state.indices.view(stamp)
    if view.exact is None or not view.complete:
        return None
    scope = state.indices.remembered(stamp, _scope_key(condition, plan.kinds))
    if scope is None:
        if condition is not None:
            return None
        scope = _scope(cursor, state, view, None, plan.kinds)
    filtered = condition is not None
    asking = _beside.submit(_is_current, cursor.cursor(), state, view)
    try:
        found = _answer(
            cursor, state, view, requests, k=plan.candidates, scope=scope, filtered=filtered
        )
    finally:
        current = asking.result()
    return found if current else None


def _is_current(cursor: DuckDBPyConnection, state: CollectionState, view: IndexView) -> bool:
    """Return whether the view shows what the table holds now; closes the cursor."""
    try:
        present = present_state(cursor, state.name, state.uid)
    finally:
        cursor.close()
    return present is not None and present[0] == view.stamp and present[2] == len(view)


def _search_once(
    cursor: DuckDBPyConnection,
    state: CollectionState,
    plan: SearchPlan,
    requests: list[LegRequest],
    condition: Filter | None,
) -> list[RankedList]:
    cursor.begin()
    try:
        view = _current_view(cursor, state)
        scope = _scope(cursor, state, view, condition, plan.kinds)
        filtered = condition is not None
        return _answer(
            cursor, state, view, requests, k=plan.candidates, scope=scope, filtered=filtered
        )
    finally:
        cursor.rollback()


def _answer(
    cursor: DuckDBPyConnection,
    state: CollectionState,
    view: IndexView,
    requests: list[LegRequest],
    *,
    k: int,
    scope: Scope,
    filtered: bool,
) -> list[RankedList]:
    """Run the legs at the same time."""
    words = next((request for request in requests if request.leg == "keyword"), None)
    waiting = None if words is None else _beside.submit(_keyword_leg, state, view, words, k, scope)
    found: list[LegAnswer] = []
    try:
        for request in requests:
            if request.leg == "vector":
                found += _vector_leg(
                    cursor,
                    state,
                    view,
                    request,
                    k=k,
                    scope=scope,
                    filtered=filtered,
                )
    finally:
        # The other leg reads what this search holds open, so it is waited for in any case.
        answered = [] if waiting is None else waiting.result()

    def ids_of(rows: Rows) -> list[str | None]:
        """Return chunk ids, and remember where they stand: they are read next."""
        ids = view.ids_of(rows)
        state.indices.note(ids, rows)
        return ids

    return ranked_lists(found + answered, ids_of)


def _scope_key(condition: Filter | None, kinds: frozenset[ChunkKind]) -> tuple[str, ...]:
    """Return what the rows that a search may find are remembered by."""
    names = sorted(str(kind) for kind in searched_kinds(kinds))
    return ("" if condition is None else str(condition), *names)


def _current_view(cursor: DuckDBPyConnection, state: CollectionState) -> IndexView:
    present = present_state(cursor, state.name, state.uid)
    if present is None:
        raise CollectionNotFound(f"Collection '{state.name}' was dropped.")
    stamp, _, count = present
    state.settle()
    indices = state.indices
    unheld = indices.matrix_from is None and state.approximate is None
    if unheld or indices.stamp != stamp or len(indices.rows) != count:
        with indices.lock:
            state.choose_index(cursor, stamp, count)
            known = indices.stamp is None and state.load_keyword(stamp, count)
            synchronise(cursor, state.name, indices, present, texts_known=known)
    return indices.view(stamp)


def _scope(
    cursor: DuckDBPyConnection,
    state: CollectionState,
    view: IndexView,
    condition: Filter | None,
    kinds: frozenset[ChunkKind],
) -> Scope:
    """Return what may be found, and remember it."""
    key = _scope_key(condition, kinds)
    kept = state.indices.remembered(view.stamp, key)
    if kept is not None:
        return kept
    passing = None
    if condition is not None:
        sql, parameters = compiled(cursor, state.name, condition)
        names = ", ".join(literal(name) for name in key[1:])
        found = cursor.execute(
            f"SELECT row FROM {table(state.name, 'chunks')} WHERE {sql} AND kind IN ({names})",
            parameters or None,
        ).fetchnumpy()["row"]
        passing = np.sort(np.asarray(found, np.int64))
    scope = view.scope(kinds, passing)
    state.indices.remember(view.stamp, key, scope)
    return scope


def _vector_leg(
    cursor: DuckDBPyConnection,
    state: CollectionState,
    view: IndexView,
    request: LegRequest,
    *,
    k: int,
    scope: Scope,
    filtered: bool,
) -> list[LegAnswer]:
    vectors = request.vectors(state.indices.dimension)
    if view.exact is not None and view.complete:
        return exact_answers(request, view.exact, vectors, k, scope)
    approximate = state.approximate
    if approximate is None:
        raise Moved

    def search(depth: int) -> list[LegAnswer]:
        """Return so many rows of each variant."""
        answers, explanation = approximate.search(
            cursor,
            view,
            vectors,
            depth,
            scope.rows,
            filtered=filtered,
            wait=state.settings.mode == "hnsw",
        )
        return [
            LegAnswer(
                request,
                number,
                rows,
                scores,
                partial(stored_similarities, cursor, state.name, vectors[number]),
                explanation,
            )
            for number, (rows, scores) in enumerate(answers)
        ]

    return led_answers(search, k, scope.leads)


def _keyword_leg(
    state: CollectionState, view: IndexView, request: LegRequest, k: int, scope: Scope
) -> list[LegAnswer]:
    queries = [state.indices.keyword_query(view.stamp, text) for text in request.texts]
    return keyword_answers(request, queries, len(view), k, scope)
