"""PDF: the text layer page by page, with page numbers, outline headings and properties."""

from __future__ import annotations

import re
import statistics
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from nbrag.errors import CorruptDocument, MissingDependency, NoTextLayer, PasswordRequired
from nbrag.ingestion.decoding import clean_text, normalize_newlines
from nbrag.ingestion.readers.assembly import BlockKind, DocumentAssembly, has_text
from nbrag.types import Document

__all__ = ["PdfReader"]

#: PDFium is not thread-safe.
_LOCK = threading.Lock()
_PASSWORD_ERROR = 4
#: What writing programs put where a title or an author is missing.
_SAYS_NOTHING = frozenset(
    {"", "untitled", "anonymous", "(anonymous)", "unspecified", "(unspecified)", "unknown"}
)
_FILE_NAME = re.compile(
    r"^microsoft \w+ - |\.(?:pdf|docx?|xlsx?|pptx?|txt|tex|dvi|indd|ai|e?ps|html?)$", re.IGNORECASE
)
_DATE = re.compile(r"D:(\d{4})(\d\d)?(\d\d)?")
_LINE_END_HYPHEN = re.compile("[\x02\ufffe]\n?")
_NUMBERING = re.compile(r"^(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)+|[IVXLC]+)[.:)]?\s+")
_SENTENCE_END = re.compile(r"[.!?:;…\u3002\uff01\uff1f][\"'»\u201d\u2019)\]]*$")
#: A running head or foot stands on this share of the pages, of four at least.
_RUNNING_SHARE = 0.6


class PdfReader:
    """Reads the text layer of PDF files with PDFium; an empty user password is tried.

    Text comes in the order in which the file draws it. Words that were hyphenated at the end of
    a line are joined. Lines of the outline become headings. Heads and feet that run through the
    pages are left out.
    """

    suffixes: tuple[str, ...] = (".pdf",)
    media_types: tuple[str, ...] = ("application/pdf", "application/x-pdf")

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; each block has its page number.

        Raises
        ------
        PasswordRequired
            When the file is encrypted and an empty password does not open it.
        CorruptDocument
            When it is damaged beyond what PDFium repairs, or is no PDF.
        NoTextLayer
            When it has pages but no text: a scan.
        """
        try:
            import pypdfium2
        except ImportError as error:
            raise MissingDependency("reading PDF files", "pypdfium2") from error
        with _LOCK:
            try:
                pdf = pypdfium2.PdfDocument(data)
            except pypdfium2.PdfiumError as error:
                raise _refusal(error, data, uri) from error
            try:
                extract = _Extract(*_page_texts(pdf), _outline(pdf), _properties(pdf))
            finally:
                pdf.close()
        return _assemble(extract, uri, name)


@dataclass(frozen=True, slots=True)
class _Extract:
    """What PDFium gives: texts by page, numbers of broken pages, outline, properties."""

    pages: list[str]
    unreadable: list[int]
    outline: dict[int, list[tuple[str, int]]]
    properties: dict[str, str]


def _refusal(error: Any, data: bytes, uri: str) -> Exception:
    if getattr(error, "err_code", None) == _PASSWORD_ERROR or "password" in str(error).lower():
        return PasswordRequired(
            f"{uri} is encrypted and needs a password.", hint="save a copy without a password"
        )
    if b"%PDF-" not in data[:1024]:
        beginning = data[:20].decode("latin-1").split("\n")[0]
        return CorruptDocument(
            f"{uri} is not a PDF: it begins with {beginning!r}.",
            hint="look at what was downloaded, or correct the file's ending",
        )
    return CorruptDocument(
        f"{uri} is damaged and can't be repaired.", hint="get the file again: it may be truncated"
    )


def _page_texts(pdf: Any) -> tuple[list[str], list[int]]:
    """Return each page's text, and the numbers of pages that could not be read."""
    import pypdfium2

    texts: list[str] = []
    unreadable: list[int] = []
    for index in range(len(pdf)):
        text = ""
        try:
            text = pdf[index].get_textpage().get_text_bounded()
        except pypdfium2.PdfiumError:
            unreadable.append(index + 1)
        texts.append(_join_hyphens(normalize_newlines(clean_text(text))))
    return texts, unreadable


def _join_hyphens(text: str) -> str:
    """Join words that PDFium marks as hyphenated at a line's end; names keep their hyphen."""

    def joined(match: re.Match[str]) -> str:
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        return "" if before.islower() and after.islower() else "-"

    return _LINE_END_HYPHEN.sub(joined, text)


def _properties(pdf: Any) -> dict[str, str]:
    return {key: clean_text(value) for key, value in pdf.get_metadata_dict().items()}


def _outline(pdf: Any) -> dict[int, list[tuple[str, int]]]:
    """Return the outline's (title, level) by page number."""
    import pypdfium2

    entries: dict[int, list[tuple[str, int]]] = defaultdict(list)
    try:
        for item in pdf.get_toc():
            target = item.get_dest()
            index = None if target is None else target.get_index()
            if index is not None:
                entries[index + 1].append((_plain(item.get_title()), min(item.level + 1, 6)))
    except (pypdfium2.PdfiumError, RecursionError, ValueError):
        # Headings are a help, not the text: a broken outline is no outline.
        return {}
    return entries


def _plain(line: str) -> str:
    """Return a heading's line for comparison: no numbering, no blanks, no case."""
    return "".join(_NUMBERING.sub("", clean_text(line).strip()).split()).casefold()


def _assemble(extract: _Extract, uri: str, name: str) -> Document:
    pages, unreadable = extract.pages, extract.unreadable
    silent = [number for number, text in enumerate(pages, 1) if not has_text(text)]
    if len(silent) == len(pages):
        if unreadable or not pages:
            raise CorruptDocument(f"{uri} has no page that can be read.")
        raise NoTextLayer(
            f"{uri} has no text layer ({len(pages)} page{'s' if len(pages) > 1 else ''}).",
            hint="it is a scan: run it through text recognition (OCR) first",
        )
    assembly = DocumentAssembly()
    running = _running_lines(pages)
    for number, text in enumerate(pages, 1):
        lines = [line.rstrip() for line in text.split("\n")]
        lines = _without_running(lines, running)
        for paragraph, level in _paragraphs(lines, extract.outline.get(number, [])):
            kind: BlockKind = "heading" if level else "paragraph"
            assembly.add(kind, paragraph, level=level, page=number)
    if unreadable:
        assembly.notes.append(f"could not be read: {_numbers(unreadable)}")
    if quiet := [number for number in silent if number not in unreadable]:
        assembly.notes.append(f"without text: {_numbers(quiet)}")
    title = extract.properties.get("Title", "").strip()
    if title.lower() in _SAYS_NOTHING or _FILE_NAME.search(title):
        # The first heading of a paper is "Introduction": the file's name says more.
        title = PurePosixPath(name).stem
    return assembly.document(
        uri=uri,
        name=name,
        media_type="application/pdf",
        title=title,
        metadata=_metadata(extract.properties, len(pages)),
    )


def _numbers(pages: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in pages[:10])
    more = f" and {len(pages) - 10} more" if len(pages) > 10 else ""
    return f"page{'s' if len(pages) > 1 else ''} {shown}{more}"


def _metadata(properties: dict[str, str], pages: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"pages": pages}
    for key in ("Author", "Subject"):
        value = properties.get(key, "").strip()
        if value.lower() not in _SAYS_NOTHING:
            fields[key.lower()] = value
    words = re.split(r"[,;]", properties.get("Keywords", ""))
    if keywords := [word.strip() for word in words if word.strip()]:
        fields["keywords"] = keywords
    if made := _DATE.match(properties.get("CreationDate", "")):
        parts = [part for part in made.groups() if part]
        if all(1 <= int(part) <= most for part, most in zip(parts[1:], (12, 31), strict=False)):
            fields["created"] = "-".join(parts)
    return fields


def _running_lines(pages: Sequence[str]) -> frozenset[str]:
    """Return first and last lines, digits masked, that stand on most pages."""
    if len(pages) < 4:
        return frozenset()
    found: Counter[str] = Counter()
    for text in pages:
        lines = [line for line in text.split("\n") if line.strip()]
        found.update({_masked(line) for line in (*lines[:1], *lines[-1:])})
    return frozenset(line for line, n in found.items() if n >= _RUNNING_SHARE * len(pages))


def _masked(line: str) -> str:
    return re.sub(r"\d+", "#", line.strip())


def _without_running(lines: list[str], running: frozenset[str]) -> list[str]:
    """Remove running lines from both ends of a page."""
    filled = [index for index, line in enumerate(lines) if line.strip()]
    ends = {*filled[:1], *filled[-1:]}
    return [line for i, line in enumerate(lines) if i not in ends or _masked(line) not in running]


def _paragraphs(
    lines: Sequence[str], headings: Sequence[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """Yield (text, heading level or 0): a paragraph ends at a blank or a short closing line."""
    expected = list(headings)
    usual = statistics.median([len(line) for line in lines if line.strip()] or [0])
    current: list[str] = []
    for line in lines:
        found = next((entry for entry in expected if entry[0] == _plain(line)), None)
        level = 0 if found is None or not line.strip() else found[1]
        if level or not line.strip():
            yield "\n".join(current), 0
            current = []
            if found is not None and level:
                expected.remove(found)
                yield line.strip(), level
            continue
        current.append(line)
        if len(line) < 0.8 * usual and _SENTENCE_END.search(line):
            yield "\n".join(current), 0
            current = []
    yield "\n".join(current), 0
