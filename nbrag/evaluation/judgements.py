"""Judgements: questions, and which documents answer them how well."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from nbrag.errors import JudgementsError, did_you_mean
from nbrag.evaluation.lines import json_lines, text_lines
from nbrag.rendering import Rendering, render_table

__all__ = ["Judgements"]

#: Keys of a case that are not metadata.
_CASE_KEYS = frozenset({"id", "query", "relevant", "metadata"})
_CASE_FORM = 'a case is {"query": "...", "relevant": {"a.md": 2}} or {..., "relevant": ["a.md"]}'
_SHOWN = 5
_LARGEST_GRADE = 1_000_000


@dataclass(frozen=True, slots=True)
class Judgements:
    """Questions with graded relevant documents (qrels).

    Queries without a positive judgement can't be measured: they are left out and counted.

    Attributes
    ----------
    queries
        Question by query id, in the order of the file.
    qrels
        Per query id the grade of each judged document: 0 not relevant, 1 and more relevant.
        Documents are named by URI, by the end of one (``operations/backup.md``), or are chunk ids.
    metadata
        Further fields of each query, by query id.
    name
        Where they come from, for captions.
    left_out
        How many queries had no positive judgement.

    Raises
    ------
    JudgementsError
        When qrels name an unknown query, or no query has a positive judgement.
    """

    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    name: str = "judgements"
    left_out: int = 0

    def __post_init__(self) -> None:
        """Check the ids and leave out what can't be measured."""
        unknown = [query for query in self.qrels if query not in self.queries]
        if unknown:
            raise JudgementsError(
                f"{self.name}: {len(unknown)} judged queries are unknown: {_some(unknown)}.",
                hint="qrels and queries must belong together",
            )
        kept = [
            query
            for query in self.queries
            if any(grade >= 1 for grade in self.qrels.get(query, {}).values())
        ]
        if not kept:
            raise JudgementsError(
                f"{self.name}: no query has a relevant document (grade 1 or more).",
                hint="judge at least one document per query",
            )
        blank = [query for query in kept if not self.queries[query].strip()]
        if blank:
            raise JudgementsError(f"{self.name}: queries without text: {_some(blank)}.")
        left_out = self.left_out + len(self.queries) - len(kept)
        object.__setattr__(self, "left_out", left_out)
        object.__setattr__(self, "queries", {query: self.queries[query] for query in kept})
        object.__setattr__(self, "qrels", {query: dict(self.qrels[query]) for query in kept})
        metadata = {query: dict(self.metadata[query]) for query in kept if query in self.metadata}
        object.__setattr__(self, "metadata", metadata)

    @classmethod
    def load(cls, path: str | Path, *, split: str = "test") -> Self:
        """Read judgements from a BEIR folder or a file of cases.

        Parameters
        ----------
        path
            A folder with ``queries.jsonl`` and ``qrels/test.tsv``, or a ``.jsonl`` file with one
            case per line: ``query``, ``relevant`` (grade by document, or a list of documents of
            grade 1), perhaps ``id``; all other keys are kept as metadata.
        split
            Which file of a BEIR folder's qrels.

        Raises
        ------
        JudgementsError
            With file and line, when something can't be read.
        """
        place = Path(path).expanduser()
        if place.is_dir():
            return cls._from_beir(place, split)
        if not place.exists():
            raise JudgementsError(
                f"{path}: no such file or folder.", hint="give a BEIR folder or a .jsonl file"
            )
        if place.suffix.lower() not in {".jsonl", ".ndjson"}:
            raise JudgementsError(
                f"{path} is neither a BEIR folder nor a .jsonl file.", hint=_CASE_FORM
            )
        return cls._from_cases(place)

    @classmethod
    def _from_beir(cls, folder: Path, split: str) -> Self:
        listed = {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}
        if not (folder / "queries.jsonl").is_file():
            raise JudgementsError(
                f"{folder} has no queries.jsonl.",
                hint="a BEIR folder has queries.jsonl and qrels/test.tsv",
            )
        if split not in listed:
            raise JudgementsError(
                f"{folder} has no qrels/{split}.tsv.",
                hint=did_you_mean(split, listed, what="splits")
                if listed
                else "a BEIR folder has queries.jsonl and qrels/test.tsv",
            )
        queries: dict[str, str] = {}
        metadata: dict[str, dict[str, Any]] = {}
        for place, line in json_lines(folder / "queries.jsonl"):
            text = line.get("text")
            if "_id" not in line or not isinstance(text, str):
                raise JudgementsError(f'{place}: a query needs "_id" and "text".')
            query = _identity(line["_id"], place)
            if query in queries:
                raise JudgementsError(f"{place}: the query '{query}' occurs twice.")
            queries[query] = text
            metadata[query] = _metadata(line, frozenset({"_id", "text", "metadata"}))
        qrels = _read_qrels(listed[split], queries)
        return cls(queries, qrels, metadata, name=folder.name or str(folder))

    @classmethod
    def _from_cases(cls, file: Path) -> Self:
        queries: dict[str, str] = {}
        qrels: dict[str, dict[str, int]] = {}
        metadata: dict[str, dict[str, Any]] = {}
        for place, case in json_lines(file):
            for key in ("query", "relevant"):
                if key not in case:
                    hint = "that is a BEIR file: give its folder" if "_id" in case else _CASE_FORM
                    raise JudgementsError(f'{place}: the case has no "{key}".', hint=hint)
            if not isinstance(case["query"], str) or not case["query"].strip():
                raise JudgementsError(f'{place}: "query" must be the question\'s text.')
            number = place.rpartition(":")[2]
            query = _identity(case.get("id", number), place)
            if query in queries:
                raise JudgementsError(
                    f"{place}: the id '{query}' occurs twice.", hint="ids must be unique"
                )
            queries[query] = case["query"]
            qrels[query] = _relevant(case["relevant"], place)
            metadata[query] = _metadata(case, _CASE_KEYS)
        return cls(queries, qrels, metadata, name=file.name)

    def __len__(self) -> int:
        """Return how many queries can be measured."""
        return len(self.queries)

    def sample(self, n: int, seed: int = 0) -> Self:
        """Return ``n`` queries drawn without replacement, in their old order; all when fewer.

        Parameters
        ----------
        n
            How many.
        seed
            The same seed draws the same queries.
        """
        if n < 1:
            raise JudgementsError(f"a sample of {n} queries.", hint="draw 1 or more")
        if n >= len(self):
            return self
        drawn = set(random.Random(seed).sample(list(self.queries), n))  # noqa: S311 - no secret
        return self._only(drawn, f"{n} sampled")

    def every(self, step: int) -> Self:
        """Return the first of each ``step`` queries: a sample that anyone can see is not chosen.

        Parameters
        ----------
        step
            1 keeps all of them.
        """
        if step < 1:
            raise JudgementsError(f"a step of {step} queries.", hint="take every query: 1")
        kept = set(list(self.queries)[::step])
        return self if step == 1 else self._only(kept, f"{len(kept)} of {len(self)}")

    def _only(self, kept: Collection[str], note: str) -> Self:
        return type(self)(
            {query: text for query, text in self.queries.items() if query in kept},
            {query: grades for query, grades in self.qrels.items() if query in kept},
            {query: extra for query, extra in self.metadata.items() if query in kept},
            name=f"{self.name}, {note}",
            left_out=self.left_out,
        )

    def __repr__(self) -> str:
        """Show the name and the counts."""
        return f"<Judgements {self._summary()}>"

    def _summary(self) -> str:
        judged = sum(len(grades) for grades in self.qrels.values())
        without = f", {self.left_out} without a relevant document" if self.left_out else ""
        return f"{self.name}: {len(self)} queries{without}, {judged} judgements"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the first queries as a table."""
        rows = [
            [
                query,
                text,
                ", ".join(f"{name} ({grade})" for name, grade in self.qrels[query].items()),
            ]
            for query, text in list(self.queries.items())[:_SHOWN]
        ]
        more = len(self) - len(rows)
        notes = [f"{more} more queries are not shown"] if more else []
        return render_table(self._summary(), ["id", "query", "relevant"], rows, notes=notes)


def _some(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ..."


def _identity(value: Any, place: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise JudgementsError(f"{place}: an id must be text or a whole number.")
    return str(value)


def _metadata(line: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return all other keys, joined with what stands under "metadata"."""
    extra = {key: value for key, value in line.items() if key not in known}
    inner = line.get("metadata")
    if isinstance(inner, Mapping):
        extra |= inner
    elif inner is not None:
        extra["metadata"] = inner
    return extra


def _relevant(value: Any, place: str) -> dict[str, int]:
    """Return grades by document from an object or a list."""
    if isinstance(value, list):
        return {_identity(document, place): 1 for document in value}
    if not isinstance(value, dict):
        raise JudgementsError(f'{place}: "relevant" is a {type(value).__name__}.', hint=_CASE_FORM)
    return {_identity(document, place): _grade(grade, place) for document, grade in value.items()}


def _grade(value: Any, place: str) -> int:
    """Return a grade as a whole number; ``1.0`` is one, too."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number.is_integer() or abs(number) > _LARGEST_GRADE:
        raise JudgementsError(
            f"{place}: the grade {value!r} is no whole number.",
            hint="0 is not relevant, 1 and more is relevant",
        )
    return int(number)


def _read_qrels(path: Path, queries: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Read tab-separated query id, document id and grade; a header line may come first."""
    qrels: dict[str, dict[str, int]] = {}
    for position, (file_place, line) in enumerate(text_lines(path)):
        cells = [cell.strip() for cell in line.split("\t")]
        place = f"qrels/{file_place}"
        if len(cells) != 3:
            raise JudgementsError(
                f"{place}: {len(cells)} columns.",
                hint="three, parted by tabs: query id, document id, grade",
            )
        query, document, grade = cells
        if position == 0 and query not in queries and not _is_number(grade):
            continue
        if query not in queries:
            raise JudgementsError(
                f"{place}: there is no query '{query}' in queries.jsonl.",
                hint="qrels and queries must belong together",
            )
        value = _grade(grade, place)
        if qrels.setdefault(query, {}).setdefault(document, value) != value:
            raise JudgementsError(f"{place}: another grade for '{document}' stands above.")
    return qrels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
