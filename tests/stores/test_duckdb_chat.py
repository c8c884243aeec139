"""The tables of replies and accounts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nbrag.errors import StoreError
from nbrag.models.chat import Ledger, ReplyStore
from nbrag.stores.duckdb import DuckDBDatabase
from nbrag.stores.duckdb.chat import DuckDBLedger, DuckDBReplyStore
from nbrag.types import ChatMessage, ChatReply, LedgerEntry, TokenProbability

ASKED = [ChatMessage("user", "What's 'this'? 🎣")]
REPLY = ChatReply('It\'s "that".', 7, None, None, "m-1", "stop")
ENTRY = LedgerEntry("crag", "openai/m", 10, 2, None, cached=False, seconds=0.5, outcome="answered")


def test_replies_come_back_as_they_were_also_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with DuckDBDatabase(path) as database:
        store = DuckDBReplyStore(database)
        assert isinstance(store, ReplyStore)
        assert store.get("a") is None
        store.put("a", ASKED, {"temperature": 0}, ChatReply("older"))
        store.put("a", ASKED, {"temperature": 0}, REPLY)
        assert store.get("a") == REPLY
    with DuckDBDatabase(path, read_only=True) as database:
        reading = DuckDBReplyStore(database)
        assert reading.get("a") == REPLY
        reading.put("b", ASKED, {}, ChatReply("kept in memory"))
        assert reading.get("b") == ChatReply("kept in memory")
        [(asked, options)] = database.execute(
            "SELECT messages->0->>'content', options->>'temperature' FROM nbrag.replies"
        )
        assert (asked, options) == (ASKED[0].content, "0")
        reading.remove("b")
        assert reading.get("b") is None
    with DuckDBDatabase(path) as database:
        store = DuckDBReplyStore(database)
        store.remove("nothing")
        store.remove("a")
        assert store.get("a") is None


def test_probabilities_of_tokens_are_kept_with_the_reply(tmp_path: Path) -> None:
    tokens = (
        TokenProbability("Ja", -0.25, {"Ja": -0.25, "Nein": -2.5}),
        TokenProbability(".", 0.0),
    )
    path = tmp_path / "w.duckdb"
    with DuckDBDatabase(path) as database:
        store = DuckDBReplyStore(database)
        store.put("a", ASKED, {"logprobs": True}, replace(REPLY, tokens=tokens))
        store.put("b", ASKED, {"logprobs": True}, REPLY)
        assert store.get("b") == REPLY
    with DuckDBDatabase(path) as database:
        store = DuckDBReplyStore(database)
        kept = store.get("a")
        assert kept == replace(REPLY, tokens=tokens)
        assert kept.tokens[0].others["Nein"] == -2.5
        store.put("a", ASKED, {"logprobs": True}, REPLY)
        assert store.get("a") == REPLY
        store.remove("a")
        assert database.execute("SELECT * FROM nbrag.reply_tokens") == []


def test_accounts_are_rows_in_order(tmp_path: Path) -> None:
    with DuckDBDatabase(tmp_path / "w.duckdb") as database:
        ledger = DuckDBLedger(database)
        assert isinstance(ledger, Ledger)
        for _ in range(20):
            ledger.add(ENTRY)
        ledger.flush()
        rows = database.execute(
            "SELECT stage, model, input_tokens, output_tokens, cost, cached, seconds, outcome"
            " FROM nbrag.ledger"
        )
        assert rows == [("crag", "openai/m", 10, 2, None, False, 0.5, "answered")] * 20


def test_accounts_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    database = DuckDBDatabase(tmp_path / "w.duckdb")
    ledger = DuckDBLedger(database)
    database.close()
    ledger.add(ENTRY)
    with pytest.raises(StoreError, match="closed"):
        ledger.flush()
    assert ledger.entries == [ENTRY]


def test_read_only_accounts_stay_in_memory(tmp_path: Path) -> None:
    DuckDBDatabase(tmp_path / "w.duckdb").close()
    with DuckDBDatabase(tmp_path / "w.duckdb", read_only=True) as database:
        ledger = DuckDBLedger(database)
        ledger.add(ENTRY)
        ledger.flush()
        assert ledger.entries == [ENTRY]
