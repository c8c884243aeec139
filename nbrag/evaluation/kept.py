"""Judgements that are kept in a workspace's file, by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nbrag.errors import JudgementsError, did_you_mean
from nbrag.evaluation.judgements import Judgements
from nbrag.stores.duckdb.judgements import (
    KeptJudgement,
    forget_judgement,
    keep_judgement,
    kept_judgements,
    kept_names,
)

if TYPE_CHECKING:
    from nbrag.stores.duckdb import DuckDBDatabase

__all__ = ["DEFAULT_SET", "KeptJudgements"]

#: The set that is meant when none is named.
DEFAULT_SET = "marked"


class KeptJudgements:
    """The judgements in a workspace's file: the table ``nbrag.judgements``.

    ``%rag_eval plain support --cases marked`` measures on them.

    Parameters
    ----------
    database
        The open file.
    """

    def __init__(self, database: DuckDBDatabase) -> None:
        self._database = database

    def names(self) -> list[str]:
        """Return the names of the sets, in order."""
        return kept_names(self._database)

    def mark(
        self,
        question: str,
        document: str,
        chunk_id: str | None = None,
        *,
        collection: str,
        grade: int = 1,
        name: str = DEFAULT_SET,
    ) -> None:
        """Keep how well a passage answers a question; an earlier judgement is replaced.

        Parameters
        ----------
        question
            The question.
        document
            The document's URI.
        chunk_id
            The passage; None judges the document as a whole.
        collection
            Where both are.
        grade
            0 not relevant, 1 and more relevant.
        name
            The set.

        Raises
        ------
        JudgementsError
            When the question is empty or the grade negative.
        DatabaseReadOnly
            When the workspace is open for reading only.
        """
        if not question.strip():
            raise JudgementsError("a judgement needs a question.", hint="ask one first")
        if grade < 0:
            raise JudgementsError(f"the grade {grade} is negative.", hint="0 is not relevant")
        keep_judgement(
            self._database, KeptJudgement(name, question, collection, document, chunk_id, grade)
        )

    def unmark(
        self,
        question: str,
        document: str,
        chunk_id: str | None = None,
        *,
        collection: str,
        name: str = DEFAULT_SET,
    ) -> None:
        """Forget a judgement; parameters as for :meth:`mark`."""
        forget_judgement(
            self._database, KeptJudgement(name, question, collection, document, chunk_id, 0)
        )

    def grades(self, question: str, *, collection: str, name: str = DEFAULT_SET) -> dict[str, int]:
        """Return the grade of each judged passage of a question, by chunk id."""
        return {
            kept.chunk_id: kept.grade
            for kept in kept_judgements(self._database, name, question=question)
            if kept.chunk_id is not None and kept.collection == collection
        }

    def load(
        self, name: str = DEFAULT_SET, *, unit: Literal["chunk", "document"] = "chunk"
    ) -> Judgements:
        """Return a set as judgements to measure on.

        Parameters
        ----------
        name
            The set.
        unit
            ``chunk``: passages by id, as they were judged; documents that were judged as a whole
            make the set one of documents. ``document``: documents by URI, each with the best
            grade among its passages; these outlive another way of chunking.

        Raises
        ------
        JudgementsError
            When there is no such set, or nothing in it is relevant.
        """
        kept = kept_judgements(self._database, name)
        if not kept:
            raise JudgementsError(
                f"no judgements are kept under the name '{name}'.",
                hint=did_you_mean(name, self.names(), what="judgements"),
            )
        by_document = unit == "document" or any(entry.chunk_id is None for entry in kept)
        numbers: dict[str, str] = {}
        qrels: dict[str, dict[str, int]] = {}
        for entry in kept:
            query = numbers.setdefault(entry.question, str(1 + len(numbers)))
            judged = entry.document if by_document or entry.chunk_id is None else entry.chunk_id
            grades = qrels.setdefault(query, {})
            grades[judged] = max(entry.grade, grades.get(judged, 0))
        queries = {number: question for question, number in numbers.items()}
        return Judgements(queries, qrels, name=name)

    def find(self, judgements: Judgements | str | Path) -> Judgements:
        """Return judgements as they are, from a file or folder, or those kept under a name.

        Raises
        ------
        JudgementsError
            When there are none of that name.
        """
        if isinstance(judgements, Judgements):
            return judgements
        names = self.names() if isinstance(judgements, str) else []
        if judgements in names and not Path(judgements).exists():
            return self.load(str(judgements))
        return Judgements.load(judgements)
