"""Reading files of one record per line, with the file and line in every error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbrag.errors import JudgementsError

__all__ = ["json_lines", "text_lines"]


def text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place (``file:line``) and the text of every line that is not blank.

    Lines end at line feeds only: the other characters that Python counts as line ends occur
    within texts. A byte order mark and carriage returns before line feeds are dropped.

    Raises
    ------
    JudgementsError
        When the file can't be opened or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                place = f"{path.name}:{number}"
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise JudgementsError(
                        f"{place}: not UTF-8 at byte {error.start + 1} of the line.",
                        hint="save the file as UTF-8",
                    ) from None
                line = line.removesuffix("\n").removesuffix("\r")
                if line.strip():
                    yield place, line
    except OSError as error:
        raise JudgementsError(
            f"{path} can't be read: {error.strerror or error}.", hint="check the path"
        ) from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place (``file:line``) and the JSON object of every line that is not blank.

    Raises
    ------
    JudgementsError
        When the file can't be read or a line is no JSON object.
    """
    for place, line in text_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", str(error))
            column = getattr(error, "colno", None)
            where = "" if column is None else f" at column {column}"
            raise JudgementsError(
                f"{place}: not JSON: {reason}{where}.", hint="one JSON object per line"
            ) from None
        if not isinstance(value, dict):
            raise JudgementsError(
                f"{place}: a {type(value).__name__} where an object should be.",
                hint='one JSON object per line, e.g. {"query": "...", "relevant": ["a.md"]}',
            )
        yield place, value
