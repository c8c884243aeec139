"""The chat model of a workspace: which one it is, and what is kept of its work."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from nbrag.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from nbrag.models.chat import Budget, LedgerView, ManagedChatClient
    from nbrag.protocols import ChatClient
    from nbrag.stores.duckdb import DuckDBDatabase
    from nbrag.stores.duckdb.chat import DuckDBLedger

__all__ = ["MODEL_VARIABLE", "ChatModels"]

#: Names the chat model where nothing else does.
MODEL_VARIABLE = "NBRAG_MODEL"


class ChatModels:
    """Holds the chat client of a workspace; it is found at first use.

    A client may say more about itself than its protocol asks for: ``cacheable = False`` when its
    answers are not to be kept, ``one_at_a_time = True`` when it does nothing faster with several
    requests at once, ``timeout`` for the seconds that an answer may take (default 60).

    Parameters
    ----------
    database
        Where replies and accounts are kept.
    chat, budget, concurrency
        As for :class:`nbrag.workspace.Workspace`.
    """

    def __init__(
        self,
        database: DuckDBDatabase,
        chat: ChatClient | str | Path | None,
        *,
        budget: Budget | None = None,
        concurrency: int = 8,
    ) -> None:
        self._database = database
        self._ledger: DuckDBLedger | None = None
        self._client: ManagedChatClient | None = None
        self._owned = False
        self._choice = chat
        self._budget = budget
        self._concurrency = concurrency
        self._others: dict[str, ManagedChatClient] = {}

    @property
    def client(self) -> ManagedChatClient:
        """The client, with cache, budget and accounts around it.

        Raises
        ------
        ConfigurationError
            When none is configured.
        """
        if self._client is None:
            choice = self._choice or os.environ.get(MODEL_VARIABLE)
            if not choice:
                raise ConfigurationError(
                    "a stage needs a chat model, and none is configured.",
                    hint="%rag_config model=openai/gpt-4o-mini (any provider; its key in the "
                    "environment), model=local (a model on this machine, pip install "
                    "'nbrag[local]') or model=replay:FILE (recorded replies); in Python "
                    "Workspace(chat=...)",
                )
            self._client = self._managed(choice)
            self._owned = self._client.client is not choice and self._client is not choice
        return self._client

    def other(self, choice: ChatClient | str | Path) -> ManagedChatClient:
        """Return another model, for one use, with the same budget, accounts and kept replies."""
        if not isinstance(choice, str | Path):
            return self._managed(choice)
        if str(choice) not in self._others:
            self._others[str(choice)] = self._managed(choice)
        return self._others[str(choice)]

    def _managed(self, choice: ChatClient | str | Path) -> ManagedChatClient:
        from nbrag.models.chat import ManagedChatClient, resolve_chat
        from nbrag.stores.duckdb.chat import DuckDBLedger, DuckDBReplyStore

        client = resolve_chat(choice)
        if isinstance(client, ManagedChatClient):
            return client
        self._ledger = self._ledger or DuckDBLedger(self._database)
        # A model on this machine answers one request at a time, each of which may take minutes.
        one_by_one = getattr(client, "one_at_a_time", False)
        return ManagedChatClient(
            client,
            concurrency=1 if one_by_one else self._concurrency,
            timeout=getattr(client, "timeout", 60.0),
            budget=self._budget,
            cache=DuckDBReplyStore(self._database) if getattr(client, "cacheable", True) else None,
            ledger=self._ledger,
        )

    def replace(
        self,
        chat: ChatClient | str | Path | None,
        *,
        budget: Budget | None = None,
        concurrency: int = 8,
    ) -> None:
        """Take another client from now on; the one before is closed where it was made here."""
        before = (self._choice, self._budget, self._concurrency, self._client, self._owned)
        self._choice, self._budget, self._concurrency = chat, budget, concurrency
        self._client = None
        if chat is not None:
            try:
                self._client = self._managed(chat)
                self._owned = self._client.client is not chat and self._client is not chat
            except Exception:
                self._choice, self._budget, self._concurrency, self._client, self._owned = before
                raise
        _close(before[3] if before[4] else None)

    def ledger(self) -> LedgerView:
        """Return this session's accounts."""
        from nbrag.models.chat import LedgerView

        if self._ledger is None:
            return LedgerView(())
        self._ledger.flush()
        return LedgerView(self._ledger.entries)

    def close(self) -> None:
        """Write the accounts to the end, and close the client where it was made here."""
        client, self._client = self._client, None
        if self._ledger is not None:
            try:
                self._ledger.flush()
            except StoreError as error:
                warnings.warn(f"the accounts were not kept: {error.message}", stacklevel=3)
        _close(client if self._owned else None)
        others, self._others = self._others, {}
        for other in others.values():
            _close(other)


def _close(client: ManagedChatClient | None) -> None:
    if client is not None:
        client.close()
