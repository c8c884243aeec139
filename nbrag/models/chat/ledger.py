"""The accounts of a chat model: one line per request, whatever became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from nbrag.rendering import Cell, Rendering, render_table

__all__ = ["Ledger", "LedgerEntry", "ledger_table", "shown_cost"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One request to a chat model.

    Attributes
    ----------
    stage
        The pipeline's stage that asked; empty outside of one.
    model
        The model that was asked, without anything secret in it.
    input_tokens, output_tokens
        Tokens read and written, by the provider's count; None when it doesn't tell.
    cost
        US dollars that were paid: 0 for an answer that was kept or shared, None when the price
        is not known.
    cached
        Whether nothing was asked of the provider: the answer was kept from an earlier request,
        or shared with the same request that was under way.
    seconds
        From the question to the answer, waits for a free place and further tries included.
    outcome
        ``answered``, ``kept`` (in the cache), ``shared``, ``cancelled``, or the name of the
        error, e.g. ``RateLimited``.
    """

    stage: str
    model: str
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    cached: bool
    seconds: float
    outcome: str


@runtime_checkable
class Ledger(Protocol):
    """Where the accounts are kept."""

    def add(self, entry: LedgerEntry) -> None:
        """Write one entry down.

        Called on nbrag's background loop: it must be quick, and not wait for a disk or a lock.
        """
        ...


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
