"""Metadata as filters need it: flat, typed, clean, with names that a filter can spell."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from nbrag.ingestion.decoding import clean_text
from nbrag.types import MetadataValue

__all__ = ["clean_metadata", "clean_string", "field_name"]

#: Nested mappings may not make a document's fields explode.
_MOST_FIELDS = 500
_LARGEST_INTEGER = 2**63
_NOT_IN_NAME = re.compile(r"\W+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def field_name(key: object) -> str:
    """Return a key as a name that a filter can spell: lower case, ``_`` for all odd signs."""
    name = _NOT_IN_NAME.sub("_", clean_text(str(key)).casefold()).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def clean_string(value: str) -> str:
    """Return the text without control characters, lone surrogates and outer blanks."""
    return _CONTROL.sub("", clean_text(value)).strip()


def clean_metadata(values: Mapping[Any, Any]) -> dict[str, MetadataValue]:
    """Return fields for filters.

    Nested mappings are flattened with ``_`` between the names; dates become ISO text; lists
    become lists of text; values that say nothing (None, NaN, empty text, empty lists) are left out.

    Parameters
    ----------
    values
        Any mapping, such as a file's front matter or a data frame's row.
    """
    cleaned: dict[str, MetadataValue] = {}
    _flatten(values, "", cleaned)
    return cleaned


def _flatten(values: Mapping[Any, Any], prefix: str, into: dict[str, MetadataValue]) -> None:
    for key, value in values.items():
        name = field_name(f"{prefix}_{key}" if prefix else key)
        if not name or len(into) >= _MOST_FIELDS:
            continue
        if isinstance(value, Mapping):
            _flatten(value, name, into)
        elif (cleaned := _clean_value(value)) is not None:
            into[name] = cleaned


def _clean_value(value: Any) -> MetadataValue:
    """Return the value as one of the types that a filter knows, None when it says nothing."""
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else str(value)
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return clean_string(value) or None
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        texts = [_as_text(item) for item in items if item is not None]
        return [text for text in texts if text] or None
    return _as_text(value) or None


def _as_text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return clean_string(bytes(value).decode("utf-8", "replace"))
    if isinstance(value, dt.date | dt.time):
        # pandas' missing timestamp is a date whose text is "NaT".
        text = value.isoformat()
        return "" if text == "NaT" else text
    if isinstance(value, bool | Mapping | list):
        return clean_string(json.dumps(value, ensure_ascii=False, default=str))
    return clean_string(str(value))
