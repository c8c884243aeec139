"""Measuring pipelines on judged questions; names are imported at their first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrag.evaluation.answer_cases import AnswerCase, AnswerCases
    from nbrag.evaluation.answer_report import AnswerReport
    from nbrag.evaluation.answer_running import evaluate_answers
    from nbrag.evaluation.beir import beir_records
    from nbrag.evaluation.comparison import EvaluationReport
    from nbrag.evaluation.judgements import Judgements
    from nbrag.evaluation.kept import KeptJudgements
    from nbrag.evaluation.running import evaluate

__all__ = [
    "AnswerCase",
    "AnswerCases",
    "AnswerReport",
    "EvaluationReport",
    "Judgements",
    "KeptJudgements",
    "beir_records",
    "evaluate",
    "evaluate_answers",
]

_HOMES = {
    "AnswerCase": "answer_cases",
    "AnswerCases": "answer_cases",
    "AnswerReport": "answer_report",
    "EvaluationReport": "comparison",
    "Judgements": "judgements",
    "KeptJudgements": "kept",
    "beir_records": "beir",
    "evaluate": "running",
    "evaluate_answers": "answer_running",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nbrag.evaluation' has no attribute {name!r}")
    value = getattr(import_module(f"nbrag.evaluation.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
