"""Chat models: any provider through LiteLLM, with a cache, a budget and accounts of every call."""

from __future__ import annotations

from nbrag.models.chat.budget import Budget, BudgetUse, PricedChatClient, TokenPrice
from nbrag.models.chat.cache import ReplyStore, relevant_options, request_key
from nbrag.models.chat.ledger import Ledger, LedgerEntry, LedgerView, ledger_table, shown_cost
from nbrag.models.chat.litellm import LiteLLMChatClient
from nbrag.models.chat.local import LocalChatClient
from nbrag.models.chat.managed import ManagedChatClient
from nbrag.models.chat.preview import PreviewChatClient, StagePreview
from nbrag.models.chat.recording import RecordingChatClient, ReplayChatClient
from nbrag.models.chat.resolve import resolve_chat
from nbrag.models.chat.streams import ReplyStream
from nbrag.models.chat.structured import ask, parse_reply

__all__ = [
    "Budget",
    "BudgetUse",
    "Ledger",
    "LedgerEntry",
    "LedgerView",
    "LiteLLMChatClient",
    "LocalChatClient",
    "ManagedChatClient",
    "PreviewChatClient",
    "PricedChatClient",
    "RecordingChatClient",
    "ReplayChatClient",
    "ReplyStore",
    "ReplyStream",
    "StagePreview",
    "TokenPrice",
    "ask",
    "ledger_table",
    "parse_reply",
    "relevant_options",
    "request_key",
    "resolve_chat",
    "shown_cost",
]
