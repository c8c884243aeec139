"""What panels say: errors as the magics show them, without anything private in them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nbrag.errors import NbragError
from nbrag.models.provider import without_secrets
from nbrag.rendering import clip, plain

__all__ = ["error_lines", "shown_database", "without_private"]

_LONGEST = 600


def error_lines(error: BaseException) -> tuple[str, ...]:
    """Return an error as a magic shows it: its name and message, and the hint on a line.

    Folders of this machine and what looks like a key are left out: a panel's words are saved
    with the notebook.
    """
    if isinstance(error, NbragError):
        lines = [f"{type(error).__name__}: {error.message}"]
        if error.hint:
            lines.append(f"Hint: {error.hint}")
    else:
        lines = [f"{type(error).__name__}: {error}"]
    return tuple(clip(plain(without_private(line)), _LONGEST) for line in lines)


def without_private(text: str) -> str:
    """Return the text without keys, and with paths from the current folder or home on."""
    text = without_secrets(text)
    places = {str(Path.cwd()): "", str(Path.home()): "~", tempfile.gettempdir(): "..."}
    for folder, short in sorted(places.items(), key=lambda place: -len(place[0])):
        if len(folder) > 1:
            text = text.replace(folder + os.sep, f"{short}{os.sep}" if short else "")
            text = text.replace(folder, short or ".")
    return text


def shown_database(path: str) -> str:
    """Return a database's path as a script may name it, without this machine's folders."""
    if path == ":memory:":
        return path
    place = Path(path).expanduser().absolute()
    for folder, short in ((Path.cwd(), ""), (Path.home(), "~/")):
        if place.is_relative_to(folder):
            return short + place.relative_to(folder).as_posix()
    return place.name
