"""Finds the entities of a collection that a question names, and the filter for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nbrag.errors import FilterError
from nbrag.protocols import Collection
from nbrag.retrieval.processors._questions import words_of
from nbrag.stores.filters import AnyOf, Comparison, Contains, Filter
from nbrag.stores.metadata import field_type

__all__ = ["Entity", "EntityIndex", "entity_filter", "names_in", "read_entities"]

_PREFIX = "entities_"
#: Values of one field that are looked at, the most frequent ones.
_MOST_VALUES = 50_000
_POSSESSIVE = re.compile(r"['\u2019]s\b", re.IGNORECASE)
#: Scripts that are written without blanks between words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
#: Names this short are also ordinary words (Go, IT): they count only as they are written.
_SHORT = 3
#: Values of more words are no names, and are found only when a model spells them out.
_MOST_WORDS = 10
#: Least length of a name that may be spaced otherwise (GitHub, Git Hub).
_LEAST_COMPACT = 6

_QUOTED = re.compile(
    '"([^"]{2,80})"|\u201c([^\u201d]{2,80})\u201d|\u201e([^\u201c\u201d]{2,80})[\u201c\u201d]'
    "|\u00ab\\s*([^\u00bb]{2,80}?)\\s*\u00bb|\u300c([^\u300d]{1,80})\u300d|`([^`]{2,80})`"
)
_CAPITALISED = re.compile(r"[^\W\d_a-z][\w.&+#-]*(?: [^\W\d_a-z][\w.&+#-]*)+")
#: A capital and, later, another one or a digit: GitHub, NB-4031, C3PO.
_MIXED = re.compile(r"(?<!\w)(?=[\w-]*[^\W\d_][\w-]*)[^\W\d_a-z][\w-]*[A-Z0-9][\w-]*")


@dataclass(frozen=True, slots=True)
class Entity:
    """A value that some chunk carries.

    Attributes
    ----------
    field
        Name of its field.
    value
        The value as it is stored.
    in_list
        Whether the field holds lists.
    """

    field: str
    value: str
    in_list: bool


async def read_entities(collection: Collection, fields: Sequence[str] = ()) -> EntityIndex:
    """Return the entities of a collection, of each field the 50,000 most frequent.

    Parameters
    ----------
    collection
        Where they are.
    fields
        Fields of text or lists of text; none: all whose name starts with ``entities_``.

    Raises
    ------
    FilterError
        When a named field doesn't exist or holds no text.
    """
    types = await collection.fields()
    chosen = fields or [name for name in types if name.startswith(_PREFIX)]
    found: list[Entity] = []
    cut: list[str] = []
    for name in chosen:
        kind = field_type(name, types)
        if kind not in ("VARCHAR", "VARCHAR[]"):
            if not fields:
                continue
            raise FilterError(
                f"field '{name}' holds no text, and so no entities.",
                hint="name fields of text or lists of text in entity_fields",
            )
        values = await collection.field_values(name, limit=_MOST_VALUES + 1)
        if len(values) > _MOST_VALUES:
            cut.append(name)
        in_list = kind == "VARCHAR[]"
        found += [Entity(name, str(value), in_list) for value in values[:_MOST_VALUES]]
    return EntityIndex(found, cut)


def _key(name: str) -> str:
    return words_of(_POSSESSIVE.sub("", name)).removeprefix("the ")


def _compact(key: str) -> str:
    """Return the key without blanks; empty where they may matter (1.2 is not 12)."""
    joined = key.replace(" ", "")
    digits = any(mark.isdigit() for mark in joined)
    return "" if digits or len(joined) < _LEAST_COMPACT else joined


class EntityIndex:
    """Entities by their names, in which case, punctuation and spacing don't count.

    Parameters
    ----------
    entities
        What there is.
    cut
        Fields that have more values than these.
    """

    def __init__(self, entities: Iterable[Entity], cut: Sequence[str] = ()) -> None:
        self.cut = tuple(cut)
        self._by_key: dict[str, list[Entity]] = defaultdict(list)
        self._by_compact: dict[str, list[Entity]] = defaultdict(list)
        for entity in entities:
            key = _key(entity.value)
            if key:
                self._by_key[key].append(entity)
                self._by_compact[_compact(key)].append(entity)
        self._by_compact.pop("", None)
        self._unspaced = [key for key in self._by_key if _UNSPACED.search(key)]
        lengths = (len(key.split()) for key in self._by_key)
        # One more than they have: a name may be written apart.
        self._longest = min(max(lengths, default=-1) + 1, _MOST_WORDS)

    def __len__(self) -> int:
        """Return how many names there are."""
        return len(self._by_key)

    def get(self, name: str) -> list[Entity]:
        """Return the entities of that name, empty when there are none."""
        key = _key(name)
        return self._by_key.get(key) or self._by_compact.get(_compact(key)) or []

    def link(self, names: Iterable[str], question: str) -> tuple[list[Entity], list[str]]:
        """Return the entities that are named, and the names that are none here.

        A name that does not occur in the question is not taken from anyone.
        """
        asked = _key(question)
        linked: dict[Entity, None] = {}
        unknown: dict[str, None] = {}
        for name in names:
            key = _key(name)
            if not key:
                continue
            found = self.get(name) if _occurs(key, asked) else []
            linked.update(dict.fromkeys(found))
            if not found:
                unknown[" ".join(name.split())] = None
        return list(linked), list(unknown)

    def occurring(self, question: str) -> list[str]:
        """Return the values that occur in a question, in its order; longer names win."""
        words = _key(question).split()
        used = [False] * len(words)
        found: list[tuple[int, str]] = []
        for length in range(min(self._longest, len(words)), 0, -1):
            for start in range(len(words) - length + 1):
                stretch = slice(start, start + length)
                if any(used[stretch]):
                    continue
                entities = self.get(" ".join(words[stretch]))
                if entities and _stands_as_written(entities[0].value, question):
                    used[stretch] = [True] * length
                    found.append((start, entities[0].value))
        text = "".join(words)
        for key in sorted(self._unspaced, key=len, reverse=True):
            place = text.find(key.replace(" ", ""))
            value = self._by_key[key][0].value
            if place >= 0 and not any(value in longer for _, longer in found):
                found.append((place, value))
        found.sort(key=lambda pair: pair[0])
        return list(dict.fromkeys(value for _, value in found))


def _occurs(key: str, asked: str) -> bool:
    """Return whether a question holds a name, which may be inflected unless it is short."""
    if len(key) <= _SHORT and not _UNSPACED.search(key):
        return f" {key} " in f" {asked} "
    return key.replace(" ", "") in asked.replace(" ", "")


def _stands_as_written(value: str, question: str) -> bool:
    """Return whether a value can be told from an ordinary word or number of the question."""
    if value.isdigit():
        return False
    if len(value) > _SHORT:
        return True
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", question) is not None


def entity_filter(entities: Sequence[Entity]) -> Filter:
    """Return the condition that a chunk carries at least one of the entities.

    Parameters
    ----------
    entities
        At least one.
    """
    parts: list[Filter] = [
        Contains(entity.field, entity.value)
        if entity.in_list
        else Comparison(entity.field, "==", entity.value)
        for entity in entities
    ]
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def names_in(question: str) -> list[str]:
    """Return what looks like a name in any language: quoted, capitalised runs, mixed case.

    A single capitalised word is no sign: it may start a sentence, or be a German noun.
    """
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(question)]
    rest = _QUOTED.sub(" ", question)
    # The first word of a sentence is capitalised anyway.
    inner = re.sub(r"(^|[.!?:]\s+)\W*\w+", r"\1", rest)
    runs = [match.group() for match in _CAPITALISED.finditer(inner)]
    mixed = [match.group() for match in _MIXED.finditer(rest)]
    names = [*quoted, *runs, *(word for word in mixed if not any(word in run for run in runs))]
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))
