"""Records of table files as blocks: one per record, its fields as ``name: value`` lines."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nbrag.ingestion.readers.assembly import DocumentAssembly

__all__ = ["add_record", "add_table", "header_names"]


def add_record(assembly: DocumentAssembly, fields: Mapping[str, Any]) -> None:
    """Add a record as a ``row`` block; fields without a value are left out."""
    lines = []
    for name, value in fields.items():
        text = _value_text(value)
        if text:
            lines.append(f"{name}: {text}" if name else text)
    assembly.add("row", "\n".join(lines))


def _value_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        midnight = value.time() == dt.time(0) and value.tzinfo is None
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).strip()


def header_names(row: Sequence[Any]) -> list[str] | None:
    """Return a first row as column names, None when it looks like data.

    Names are text, filled and different, and none of them is a number.
    """
    names = [str(cell).strip() if cell is not None else "" for cell in row]
    if not names or not all(names) or len(set(names)) < len(names):
        return None
    return None if any(_is_number(cell) for cell in row) else names


def _is_number(cell: Any) -> bool:
    if not isinstance(cell, str):
        return True
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def add_table(assembly: DocumentAssembly, rows: Sequence[Sequence[Any]]) -> None:
    """Add a table's rows as records, by the names of its first row if it has names."""
    if not rows:
        return
    names = header_names(rows[0])
    body = rows if names is None else rows[1:]
    if names is not None and not body:
        assembly.add("row", ", ".join(names))
    for row in body:
        labels = names or []
        extra = [f"column {index + 1}" for index in range(len(labels), len(row))]
        add_record(assembly, dict(zip([*labels, *extra], row, strict=False)))
