"""Questions with what is known of their answers: whether there is one, where, and in what words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from nbrag.errors import JudgementsError
from nbrag.evaluation.judgements import _identity, _metadata, _read_qrels, _relevant
from nbrag.evaluation.lines import json_lines
from nbrag.rendering import Cell, Rendering, render_table

__all__ = ["AnswerCase", "AnswerCases"]

_FORM = 'a case is {"query": "...", "answers": ["..."], "answerable": true, "relevant": ["a.md"]}'
_KEYS = frozenset({"id", "query", "relevant", "answers", "answerable"})
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """One question.

    Attributes
    ----------
    id
        Its identity among the cases.
    question
        The words.
    answerable
        Whether the collection answers it.
    answers
        Words that are accepted as an answer; empty when none are known.
    relevant
        Grade by document or chunk that answers it; empty when that is not judged.
    metadata
        Further fields.
    """

    id: str
    question: str
    answerable: bool = True
    answers: tuple[str, ...] = ()
    relevant: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The documents or chunks of grade 1 and more."""
        return tuple(name for name, grade in self.relevant.items() if grade >= 1)


class AnswerCases:
    """Questions for :func:`nbrag.evaluation.evaluate_answers`.

    Parameters
    ----------
    cases
        The questions; their ids are unique.
    name
        Where they come from, for captions.

    Raises
    ------
    JudgementsError
        When there is no case, or two have the same id.
    """

    def __init__(self, cases: Iterable[AnswerCase], name: str = "cases") -> None:
        self.cases = tuple(cases)
        self.name = name
        if not self.cases:
            raise JudgementsError(f"{name}: there is no question.", hint=_FORM)
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                raise JudgementsError(
                    f"{name}: the id '{case.id}' occurs twice.", hint="ids must be unique"
                )
            if not case.question.strip():
                raise JudgementsError(f"{name}: the question '{case.id}' has no text.")
            seen.add(case.id)

    @classmethod
    def load(cls, path: str | Path, *, split: str = "test") -> Self:
        """Read cases from a BEIR folder or a file.

        Parameters
        ----------
        path
            A folder with ``queries.jsonl`` whose metadata may hold ``answers`` and ``answerable``
            (or ``is_impossible``), and perhaps ``qrels/test.tsv``; or a ``.jsonl`` file with one
            case per line: ``query``, perhaps ``id``, ``answers`` (text or a list of texts),
            ``answerable`` (true when it is not said) and ``relevant``.
        split
            Which file of a BEIR folder's qrels.

        Raises
        ------
        JudgementsError
            With file and line, when something can't be read.
        """
        place = Path(path).expanduser()
        if place.is_dir():
            return cls(_from_beir(place, split), place.name)
        if not place.exists():
            raise JudgementsError(
                f"{path}: no such file or folder.", hint="give a BEIR folder or a .jsonl file"
            )
        return cls(_from_file(place), place.name)

    def every(self, step: int) -> Self:
        """Return the first of each ``step`` questions; 1 keeps all of them."""
        if step < 1:
            raise JudgementsError(f"a step of {step} questions.", hint="take every question: 1")
        kept = self.cases[::step]
        name = self.name if step == 1 else f"{self.name}, {len(kept)} of {len(self)}"
        return type(self)(kept, name)

    def __len__(self) -> int:
        """Return how many questions there are."""
        return len(self.cases)

    def __iter__(self) -> Iterator[AnswerCase]:
        """Go through the questions."""
        return iter(self.cases)

    def __repr__(self) -> str:
        """Show the name and the counts."""
        return f"<AnswerCases {self._summary()}>"

    def _summary(self) -> str:
        without = sum(not case.answerable for case in self.cases)
        return f"{self.name}: {len(self)} questions, {without} without an answer"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the first questions as a table."""
        rows: list[list[Cell]] = [
            [case.id, case.question, case.answerable, "; ".join(case.answers)]
            for case in self.cases[:_SHOWN]
        ]
        more = len(self) - len(rows)
        notes = [f"{more} more questions are not shown"] if more else []
        columns = ["id", "question", "answerable", "answers"]
        return render_table(self._summary(), columns, rows, notes=notes)


def _from_beir(folder: Path, split: str) -> list[AnswerCase]:
    file = folder / "queries.jsonl"
    if not file.is_file():
        raise JudgementsError(
            f"{folder} has no queries.jsonl.", hint="a BEIR folder has queries.jsonl"
        )
    found: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for place, line in json_lines(file):
        if "_id" not in line or not isinstance(line.get("text"), str):
            raise JudgementsError(f'{place}: a query needs "_id" and "text".')
        query = _identity(line["_id"], place)
        metadata = _metadata(line, frozenset({"_id", "text", "metadata"}))
        if query in found:
            raise JudgementsError(f"{place}: the query '{query}' occurs twice.")
        found[query] = (place, line["text"], metadata)
    judged = folder / "qrels" / f"{split}.tsv"
    texts = {query: text for query, (_, text, _) in found.items()}
    qrels = _read_qrels(judged, texts) if judged.is_file() else {}
    return [
        _case(query, text, metadata, qrels.get(query, {}), place)
        for query, (place, text, metadata) in found.items()
    ]


def _from_file(file: Path) -> Iterator[AnswerCase]:
    for place, line in json_lines(file):
        if not isinstance(line.get("query"), str):
            raise JudgementsError(f'{place}: the case has no "query".', hint=_FORM)
        identity = _identity(line.get("id", place.rpartition(":")[2]), place)
        metadata = _metadata(line, _KEYS | {"metadata"})
        metadata |= {key: line[key] for key in ("answers", "answerable") if key in line}
        relevant = _relevant(line.get("relevant", []), place)
        yield _case(identity, line["query"], metadata, relevant, place)


def _case(
    identity: str, question: str, fields: dict[str, Any], relevant: Mapping[str, int], place: str
) -> AnswerCase:
    rest = dict(fields)
    answers = rest.pop("answers", ())
    answers = [answers] if isinstance(answers, str) else answers
    impossible = rest.pop("is_impossible", False)
    answerable = rest.pop("answerable", not impossible)
    if not isinstance(answerable, bool):
        raise JudgementsError(f'{place}: "answerable" is true or false, not {answerable!r}.')
    if not isinstance(answers, list | tuple) or not all(isinstance(one, str) for one in answers):
        raise JudgementsError(f'{place}: "answers" is a list of texts.', hint=_FORM)
    return AnswerCase(identity, question, answerable, tuple(answers), dict(relevant), rest)
