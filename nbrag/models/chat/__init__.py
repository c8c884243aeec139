"""Chat models: any provider through LiteLLM, with a cache, a budget and accounts of every call."""

from __future__ import annotations

__all__: list[str] = []
