"""Opening the zip archives that DOCX, XLSX and EPUB files are."""

from __future__ import annotations

import io
import zipfile

from nbrag.errors import CorruptDocument, PasswordRequired, UnsupportedFormat

__all__ = ["checked_archive"]

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
#: More than this inside makes an archive a trap rather than a document.
_LARGEST_CONTENT = 1 << 30


def checked_archive(data: bytes, uri: str, kind: str) -> zipfile.ZipFile:
    """Return the archive, after a look at what could go wrong with it.

    Parameters
    ----------
    data
        The file.
    uri, kind
        What to call it in an error, e.g. ``handbook.docx`` and ``DOCX``.

    Raises
    ------
    PasswordRequired
        When it is an encrypted Office file or a zip archive with encrypted parts.
    UnsupportedFormat
        When it is the older binary Office format.
    CorruptDocument
        When it is no zip archive, is truncated, or unpacks to over a gigabyte.
    """
    if data.startswith(_OLE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            raise PasswordRequired(
                f"{uri} is encrypted and needs a password.", hint="save a copy without a password"
            )
        raise UnsupportedFormat(
            f"{uri} is in the old binary Office format.", hint=f"save it as {kind}"
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, EOFError) as error:
        raise CorruptDocument(
            f"{uri} is not a whole {kind} file: {error}.",
            hint="get the file again: it may be truncated",
        ) from error
    if sum(member.file_size for member in members) > _LARGEST_CONTENT:
        raise CorruptDocument(f"{uri} unpacks to over a gigabyte, which no document does.")
    if any(member.flag_bits & 1 for member in members):
        raise PasswordRequired(f"{uri} is encrypted and needs a password.")
    return archive
