"""Word documents: paragraphs, headings, lists, tables, equations and notes in body order."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nbrag.errors import CorruptDocument, MissingDependency
from nbrag.ingestion.readers.archive import checked_archive
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.office_math import MATH_NAMESPACE, equation_text
from nbrag.types import Document

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["DocxReader"]

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
#: Paragraph text that is not there for the reader: deletions, field codes, second renderings.
_SKIPPED = frozenset({f"{_W}del", f"{_W}moveFrom", f"{_W}instrText", f"{_W}rPr", _FALLBACK})
_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_ONLY_A_PAGE_NUMBER = re.compile(r"[\W\d]*(?:page[\W\d]*(?:of[\W\d]*)?)?", re.IGNORECASE)


class DocxReader:
    """Reads Word documents (.docx).

    Heads and feet are read once each, footnotes and endnotes at the end; deleted text of tracked
    changes is left out, inserted text is in.
    """

    suffixes: tuple[str, ...] = (".docx", ".docm", ".dotx")
    media_types: tuple[str, ...] = (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    )

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document.

        Raises
        ------
        PasswordRequired
            When it is encrypted.
        CorruptDocument
            When it is truncated or is no Word document.
        EmptyDocument
            When it has no text.
        """
        try:
            import docx
            from docx.opc.exceptions import PackageNotFoundError
            from lxml.etree import LxmlError
        except ImportError as error:
            raise MissingDependency("reading .docx files", "python-docx") from error
        archive = checked_archive(data, uri, "DOCX")
        try:
            opened = docx.Document(archive.fp)
            return _Body(opened).document(uri, name)
        except (
            PackageNotFoundError,
            zipfile.BadZipFile,
            KeyError,
            LxmlError,
            AttributeError,
            OSError,
            EOFError,
            ValueError,
        ) as error:
            raise CorruptDocument(
                f"{uri} is damaged or is no Word document: {error}.", hint="save it again"
            ) from error


class _Body:
    """Goes through the parts of an opened Word document."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._styles = {style.style_id: style.name or "" for style in opened.styles}
        self._assembly = DocumentAssembly()
        self._items: list[str] = []
        self._title = ""

    def document(self, uri: str, name: str) -> Document:
        """Return all that is in it."""
        heads, feet = self._running("header"), self._running("footer")
        for text in heads:
            self._assembly.add("paragraph", text)
        self._blocks(self._opened.element.body)
        for note in self._notes():
            self._assembly.add("paragraph", note)
        for text in feet:
            self._assembly.add("paragraph", text)
        properties = self._opened.core_properties
        return self._assembly.document(
            uri=uri,
            name=name,
            media_type=DocxReader.media_types[0],
            title=properties.title or self._title,
            metadata={
                "author": properties.author,
                "subject": properties.subject,
                "keywords": [w.strip() for w in re.split(r"[,;]", properties.keywords or "") if w],
                "created": properties.created.date() if properties.created else None,
                "language": properties.language,
            },
        )

    def _blocks(self, parent: _Element) -> None:
        for element in _content(parent):
            if element.tag == f"{_W}tbl":
                self._end_list()
                lines, header = _table(element)
                self._assembly.add("table", lines, header=header)
            else:
                self._paragraph(element)
        self._end_list()

    def _paragraph(self, element: _Element) -> None:
        text = _text(element).strip()
        if not text:
            return
        properties = element.find(f"{_W}pPr")
        style = self._style(properties)
        level = self._heading_level(properties, style)
        if level:
            self._end_list()
            self._assembly.add("heading", " ".join(text.split()), level=level)
            if style == "Title" and not self._title:
                self._title = text
        elif style.startswith("List") or (
            properties is not None and properties.find(f"{_W}numPr") is not None
        ):
            self._items.append("- " + " ".join(text.split()))
        else:
            self._end_list()
            self._assembly.add("paragraph", text)

    def _end_list(self) -> None:
        self._assembly.add("list", "\n".join(self._items))
        self._items.clear()

    def _style(self, properties: _Element | None) -> str:
        found = None if properties is None else properties.find(f"{_W}pStyle")
        return "" if found is None else self._styles.get(found.get(f"{_W}val", ""), "")

    @staticmethod
    def _heading_level(properties: _Element | None, style: str) -> int:
        if match := _HEADING.match(style):
            return min(int(match[1]), 6)
        if style == "Title":
            return 1
        outline = None if properties is None else properties.find(f"{_W}outlineLvl")
        value = "9" if outline is None else outline.get(f"{_W}val", "9")
        return int(value) + 1 if value in "012345" else 0

    def _running(self, kind: str) -> list[str]:
        """Return the texts of the heads or feet of all sections, each once."""
        found: dict[str, None] = {}
        for section in self._opened.sections:
            for variant in (kind, f"first_page_{kind}", f"even_page_{kind}"):
                part = getattr(section, variant)
                if not part.is_linked_to_previous:
                    lines = (_text(e).strip() for e in part._element.iter(f"{_W}p"))  # noqa: SLF001
                    text = "\n".join(line for line in lines if line)
                    if not _ONLY_A_PAGE_NUMBER.fullmatch(text):
                        found[text] = None
        return list(found)

    def _notes(self) -> Iterator[str]:
        """Yield the texts of footnotes and endnotes."""
        from lxml import etree

        for relation in self._opened.part.rels.values():
            if not relation.reltype.endswith(("/footnotes", "/endnotes")) or relation.is_external:
                continue
            parser = etree.XMLParser(resolve_entities=False, no_network=True)
            root = etree.fromstring(relation.target_part.blob, parser)
            for note in root:
                if note.get(f"{_W}type") in {None, "normal"}:
                    yield "\n".join(_text(p).strip() for p in note.iter(f"{_W}p"))


def _content(parent: _Element) -> Iterator[_Element]:
    """Yield paragraphs and tables in order, through content controls and insertions."""
    for child in parent:
        if child.tag in {f"{_W}p", f"{_W}tbl"}:
            yield child
        elif child.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml"}:
            yield from _content(child)


def _text(element: _Element) -> str:
    """Return the text of a paragraph with links, boxes and equations."""
    parts: list[str] = []
    for child in element:
        if child.tag == f"{_W}t":
            parts.append(child.text or "")
        elif child.tag in _SIGNS:
            parts.append(_SIGNS[str(child.tag)])
        elif child.tag == f"{MATH_NAMESPACE}oMath":
            parts.append(equation_text(child))
        elif child.tag not in _SKIPPED:
            inner = _text(child)
            # A text box is a paragraph of its own within the line.
            parts.append(f"\n{inner}\n" if child.tag == f"{_W}txbxContent" else inner)
    return "".join(parts)


def _cells(row: _Element) -> Iterator[_Element]:
    """Yield a row's own cells, through content controls."""
    for child in row:
        if child.tag == f"{_W}tc":
            yield child
        elif child.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml"}:
            yield from _cells(child)


def _cell_text(cell: _Element) -> str:
    """Return a cell's paragraphs, those of inner tables included, as one line."""
    return " ".join(" ".join(_text(paragraph) for paragraph in cell.iter(f"{_W}p")).split())


def _table(table: _Element) -> tuple[str, str]:
    """Return a table as lines of ``a | b | c``, and its first line when it is a header."""
    lines: list[str] = []
    marked = table.find(f"{_W}tr/{_W}trPr/{_W}tblHeader") is not None
    look = table.find(f"{_W}tblPr/{_W}tblLook")
    if look is not None and look.get(f"{_W}firstRow") == "1":
        marked = True
    for row in table.iter(f"{_W}tr"):
        parent = row.getparent()
        if parent is not table and parent is not None and parent.tag == f"{_W}tbl":
            continue  # a table within a cell is part of that cell's text
        cells = [_cell_text(cell) for cell in _cells(row)]
        if any(cells):
            lines.append(" | ".join(cells))
    return "\n".join(lines), lines[0] if marked and len(lines) > 1 else ""
