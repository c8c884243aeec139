"""What stages could not do in one run, by document and by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nbrag.protocols import StageProblem

__all__ = ["Problems"]


class Problems:
    """Collects the problems of a run; a document id is ``in`` it when it has one."""

    def __init__(self) -> None:
        self._by_document: dict[str, Counter[str]] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._missing: Counter[tuple[str, str]] = Counter()
        self._missing_examples: dict[tuple[str, str], str] = {}

    def __contains__(self, document_id: object) -> bool:
        """Return whether a document has a problem."""
        return document_id in self._by_document

    def note(self, problems: Iterable[StageProblem]) -> None:
        """Add problems."""
        for problem in problems:
            self._by_document.setdefault(problem.document_id, Counter())[problem.stage] += 1
            self._counts[problem.stage] += 1
            self._examples.setdefault(problem.stage, problem.reason)

    def note_missing(self, problems: Iterable[StageProblem]) -> None:
        """Add problems of corpus-level work: no document is incomplete because of them."""
        for problem in problems:
            key = (problem.stage, problem.what)
            self._missing[key] += 1
            self._missing_examples.setdefault(key, problem.reason)

    def of(self, document_id: str) -> list[str]:
        """Return a document's problems in words, by stage."""
        found = self._by_document.get(document_id, Counter())
        return [f"{_chunks(count)} without {stage}" for stage, count in found.items()]

    def summary(self) -> list[str]:
        """Return one line per stage, with an example."""
        without = [
            f"stage '{stage}': {_chunks(count)} stored without it, e.g. {self._examples[stage]}"
            " The next run tries again."
            for stage, count in self._counts.items()
        ]
        missing = [
            f"stage '{stage}': {_counted(count, what)} missing, e.g. "
            f"{self._missing_examples[stage, what]} The next run tries again."
            for (stage, what), count in self._missing.items()
        ]
        return without + missing


def _chunks(count: int) -> str:
    return _counted(count, "chunk")


def _counted(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"
