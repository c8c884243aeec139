"""Chat models: any provider through LiteLLM, with a cache, a budget and accounts of every call."""

from __future__ import annotations

from nbrag.models.chat.structured import ask, parse_reply

__all__ = ["ask", "parse_reply"]
