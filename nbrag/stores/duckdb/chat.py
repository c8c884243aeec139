"""The tables of what chat models answered and cost: ``nbrag.replies`` and ``nbrag.ledger``."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbrag.errors import StoreError
from nbrag.stores.duckdb.database import DuckDBDatabase
from nbrag.types import ChatMessage, ChatReply, LedgerEntry, TokenProbability

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DuckDBLedger", "DuckDBReplyStore"]

_REPLY = "text, input_tokens, output_tokens, cost, model, finish_reason"
_ENTRY = "stage, model, input_tokens, output_tokens, cost, cached, seconds, outcome"
#: The accounts are written by one thread, in order, while calls go on.
_writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nbrag-ledger")


class DuckDBReplyStore:
    """Replies kept in the workspace's file; implements :class:`nbrag.models.chat.ReplyStore`.

    What can't be written, because the workspace is open for reading only, is kept for as long as
    this object lives.

    Parameters
    ----------
    database
        Where the table is.
    """

    def __init__(self, database: DuckDBDatabase) -> None:
        self._database = database
        self._unwritten: dict[str, ChatReply] = {}

    def get(self, key: str) -> ChatReply | None:
        """Return the reply that was kept for a request, None when there is none."""
        if key in self._unwritten:
            return self._unwritten[key]
        rows = self._database.execute(
            f"SELECT {_REPLY}, options->>'logprobs' = 'true' FROM nbrag.replies WHERE key = ?",
            [key],
        )
        if not rows:
            return None
        *fields, has_tokens = rows[0]
        # Files of before there were tokens have no table of them, and no reply that asks for it.
        tokens = self._tokens(key) if has_tokens else ()
        return replace(ChatReply(*fields), tokens=tokens)

    def _tokens(self, key: str) -> tuple[TokenProbability, ...]:
        rows = self._database.execute("SELECT tokens FROM nbrag.reply_tokens WHERE key = ?", [key])
        return tuple(map(TokenProbability.from_list, json.loads(rows[0][0]))) if rows else ()

    def put(
        self,
        key: str,
        messages: Sequence[ChatMessage],
        options: Mapping[str, Any],
        reply: ChatReply,
    ) -> None:
        """Keep a reply, at once and for good."""
        if self._database.read_only:
            self._unwritten[key] = reply
            return
        values = [
            key,
            json.dumps([{"role": m.role, "content": m.content} for m in messages]),
            json.dumps(dict(options), sort_keys=True, default=str),
            reply.text,
            reply.input_tokens,
            reply.output_tokens,
            reply.cost,
            reply.model,
            reply.finish_reason,
        ]

        tokens = json.dumps([token.to_list() for token in reply.tokens]) if reply.tokens else ""

        def write(cursor: DuckDBPyConnection) -> None:
            """Replace what was kept before."""
            _delete(cursor, key)
            if tokens:
                cursor.execute("INSERT INTO nbrag.reply_tokens VALUES (?, ?)", [key, tokens])
            cursor.execute(
                f"INSERT INTO nbrag.replies (key, messages, options, {_REPLY}, answered)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, now())",
                values,
            )

        self._database.run_sync(write, write=True)

    def remove(self, key: str) -> None:
        """Let go of the reply to a request; when there is none, nothing happens."""
        self._unwritten.pop(key, None)
        if not self._database.read_only:
            self._database.run_sync(lambda cursor: _delete(cursor, key), write=True)


def _delete(cursor: DuckDBPyConnection, key: str) -> None:
    cursor.execute("DELETE FROM nbrag.replies WHERE key = ?", [key])
    cursor.execute("DELETE FROM nbrag.reply_tokens WHERE key = ?", [key])


class DuckDBLedger:
    """The accounts in the workspace's file; implements :class:`nbrag.models.chat.Ledger`.

    Parameters
    ----------
    database
        Where the table is.

    Attributes
    ----------
    entries
        Those of this object, oldest first; the table has those of all times.
    """

    def __init__(self, database: DuckDBDatabase) -> None:
        self._database = database
        self._waiting: deque[LedgerEntry] = deque()
        self._lock = threading.Lock()
        self._unwritten: StoreError | None = None
        self.entries: list[LedgerEntry] = []

    def add(self, entry: LedgerEntry) -> None:
        """Write one entry down; another thread puts it into the table."""
        self.entries.append(entry)
        if not self._database.read_only:
            self._waiting.append(entry)
            _writer.submit(self._write)

    def flush(self) -> None:
        """Wait until every entry is in the table.

        Raises
        ------
        StoreError
            When entries could not be written; they are in :attr:`entries` all the same.
        """
        self._write()
        failure, self._unwritten = self._unwritten, None
        if failure is not None:
            raise failure

    def _write(self) -> None:
        with self._lock:
            entries = []
            while self._waiting:
                entries.append(self._waiting.popleft())
            if not entries:
                return
            rows = [
                (
                    entry.stage,
                    entry.model,
                    entry.input_tokens,
                    entry.output_tokens,
                    entry.cost,
                    entry.cached,
                    entry.seconds,
                    entry.outcome,
                )
                for entry in entries
            ]
            try:
                self._database.run_sync(
                    lambda cursor: cursor.executemany(
                        f"INSERT INTO nbrag.ledger (called, {_ENTRY})"
                        " VALUES (now(), ?, ?, ?, ?, ?, ?, ?, ?)",
                        rows,
                    ),
                    write=True,
                )
            except StoreError as error:
                self._unwritten = error
