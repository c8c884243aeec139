"""Answers from what a retriever finds; names are imported at their first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.orchestration.base import Orchestrator, OrchestratorOptions
    from nbrag.orchestration.evidence import Evidence, register_evidence
    from nbrag.orchestration.orchestrators.answerer import Answerer, AnswerOptions
    from nbrag.orchestration.orchestrators.self_rag import SelfRagOptions, SelfRagOrchestrator
    from nbrag.orchestration.orchestrators.speculative_rag import (
        SpeculativeRagOptions,
        SpeculativeRagOrchestrator,
    )
    from nbrag.orchestration.prompts import Prompt
    from nbrag.orchestration.reading import AnswerReader, CitedText
    from nbrag.orchestration.running import AnswerRun
    from nbrag.orchestration.streaming import AnswerStream

__all__ = [
    "AnswerOptions",
    "AnswerReader",
    "AnswerRun",
    "AnswerStream",
    "Answerer",
    "CitedText",
    "Evidence",
    "Orchestrator",
    "OrchestratorOptions",
    "Prompt",
    "SelfRagOptions",
    "SelfRagOrchestrator",
    "SpeculativeRagOptions",
    "SpeculativeRagOrchestrator",
    "register_evidence",
]

_HOMES = {
    "AnswerOptions": "orchestrators.answerer",
    "AnswerReader": "reading",
    "AnswerRun": "running",
    "AnswerStream": "streaming",
    "Answerer": "orchestrators.answerer",
    "CitedText": "reading",
    "Evidence": "evidence",
    "Orchestrator": "base",
    "OrchestratorOptions": "base",
    "Prompt": "prompts",
    "SelfRagOptions": "orchestrators.self_rag",
    "SelfRagOrchestrator": "orchestrators.self_rag",
    "SpeculativeRagOptions": "orchestrators.speculative_rag",
    "SpeculativeRagOrchestrator": "orchestrators.speculative_rag",
    "register_evidence": "evidence",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nbrag.orchestration' has no attribute {name!r}")
    value = getattr(import_module(f"nbrag.orchestration.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
