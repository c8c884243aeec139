from __future__ import annotations

import pytest

from nbrag.models.chat import Ledger, LedgerEntry, ledger_table, shown_cost


def entry(stage="expand", *, cost=0.001, cached=False, outcome="answered", tokens=(10, 5)):
    return LedgerEntry(stage, "m", *tokens, cost, cached, 0.25, outcome)


@pytest.mark.parametrize(
    ("cost", "shown"),
    [(None, "unknown"), (0.0, "$0"), (2.85e-06, "< $0.0001"), (0.0123, "$0.0123"), (3, "$3.0000")],
)
def test_an_unknown_cost_is_not_zero(cost, shown):
    assert shown_cost(cost) == shown


def test_the_table_adds_up_what_is_known_and_says_what_is_not():
    shown = ledger_table(
        [
            entry(),
            entry(cost=0.002),
            entry(cost=None, outcome="ChatUnavailable", tokens=(None, None)),
            entry("crag", cost=None),
            entry("crag", cost=0.0, cached=True, outcome="kept"),
            entry("", tokens=(None, None)),
        ]
    )
    rows = [line.split() for line in shown["text/plain"].splitlines()]
    assert [
        "expand",
        "m",
        "no",
        "3",
        "1",
        *["20", "+", "unknown", "10", "+", "unknown", "$0.0030", "+", "unknown"],
    ] in rows
    assert ["crag", "m", "no", "1", "0", "10", "5", "unknown"] in rows
    assert ["crag", "m", "yes", "1", "0", "10", "5", "$0"] in rows
    assert ["(none)", "m", "no", "1", "0", "unknown", "unknown", "$0.0010"] in rows
    assert "unknown" in shown["text/html"]
    assert "0.25" not in shown["text/plain"]


def test_a_list_with_add_is_a_ledger():
    class Listed(list):
        add = list.append

    assert isinstance(Listed(), Ledger)
