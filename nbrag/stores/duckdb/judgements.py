"""The table of judgements that people made: ``nbrag.judgements``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbrag.stores.duckdb.database import DuckDBDatabase

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["KeptJudgement", "forget_judgement", "keep_judgement", "kept_judgements", "kept_names"]

_SAME = "name = ? AND question = ? AND collection = ? AND document = ? AND chunk_id IS NOT DISTINCT"


@dataclass(frozen=True, slots=True)
class KeptJudgement:
    """How well a passage, or a whole document, answers a question.

    Attributes
    ----------
    name
        The set that it belongs to.
    question
        The question.
    collection, document, chunk_id
        What was judged: the document's URI, and the passage in it; None for the whole document.
    grade
        0 not relevant, 1 and more relevant.
    """

    name: str
    question: str
    collection: str
    document: str
    chunk_id: str | None
    grade: int

    @property
    def _place(self) -> list[str | None]:
        return [self.name, self.question, self.collection, self.document, self.chunk_id]


def keep_judgement(database: DuckDBDatabase, judgement: KeptJudgement) -> None:
    """Keep a judgement; an earlier one of the same passage and question is replaced."""

    def write(cursor: DuckDBPyConnection) -> None:
        """Replace the row."""
        place = judgement._place  # noqa: SLF001 - this module's own
        cursor.execute(f"DELETE FROM nbrag.judgements WHERE {_SAME} FROM ?", place)
        cursor.execute(
            "INSERT INTO nbrag.judgements VALUES (?, ?, ?, ?, ?, ?, now())",
            [*place, judgement.grade],
        )

    database.run_sync(write, write=True)


def forget_judgement(database: DuckDBDatabase, judgement: KeptJudgement) -> None:
    """Remove a judgement, whatever its grade."""
    place = judgement._place  # noqa: SLF001 - this module's own
    database.run_sync(
        lambda cursor: cursor.execute(f"DELETE FROM nbrag.judgements WHERE {_SAME} FROM ?", place),
        write=True,
    )


def kept_names(database: DuckDBDatabase) -> list[str]:
    """Return the names of the sets, in order."""
    if not _there(database):
        return []
    found = database.execute("SELECT DISTINCT name FROM nbrag.judgements ORDER BY 1")
    return [str(name) for (name,) in found]


def kept_judgements(
    database: DuckDBDatabase, name: str, *, question: str | None = None
) -> list[KeptJudgement]:
    """Return the judgements of a set, in the order in which they were made."""
    if not _there(database):
        return []
    only, values = ("", [name]) if question is None else (" AND question = ?", [name, question])
    found = database.execute(
        "SELECT name, question, collection, document, chunk_id, grade FROM nbrag.judgements"
        f" WHERE name = ?{only} ORDER BY judged, question, document, chunk_id",
        values,
    )
    return [KeptJudgement(*row) for row in found]


def _there(database: DuckDBDatabase) -> bool:
    """Return whether the file has the table: older ones get it when they are opened to write."""
    found = database.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'nbrag'"
        " AND table_name = 'judgements' AND database_name = current_database()"
    )
    return bool(found[0][0])
