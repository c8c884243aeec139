"""JSON Lines and JSON: one block per record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from nbrag.errors import CorruptDocument
from nbrag.ingestion.decoding import decode
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.records import add_record
from nbrag.types import Document

__all__ = ["JsonReader"]

_LINES = frozenset({".jsonl", ".ndjson"})


class JsonReader:
    """Reads JSON Lines (records end at line feeds only) and JSON (a list of records, or a tree).

    A line that is no JSON is left out, and the document's report says so.
    """

    suffixes: tuple[str, ...] = (".jsonl", ".ndjson", ".json")
    media_types: tuple[str, ...] = (
        "application/json",
        "application/jsonl",
        "application/x-ndjson",
        "application/jsonlines",
    )

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document.

        Raises
        ------
        CorruptDocument
            When nothing in it is JSON.
        EmptyDocument
            When there are no records.
        """
        decoded = decode(data, name=uri)
        assembly = DocumentAssembly()
        assembly.notes.append(decoded.note)
        if PurePosixPath(name.lower()).suffix in _LINES:
            _add_lines(assembly, decoded.text, uri)
        else:
            try:
                parsed = json.loads(decoded.text or "null")
            except (json.JSONDecodeError, RecursionError):
                # Many files that end in .json hold a record a line.
                _add_lines(assembly, decoded.text, uri)
            else:
                _add_tree(assembly, parsed)
        return assembly.document(uri=uri, name=name, media_type="application/json")


def _add_lines(assembly: DocumentAssembly, text: str, uri: str) -> None:
    wrong: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            wrong.append(number)
        else:
            add_record(assembly, record if isinstance(record, Mapping) else {"": record})
    if wrong and not len(assembly):
        raise CorruptDocument(
            f"{uri} is not valid JSON (line {wrong[0]}).", hint="it may be truncated"
        )
    if wrong:
        shown = ", ".join(map(str, wrong[:10])) + (", …" if len(wrong) > 10 else "")
        assembly.notes.append(f"not JSON and left out: line {shown}")


def _add_tree(assembly: DocumentAssembly, parsed: Any) -> None:
    records = parsed
    if isinstance(parsed, Mapping):
        # A wrapper such as {"data": [...]} around the records.
        lists = [value for value in parsed.values() if _are_records(value)]
        records = lists[0] if len(lists) == 1 and len(parsed) <= 3 else None
    if _are_records(records):
        for record in records:
            add_record(assembly, record)
    elif parsed not in (None, {}, [], ""):
        assembly.add("code", json.dumps(parsed, ensure_ascii=False, indent=2))


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)
