"""What can be ingested: files, folders, globs, URLs, records, data frames, relations.

Sources are gone through lazily. What can't be found or opened becomes an item whose ``load``
raises, so that the report has a row for it.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbrag.errors import ConfigurationError, SourceNotFound
from nbrag.ingestion.source_items import failing_item, file_item, record_item, url_item
from nbrag.ingestion.tables import is_table, table_records
from nbrag.protocols import SourceItem
from nbrag.types import Document

__all__ = ["expand_sources"]

_URL = re.compile(r"https?://", re.IGNORECASE)
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,5}\s*$")
#: Folders and files that hold no documents of a person's.
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
_SKIPPED_BEGINNINGS = (".", "~$")


def expand_sources(
    sources: Any, *, base: str | os.PathLike[str] | None = None, text_column: str = "text"
) -> Iterator[SourceItem]:
    """Yield an item for each document that the sources name.

    Parameters
    ----------
    sources
        One source or an iterable of sources, gone through lazily. A source is

        - a path of a file or a folder (all files below it, sorted, without hidden ones), a glob
          such as ``docs/**/*.md``, or an ``http(s)`` URL;
        - a record: a mapping with its text under ``text_column``, its identity under ``uri`` or
          ``id``, perhaps a ``title``, and metadata under all other keys;
        - a pair (text, metadata), or a text of several words or lines;
        - a pandas or polars data frame, an Arrow table, a DuckDB relation: a record per row;
        - a :class:`nbrag.types.Document` or a :class:`nbrag.protocols.SourceItem`.

        A record without an identity gets one from a hash of its text.
    base
        Folder that relative paths start from, by default the current one. A file's URI is its
        path relative to it, or its absolute path when it is elsewhere.
    text_column
        Where records keep their text.

    Raises
    ------
    ConfigurationError
        When a source is of a type that is none of these, or a table has no text column.
    """
    root = Path.cwd() if base is None else Path(base).absolute()
    yield from _Expansion(root, text_column).expand(sources)


class _Expansion:
    """One walk through sources; remembers which files it has seen."""

    def __init__(self, base: Path, text_column: str) -> None:
        self._base = base
        self._text_column = text_column
        self._seen: set[str] = set()
        self._records = 0

    def expand(self, source: Any) -> Iterator[SourceItem]:
        """Yield the items of one source or of an iterable of sources."""
        if isinstance(source, SourceItem):
            yield source
        elif isinstance(source, Document):
            yield SourceItem(source.uri, source.uri, document=source)
        elif isinstance(source, str):
            yield from self._text_or_path(source)
        elif isinstance(source, os.PathLike):
            yield from self._path(os.fspath(source))
        elif isinstance(source, Mapping):
            yield self._record(source)
        elif is_table(source):
            for record in table_records(source, self._text_column):
                yield self._record(record)
        elif _is_pair(source):
            yield self._record({**source[1], self._text_column: source[0]})
        elif isinstance(source, Iterable) and not isinstance(source, bytes | bytearray):
            for element in source:
                yield from self.expand(element)
        else:
            raise ConfigurationError(
                f"a source can't be of type {type(source).__name__}.",
                hint="pass paths, globs, URLs, records with a text, a data frame or a relation",
            )

    def _record(self, record: Mapping[Any, Any]) -> SourceItem:
        self._records += 1
        return record_item(record, self._text_column, self._records)

    def _text_or_path(self, source: str) -> Iterator[SourceItem]:
        if _URL.match(source):
            yield url_item(source)
        elif _is_text(source) and not self._resolved(source).exists():
            yield self._record({self._text_column: source})
        else:
            yield from self._path(source.removeprefix("file://"))

    def _resolved(self, given: str) -> Path:
        try:
            path = Path(given).expanduser()
            return self._base / path
        except RuntimeError:  # no such user's home
            return self._base / given

    def _path(self, given: str) -> Iterator[SourceItem]:
        """Yield the items of a file, a folder or a glob."""
        path = self._resolved(given)
        try:
            is_folder, exists = path.is_dir(), path.exists() or path.is_symlink()
        except (OSError, ValueError):  # too long, or with a NUL
            is_folder = exists = False
        if is_folder:
            files = _files_below(path)
            yield from self._files(files, given, f"the folder {given} has no files.")
        elif exists:
            yield from self._files([path], given, "")
        elif glob.has_magic(given):
            pattern = os.path.expanduser(given)  # noqa: PTH111 - a pattern, not a path
            yield from self._files(_glob(pattern, self._base), given, f"no file matches {given}.")
        else:
            yield failing_item(given, _not_found(given, path))

    def _files(self, files: Iterable[Path], given: str, otherwise: str) -> Iterator[SourceItem]:
        """Yield an item for each file that was not seen before; one that fails for none."""
        iterator = iter(files)
        first = next(iterator, None)
        if first is None:
            hint = "check the path; hidden files are skipped"
            yield failing_item(given, SourceNotFound(otherwise, hint=hint))
            return
        for path in itertools.chain([first], iterator):
            identity = os.path.realpath(path)
            if identity not in self._seen:
                self._seen.add(identity)
                yield file_item(path, self._base)


def _is_pair(source: Any) -> bool:
    return (
        isinstance(source, tuple)
        and len(source) == 2
        and isinstance(source[0], str)
        and isinstance(source[1], Mapping)
    )


def _is_text(source: str) -> bool:
    """Tell a text from a path: several lines, or words without a slash and a file's ending."""
    if "\n" in source.strip():
        return True
    words = source.split()
    return len(words) > 2 and not re.search(r"[/\\*]", source) and not _SUFFIX.search(source)


def _is_skipped(name: str) -> bool:
    return name.startswith(_SKIPPED_BEGINNINGS) or name in _SKIPPED_FOLDERS


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those below it, sorted by name at each level."""
    for current, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(name))
        for name in sorted(names):
            if not _is_skipped(name):
                yield Path(current, name)


def _glob(pattern: str, base: Path) -> Iterator[Path]:
    """Yield matching files in order; the files of matching folders when no file matches."""
    found = sorted(glob.glob(pattern, root_dir=base, recursive=True))  # noqa: PTH207 - root_dir
    named = {part for part in Path(pattern).parts if not glob.has_magic(part)}
    visible = [
        base / match
        for match in found
        if not any(_is_skipped(part) and part not in named for part in Path(match).parts)
    ]
    files = [path for path in visible if not path.is_dir()]
    if files:
        yield from files
        return
    for path in visible:
        yield from _files_below(path)


def _not_found(given: str, path: Path) -> SourceNotFound:
    """Return an error that names what is near."""
    from nbrag.errors import closest

    try:
        neighbours = [neighbour.name for neighbour in path.parent.iterdir()]
    except (OSError, ValueError):
        return SourceNotFound(
            f"there is no file or folder {given}.", hint=f"nor is there a folder {path.parent}"
        )
    near = closest(path.name, neighbours)
    hint = f"did you mean '{near}'?" if near else f"look into {path.parent}"
    return SourceNotFound(f"there is no file or folder {given}.", hint=hint)
