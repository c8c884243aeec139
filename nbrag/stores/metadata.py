"""Metadata fields: their names, their types, and how types widen when values disagree."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from nbrag.errors import FilterError, did_you_mean

__all__ = [
    "BUILT_IN_FIELDS",
    "RESERVED_NAMES",
    "FieldTypes",
    "clean_text",
    "converted",
    "field_type",
    "plain_value",
]

#: What every chunk can be filtered by, with types as in :mod:`nbrag.stores.filters_sql`.
BUILT_IN_FIELDS: dict[str, str] = {
    "source": "VARCHAR",
    "title": "VARCHAR",
    "media_type": "VARCHAR",
    "page": "BIGINT",
    "kind": "VARCHAR",
    "heading_path": "VARCHAR[]",
    "ordinal": "BIGINT",
    "token_count": "BIGINT",
}

#: Column names that a metadata field can't have; it gets an underscore behind its name.
RESERVED_NAMES = frozenset(
    {
        *BUILT_IN_FIELDS,
        "row",
        "rowid",
        "id",
        "document_id",
        "parent_id",
        "content",
        "context",
        "start_offset",
        "end_offset",
        "text_hash",
        "embedding",
        "embedding_text",
    }
)
_INT64 = 2**63


class FieldTypes:
    """The metadata fields of a collection, learnt from the values that are stored.

    A field's type is that of its first value and widens when a later one does not fit: whole
    number to number, anything to text, a single value to a list of texts. Names are compared
    without regard to case; the first spelling stays.

    Parameters
    ----------
    known
        Fields that exist already, with their types.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.types: dict[str, str] = dict(known or {})
        self._names: dict[str, str] = {}
        self._spelling = {name.casefold(): name for name in self.types}

    def learn_document(
        self, shared: Mapping[str, Any], own: Iterable[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Take up the fields of a document and its chunks; return one record per chunk.

        Values are plain ones (None left out) but may still be of a narrower type than the
        field; :func:`converted` makes them fit once all records are known.

        Parameters
        ----------
        shared
            The document's metadata.
        own
            Each chunk's metadata, which goes before the document's.
        """
        common = self._learn(shared)
        return [{**common, **self._learn(extra)} if extra else dict(common) for extra in own]

    def _learn(self, record: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, raw in record.items():
            value = plain_value(raw)
            if value is None:
                continue
            name = self._names.get(key) or self._named(key)
            known = self.types.get(name)
            found = _type_of(value)
            if known != found:
                self.types[name] = found if known is None else _wider(known, found)
            kept[name] = value
        return kept

    def _named(self, key: str) -> str:
        clean = str(key).replace("\0", "").encode("utf-8", "replace").decode() or "_"
        while clean.casefold() in RESERVED_NAMES:
            clean += "_"
        self._names[key] = self._spelling.setdefault(clean.casefold(), clean)
        return self._names[key]


def converted(value: Any, kind: str) -> Any:
    """Return a stored value as its field's type, which is as wide as the value or wider."""
    if value is None:
        return None
    if kind == "VARCHAR[]":
        return list(value) if isinstance(value, list) else [_text(value)]
    if kind == "VARCHAR":
        return _text(value)
    return float(value) if kind == "DOUBLE" else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def plain_value(value: Any) -> Any:
    """Return the value as text, number, truth value or list of texts; None for nothing."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if hasattr(value, "item") and hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        return plain_value(value.item())
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return clean_text(json.dumps(value, ensure_ascii=False, default=str, sort_keys=True))
    if isinstance(value, set | frozenset):
        return sorted(clean_text(_text(plain_value(part))) for part in value if part is not None)
    if isinstance(value, Iterable):
        return [clean_text(_text(plain_value(part))) for part in value if part is not None]
    return clean_text(str(value))


def clean_text(text: str) -> str:
    """Return the text without what UTF-8 can't say: halves of surrogate pairs become ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT"
    if isinstance(value, float):
        return "DOUBLE"
    return "VARCHAR" if isinstance(value, str) else "VARCHAR[]"


def _wider(known: str, found: str) -> str:
    if known == found:
        return known
    if "VARCHAR[]" in {known, found}:
        return "VARCHAR[]"
    return "DOUBLE" if {known, found} == {"BIGINT", "DOUBLE"} else "VARCHAR"


def field_type(field: str, fields: Mapping[str, str]) -> str:
    """Return the type of a field.

    Raises
    ------
    FilterError
        When there is no such field; with the nearest name.
    """
    if field not in fields:
        raise FilterError(
            f"there is no field '{field}'.", hint=did_you_mean(field, fields, what="fields")
        )
    return fields[field]
