"""The accounts of a chat model: one line per request, whatever became of it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from nbrag.rendering import Cell, Rendering, render_table
from nbrag.types import LedgerEntry

__all__ = [
    "Ledger",
    "LedgerEntry",
    "LedgerView",
    "ledger_table",
    "note_call",
    "noted_calls",
    "shown_cost",
]

_noting: contextvars.ContextVar[tuple[list[LedgerEntry], ...]] = contextvars.ContextVar(
    "nbrag_noted_calls", default=()
)


@runtime_checkable
class Ledger(Protocol):
    """Where the accounts are kept."""

    def add(self, entry: LedgerEntry) -> None:
        """Write one entry down.

        Called on nbrag's background loop: it must be quick, and not wait for a disk or a lock.
        """
        ...


@contextlib.contextmanager
def noted_calls() -> Iterator[list[LedgerEntry]]:
    """Collect the accounts of all requests that are made within, in the tasks begun there too.

    Yields
    ------
    list of LedgerEntry
        Grows with each request that a :class:`nbrag.models.chat.ManagedChatClient` makes.
    """
    entries: list[LedgerEntry] = []
    before = _noting.set((*_noting.get(), entries))
    try:
        yield entries
    finally:
        _noting.reset(before)


def note_call(entry: LedgerEntry) -> None:
    """Tell whoever collects the accounts of this task of a request."""
    for entries in _noting.get():
        entries.append(entry)


class LedgerView(Sequence[LedgerEntry]):
    """Entries of a ledger, oldest first; shows as :func:`ledger_table`.

    Parameters
    ----------
    entries
        The entries.
    """

    def __init__(self, entries: Iterable[LedgerEntry]) -> None:
        self._entries = tuple(entries)

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        """Return an entry, or a tuple of entries for a slice."""
        return self._entries[index]

    @property
    def calls_paid(self) -> int:
        """How many requests the model itself answered."""
        return sum(not entry.cached and entry.outcome == "answered" for entry in self._entries)

    def __repr__(self) -> str:
        """Return how many calls there were."""
        return f"<LedgerView: {len(self)} calls, {self.calls_paid} paid>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the accounts by stage, model and whether the answer was kept."""
        return ledger_table(self._entries)


def shown_cost(cost: float | None) -> str:
    """Return a cost in US dollars as it is shown: ``unknown`` when the price is not known."""
    if cost is None:
        return "unknown"
    return "$0" if cost == 0 else "< $0.0001" if cost < 0.0001 else f"${cost:.4f}"


def ledger_table(entries: Iterable[LedgerEntry]) -> Rendering:
    """Return the accounts by stage, model and whether the answer was kept.

    Tokens and cost are sums of what is known; where some of it is not, they say so instead of
    passing for the whole.

    Returns
    -------
    Rendering
        The table as plain text, Markdown and HTML; it holds no times, so that it stays the same
        from run to run.
    """
    groups: dict[tuple[str, str, bool], list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.stage, entry.model, entry.cached), []).append(entry)
    rows: list[list[Cell]] = [
        [
            stage or "(none)",
            model,
            "yes" if cached else "no",
            len(group),
            sum(entry.outcome not in ("answered", "kept", "shared") for entry in group),
            _total([entry.input_tokens for entry in group]),
            _total([entry.output_tokens for entry in group]),
            _cost([entry.cost for entry in group]),
        ]
        for (stage, model, cached), group in sorted(groups.items())
    ]
    return render_table(
        "calls of chat models",
        ["stage", "model", "cached", "calls", "failed", "tokens in", "tokens out", "cost"],
        rows,
        notes=[] if rows else ["no chat model was asked yet"],
    )


def _total(counts: list[int | None]) -> Cell:
    known = [count for count in counts if count is not None]
    if not known:
        return "unknown"
    return sum(known) if len(known) == len(counts) else f"{sum(known)} + unknown"


def _cost(costs: list[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    if not known:
        return shown_cost(None)
    total = shown_cost(sum(known))
    return total if len(known) == len(costs) else f"{total} + unknown"
