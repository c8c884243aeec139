"""One item for one document: a file, a web page, an in-memory record, or a failure."""

from __future__ import annotations

import http.client
import ipaddress
import json
import math
import os
import re
import stat
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from nbrag.errors import (
    EmptyDocument,
    ReaderError,
    SourceNotFound,
    UnsupportedFormat,
    did_you_mean,
)
from nbrag.ingestion.decoding import clean_text, normalize_newlines
from nbrag.ingestion.readers.assembly import has_text
from nbrag.ingestion.readers.metadata import clean_metadata, clean_string
from nbrag.ingestion.readers.text import paragraph_blocks
from nbrag.protocols import SourceItem
from nbrag.types import Document, stable_hash

__all__ = ["failing_item", "file_item", "record_item", "url_item"]

_LARGEST_FILE = 1 << 30
_LARGEST_DOWNLOAD = 200 << 20
_TIMEOUT_SECONDS = 30.0
_IDENTITY_KEYS = ("uri", "id", "_id")


def failing_item(uri: str, error: ReaderError) -> SourceItem:
    """Return an item whose ``load`` raises the error."""
    return SourceItem(clean_text(uri), uri, load=partial(_fail, error))


def _fail(error: ReaderError) -> bytes:
    raise error


def file_item(path: Path, base: Path) -> SourceItem:
    """Return the item of a file; its URI is relative to ``base`` where it is below it."""
    absolute = Path(os.path.normpath(path.absolute()))
    root = Path(os.path.normpath(base))
    inside = absolute.is_relative_to(root)
    place = (absolute.relative_to(root) if inside else absolute).as_posix()
    uri = clean_text(place)
    metadata = {"folder": str(PurePosixPath(uri).parent), "file_name": PurePosixPath(uri).name}
    return SourceItem(
        uri, PurePosixPath(uri).name, load=partial(_read_file, path, uri), metadata=metadata
    )


def _read_file(path: Path, uri: str) -> bytes:
    """Return a file's bytes, or raise what a person can understand."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedFormat(f"{uri} is not a regular file.")
        if status.st_size > _LARGEST_FILE:
            raise ReaderError(f"{uri} has over a gigabyte.", hint="split it")
        return path.read_bytes()
    except FileNotFoundError as error:
        what = "is a link to nothing" if path.is_symlink() else "is gone"
        raise SourceNotFound(f"{uri} {what}.") from error
    except PermissionError as error:
        raise ReaderError(
            f"{uri} can't be opened: permission denied.", hint="check who may read it"
        ) from error
    except OSError as error:
        raise ReaderError(f"{uri} can't be read: {error.strerror or error}.") from error


def record_item(record: Mapping[Any, Any], text_column: str, number: int) -> SourceItem:
    """Return the item of an in-memory record.

    Parameters
    ----------
    record
        Text under ``text_column``, identity under ``uri``, ``id`` or ``_id``, perhaps a
        ``title``; all other keys are metadata.
    text_column
        The key of the text.
    number
        Which record of the run it is, from 1; names one that has neither identity nor text.
    """
    identity = next((record[k] for k in _IDENTITY_KEYS if _is_given(record.get(k))), None)
    uri = "" if identity is None else clean_string(str(identity))
    if text_column not in record:
        hint = did_you_mean(text_column, map(str, record), what="fields")
        reason = f"record {number} has no field '{text_column}'."
        return failing_item(uri or f"record {number}", ReaderError(reason, hint=hint))
    value = record[text_column]
    if _is_given(value) and not isinstance(value, str):
        reason = f"the text of record {number} is of type {type(value).__name__}."
        return failing_item(
            uri or f"record {number}", ReaderError(reason, hint="convert it to text")
        )
    text = clean_text(normalize_newlines(value)) if isinstance(value, str) else ""
    if not has_text(text):
        reason = f"the text of record {number} is empty."
        return failing_item(uri or f"record {number}", EmptyDocument(reason))
    uri = uri or f"record-{stable_hash(text)[:16]}"
    used = {text_column, "title", *_IDENTITY_KEYS}
    metadata = clean_metadata({key: v for key, v in record.items() if key not in used})
    title = record.get("title")
    title = " ".join(clean_string(str(title)).split()) if _is_given(title) else ""
    document = Document(
        uri=uri,
        text=text,
        title=title,
        blocks=tuple(paragraph_blocks(text)),
        metadata=metadata,
        source_hash=stable_hash(text, title, json.dumps(metadata, sort_keys=True)),
    )
    return SourceItem(uri, uri, document=document)


def _is_given(value: Any) -> bool:
    """Tell whether a value is there: not None, not a data frame's NaN or NA, not empty text."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return False
    return not (isinstance(value, float) and math.isnan(value)) and str(value) != ""


def url_item(url: str) -> SourceItem:
    """Return the item of a web page; it is fetched at once, for its kind decides the reader.

    The URI is the URL without its fragment. Redirects are followed.
    """
    uri = urldefrag(url)[0]
    try:
        parts = urlsplit(uri)
        data, media_type = _fetch(uri, parts.hostname or "")
    except ReaderError as error:
        return failing_item(uri, error)
    except ValueError as error:
        return failing_item(uri, SourceNotFound(f"{uri} is no valid URL: {error}."))
    name = unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc
    metadata = {"host": parts.hostname or "", "file_name": clean_string(name)}
    return SourceItem(uri, name, load=lambda: data, media_type=media_type, metadata=metadata)


def _fetch(url: str, host: str) -> tuple[bytes, str]:
    """Return a page's bytes (in UTF-8 where a header names the encoding) and its media type."""
    request = urllib.request.Request(  # noqa: S310 - the caller checked the scheme
        url, headers={"User-Agent": "nbrag", "Accept": "*/*"}
    )
    handlers = [urllib.request.ProxyHandler({})] if _is_loopback(host) else []
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            data = response.read(_LARGEST_DOWNLOAD + 1)
            stated = response.headers.get("Content-Type", "")
    except urllib.error.HTTPError as error:
        with error:
            missing = error.code in {404, 410}
        kind = SourceNotFound if missing else ReaderError
        raise kind(f"{url} answered {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        raise SourceNotFound(
            f"{url} can't be reached: {error.reason}.", hint="check the address and the network"
        ) from error
    except (TimeoutError, OSError, http.client.HTTPException) as error:
        raise ReaderError(f"{url} broke off: {error}.", hint="try again") from error
    if len(data) > _LARGEST_DOWNLOAD:
        raise ReaderError(f"{url} has over {_LARGEST_DOWNLOAD >> 20} MB.", hint="download it")
    return _in_utf8(data, stated), stated


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _in_utf8(data: bytes, content_type: str) -> bytes:
    """Return text in UTF-8 when the header says in which encoding it came."""
    charset = re.search(r"charset=\"?([\w.:-]+)", content_type, re.IGNORECASE)
    if charset is None or not content_type.lower().startswith("text/"):
        return data
    try:
        return data.decode(charset[1]).encode("utf-8")
    except (LookupError, UnicodeError):
        return data
