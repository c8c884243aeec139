"""Which stored document, or chunk, a judgement means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nbrag.errors import JudgementsError
from nbrag.evaluation.judgements import Judgements
from nbrag.protocols import Collection
from nbrag.types import RetrievalChunk

__all__ = ["Matching", "match_judgements", "nothing_matches"]

Unit = Literal["document", "chunk", "field"]

#: Metadata fields in which records keep their identity; stores put an underscore behind "id".
_FIELDS = ("_id", "id_", "id")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Matching:
    """How found chunks and judgements are brought together, for one collection.

    Attributes
    ----------
    unit
        What is ranked: documents by URI, chunks by id, or documents by a metadata field.
    qrels
        Grades by query id and the unit's identity.
    metadata_field
        The metadata field, where documents go by one.
    missing
        Judged identities that the collection does not have; they count as not found.
    """

    unit: Unit
    qrels: Mapping[str, Mapping[str, int]]
    metadata_field: str = ""
    missing: tuple[str, ...] = ()

    def ranking(self, chunks: Iterable[RetrievalChunk]) -> list[str]:
        """Return the distinct identities of chunks, best first: each at its best chunk's rank.

        A text that stands in several documents was found in all of them: the others follow the
        first one.
        """
        names: dict[str, None] = {}
        for chunk in chunks:
            if self.unit == "chunk":
                names[chunk.id] = None
            elif self.unit == "field":
                value = chunk.record.get(self.metadata_field)
                names[chunk.source if value is None else str(value)] = None
            else:
                names[chunk.source] = None
                names.update(dict.fromkeys(map(str, chunk.record.get("also_in") or ())))
        return list(names)


async def match_judgements(judgements: Judgements, collection: Collection) -> Matching:
    """Decide what judgements name, once, by what occurs in the collection.

    Tried in this order: documents by their whole URI; by the end of it, from a slash on
    (``operations/backup.md`` for ``handbook/operations/backup.md``), whichever of the two names
    more; chunks by id; documents by the metadata field ``_id`` or ``id``.

    Raises
    ------
    JudgementsError
        When the collection has nothing of that name, or a name fits several documents.
    """
    judged = list(dict.fromkeys(name for grades in judgements.qrels.values() for name in grades))
    uris = list(await collection.documents())
    if not uris:
        raise JudgementsError(
            f"collection '{collection.name}' has no documents.", hint="ingest some first"
        )
    known = set(uris)
    exact = {name: [name] for name in judged if name in known}
    ends = _by_ending(uris, judged)
    found = ends if len(ends) > len(exact) else exact
    if found:
        _require_unambiguous(found)
        return _documents(judgements, {name: places[0] for name, places in found.items()}, judged)
    chunks = await collection.chunks(judged)
    if chunks:
        missing = tuple(name for name in judged if name not in chunks)
        return Matching("chunk", judgements.qrels, missing=missing)
    fields = await collection.fields()
    for name in _FIELDS:
        if name in fields:
            return Matching("field", judgements.qrels, metadata_field=name)
    raise nothing_matches(judgements, collection, uris)


def nothing_matches(
    judgements: Judgements, collection: Collection, names: Iterable[str]
) -> JudgementsError:
    """Return the error for judgements that speak of other documents than the collection's."""
    judged = [name for grades in judgements.qrels.values() for name in grades]
    return JudgementsError(
        f"{judgements.name} names nothing that collection '{collection.name}' has: "
        f"judged are {_some(judged)}; the collection has {_some(sorted(names))}.",
        hint="judgements name documents by URI or the end of one, by the metadata field _id or "
        "id, or by chunk id",
    )


def _documents(judgements: Judgements, places: Mapping[str, str], judged: list[str]) -> Matching:
    """Return judgements by URI; two names of one document count as the better grade."""
    qrels: dict[str, dict[str, int]] = {}
    for query, grades in judgements.qrels.items():
        by_uri = qrels.setdefault(query, {})
        for name, grade in grades.items():
            uri = places.get(name, name)
            by_uri[uri] = max(by_uri.get(uri, grade), grade)
    missing = tuple(name for name in judged if name not in places)
    return Matching("document", qrels, missing=missing)


def _by_ending(uris: Iterable[str], judged: Iterable[str]) -> dict[str, list[str]]:
    """Return the URIs that equal a judged name or end in a slash and it."""
    wanted = {_normalised(name): name for name in judged}
    found: dict[str, list[str]] = {}
    for uri in uris:
        normalised = _normalised(uri)
        starts = [0, *(i + 1 for i, letter in enumerate(normalised) if letter == "/")]
        for start in starts:
            name = wanted.get(normalised[start:])
            if name is not None:
                found.setdefault(name, []).append(uri)
    # A whole URI is never in doubt, even when another one ends in it.
    return {name: [name] if name in places else places for name, places in found.items()}


def _normalised(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./").strip("/")


def _require_unambiguous(found: Mapping[str, list[str]]) -> None:
    for name, places in found.items():
        if len(places) > 1:
            raise JudgementsError(
                f"the judged document '{name}' could be {' or '.join(places[:_SHOWN])}.",
                hint="write more of its path in the judgements",
            )


def _some(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    shown = ", ".join(f"'{name}'" for name in listed[:_SHOWN])
    return shown if len(listed) <= _SHOWN else f"{shown}, ..."
