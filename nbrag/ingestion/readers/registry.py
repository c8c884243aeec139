"""Which reader takes which source: by file name, by stated media type, by looking inside."""

from __future__ import annotations

import io
import zipfile
from pathlib import PurePosixPath

from nbrag.errors import UnsupportedFormat
from nbrag.protocols import Reader

__all__ = ["reader_for", "readers", "register_reader"]

_READERS: list[Reader] = []
_HINT = "readable are text, Markdown, HTML, PDF, DOCX, notebooks, CSV, JSON Lines, XLSX and EPUB"
#: Kinds that no reader takes though one might expect it, and what to do with them.
_ADVICE = {
    ".doc": "save it as .docx",
    ".dot": "save it as .docx",
    ".rtf": "save it as .docx",
    ".odt": "save it as .docx",
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx",
    ".ppt": "export it as PDF",
    ".pptx": "export it as PDF",
    ".odp": "export it as PDF",
    ".parquet": "read it with DuckDB or pandas and pass the relation or data frame",
    ".duckdb": "open it with DuckDB and pass a relation",
    ".zip": "unpack it and name the folder",
    ".gz": "unpack it and name the file",
    ".tar": "unpack it and name the folder",
}
#: Media types that servers give when they know nothing better.
_VAGUE = frozenset({"", "text/plain", "application/octet-stream", "binary/octet-stream"})
#: Parts that tell what a zip archive is.
_ZIP_MEMBERS = (
    (b"word/", ".docx"),
    (b"xl/", ".xlsx"),
    (b"application/epub+zip", ".epub"),
    (b"META-INF/container.xml", ".epub"),
)


def register_reader(reader: Reader) -> Reader:
    """Add a reader; it goes before the ones that were there, so it may replace them.

    Parameters
    ----------
    reader
        An object with ``suffixes``, ``media_types`` and ``read``.
    """
    _READERS.insert(0, reader)
    return reader


def readers() -> tuple[Reader, ...]:
    """Return the registered readers, the first to be asked first."""
    return tuple(_READERS)


def reader_for(name: str, media_type: str = "", data: bytes = b"") -> Reader:
    """Return the reader for a source.

    A precise media type (from a web server) comes first, then the ending of the name, then the
    content itself.

    Parameters
    ----------
    name
        File name.
    media_type
        As stated by the source, with or without parameters; empty when unknown.
    data
        The content.

    Raises
    ------
    UnsupportedFormat
        When no reader takes it, or it is binary.
    """
    kind = media_type.partition(";")[0].strip().lower()
    if kind not in _VAGUE and (found := _by_media_type(kind)) is not None:
        return found
    suffix = PurePosixPath(name.lower()).suffix
    if (found := _by_suffix(suffix)) is not None:
        return found
    if suffix in _ADVICE:
        raise UnsupportedFormat(
            f"{name} is a {suffix} file, which no reader takes.", hint=_ADVICE[suffix]
        )
    sniffed = _by_suffix(_sniff(data, name))
    if sniffed is None:
        raise UnsupportedFormat(f"no reader takes {name}.", hint=_HINT)
    return sniffed


def _by_suffix(suffix: str) -> Reader | None:
    return next((r for r in _READERS if suffix and suffix in r.suffixes), None)


def _by_media_type(kind: str) -> Reader | None:
    return next((r for r in _READERS if kind in r.media_types), None)


def _sniff(data: bytes, name: str) -> str:
    """Return the suffix that the content would have by right."""
    from nbrag.ingestion.decoding import decode

    head = data[:4096]
    if b"%PDF-" in head[:1024]:
        return ".pdf"
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(data, name)
    decode(data, name=name)  # refuses binary data
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return ".html"
    if start.startswith(b"{") and b'"nbformat"' in data:
        return ".ipynb"
    return ".txt"


def _sniff_zip(data: bytes, name: str) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = "\n".join(archive.namelist()).encode()
    except (zipfile.BadZipFile, OSError, ValueError):
        members = data
    for member, suffix in _ZIP_MEMBERS:
        if member in members:
            return suffix
    raise UnsupportedFormat(f"{name} is a zip archive.", hint=_ADVICE[".zip"])
