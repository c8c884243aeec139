"""The blocks of an HTML element, in reading order; shared by the HTML and EPUB readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nbrag.ingestion.readers.assembly import BlockKind, DocumentAssembly

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["add_html_blocks", "is_visible", "visible_length", "visible_text"]


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


_DROPPED_TAGS = _words(
    "script style template noscript nav footer svg canvas iframe object embed audio video map "
    "button select option input textarea datalist progress meter head annotation"
)
_DROPPED_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "search", "menu", "menubar", "dialog", "tablist"}
)
#: Class names that sites use for what is not the text.
_DROPPED_CLASSES = _words(
    "mw-editsection mw-jump-link navbox toc noprint reference breadcrumb breadcrumbs pagination "
    "sr-only visually-hidden screen-reader-text hash-link headerlink cookie-banner"
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = _words(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form header hgroup hr html legend li main menu nav ol p section "
    "summary table tbody td tfoot th thead tr ul"
)
_LISTS = frozenset({"ul", "ol", "menu", "dir"})
#: What a list item or a table cell may not hold when its list or table is to be one block.
_STRUCTURE = frozenset({"table", "pre", *_HEADINGS})
#: A list of this many items or more with hardly any text outside links is navigation.
_MANY_LINKS = 15
_BLANKS = re.compile(r"[ \t\n\r\f\v\xa0]+")


def is_visible(element: _Element) -> bool:
    """Tell whether an element, apart from those around it, is text of the page."""
    tag: object = element.tag
    if not isinstance(tag, str) or tag in _DROPPED_TAGS:
        return False
    get = element.get
    if get("role") in _DROPPED_ROLES or get("hidden") is not None or get("aria-hidden") == "true":
        return False
    if _HIDDEN_STYLE.search(get("style") or ""):
        return False
    if not _DROPPED_CLASSES.isdisjoint((get("class") or "").lower().split()):
        return False
    if tag in _LISTS:
        return len(element) < _MANY_LINKS or not _is_mostly_links(element, 0.9)
    if tag == "header" and any(True for _ in element.iter(*_HEADINGS)):
        return True
    return tag not in {"aside", "header"} or not _is_mostly_links(element, 0.5)


def _is_mostly_links(element: _Element, share: float) -> bool:
    length = sum(len(str(text).strip()) for text in element.itertext())
    linked = sum(len(str(text).strip()) for link in element.iter("a") for text in link.itertext())
    return linked > share * length


def _walk(element: _Element) -> Iterator[tuple[str, _Element]]:
    """Yield ("start" or "end", element) of all that is visible, without recursion."""
    from lxml import etree

    walker = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    hidden: _Element | None = None
    for event, current in walker:
        if event == "start":
            if current is not element and not is_visible(current):
                hidden = current
                walker.skip_subtree()
            else:
                yield "start", current
        elif event == "end" and current is not hidden:
            yield "end", current
        else:
            yield "tail", current


def visible_text(element: _Element, *, preformatted: bool = False) -> str:
    """Return an element's text, blanks collapsed, block-level elements apart from each other."""
    parts: list[str] = []
    for event, current in _walk(element):
        if event == "start":
            parts.append("\n" if current.tag == "br" else current.text or "")
            if current.tag in _BLOCKS and not preformatted:
                parts.insert(-1, " ")
            continue
        if current is not element:
            apart = event == "end" and current.tag in _BLOCKS and not preformatted
            parts.append((" " if apart else "") + (current.tail or ""))
    text = "".join(parts)
    return text if preformatted else _BLANKS.sub(" ", text).strip()


def visible_length(element: _Element) -> int:
    """Return how many characters of text an element shows."""
    return len(visible_text(element))


class _Walker:
    """Goes through an element and adds its blocks to an assembly."""

    def __init__(self, assembly: DocumentAssembly) -> None:
        self._assembly = assembly
        self._inline: list[str] = []
        self._inside: _Element | None = None

    def run(self, element: _Element) -> None:
        """Add the blocks of the element."""
        for event, current in _walk(element):
            if self._inside is not None:
                # A block that was added as a whole: nothing more until it ends.
                if event == "end" and current is self._inside:
                    self._inside = None
                    self._text(current.tail if current is not element else None)
                continue
            if event == "start":
                self._start(current)
            else:
                self._end(event, current, element)
        self._flush()

    def _start(self, element: _Element) -> None:
        tag = str(element.tag)
        if tag in _HEADINGS:
            self._whole(element, "heading", visible_text(element), level=_HEADINGS[tag])
        elif tag == "pre":
            self._whole(element, "code", visible_text(element, preformatted=True))
        elif tag in _LISTS and not _holds_structure(element):
            self._whole(element, "list", _list_lines(element))
        elif tag == "table" and not _holds_structure(element):
            lines, header = _table_lines(element)
            self._whole(element, "table", lines, header=header)
        elif tag == "br":
            self._inline.append("\n")
        else:
            if tag in _BLOCKS:
                self._flush()
            self._text(element.text)

    def _end(self, event: str, element: _Element, root: _Element) -> None:
        if event == "end" and element.tag in _BLOCKS:
            self._flush()
        if element is not root:
            self._text(element.tail)

    def _text(self, text: str | None) -> None:
        if text:
            self._inline.append(_BLANKS.sub(" ", text))

    def _whole(
        self, element: _Element, kind: BlockKind, text: str, *, level: int = 0, header: str = ""
    ) -> None:
        self._flush()
        self._inside = element
        self._assembly.add(kind, text, level=level, header=header)

    def _flush(self) -> None:
        lines = "".join(self._inline).split("\n")
        self._inline.clear()
        tidy = (_BLANKS.sub(" ", line).strip() for line in lines)
        self._assembly.add("paragraph", "\n".join(tidy))


def _holds_structure(element: _Element) -> bool:
    """Tell whether a list or table is only there for the layout of other blocks."""
    if any(inner is not element and inner.tag in _STRUCTURE for inner in element.iter()):
        return True
    return element.tag == "table" and sum(1 for _ in element.iter("p")) > 3 * sum(
        1 for _ in element.iter("tr")
    )


def _list_lines(element: _Element) -> str:
    """Return a list as lines, one per item, nested lists indented."""
    lines: list[str] = []
    depth = 0
    numbers: list[int] = []
    for event, current in _walk(element):
        if event == "start":
            if current.tag in _LISTS:
                depth += 1
                numbers.append(0)
                continue
            if current.tag == "li":
                numbers[-1] += 1
                parent = current.getparent()
                ordered = parent is not None and parent.tag == "ol"
                mark = f"{numbers[-1]}." if ordered else "-"
                lines.append(f"{'  ' * (depth - 1)}{mark} ")
            elif current.tag in _BLOCKS or current.tag == "br":
                _append(lines, " ")
            _append(lines, current.text)
            continue
        if event == "end" and current.tag in _LISTS:
            depth -= 1
            numbers.pop()
        elif event == "end" and current.tag in _BLOCKS:
            _append(lines, " ")
        if current is not element:
            _append(lines, current.tail)
    return "\n".join(_tidy(line) for line in lines if line.strip(" -0123456789."))


def _append(lines: list[str], text: str | None) -> None:
    if text and (lines or text.strip()):
        if not lines:
            lines.append("")
        lines[-1] += _BLANKS.sub(" ", text)


def _tidy(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return " " * indent + _BLANKS.sub(" ", line[indent:]).rstrip()


def _table_lines(element: _Element) -> tuple[str, str]:
    """Return a table as lines of ``a | b | c``, and its header line if it has one."""
    lines: list[str] = []
    header = ""
    for event, row in _walk(element):
        if event != "start" or row.tag not in {"tr", "caption"}:
            continue
        if row.tag == "caption":
            lines.append(visible_text(row))
            continue
        cells = [cell for cell in row if cell.tag in {"td", "th"} and is_visible(cell)]
        texts = [visible_text(cell) for cell in cells]
        if not any(texts):
            continue
        line = " | ".join(texts).strip()
        if not header and len(cells) > 1 and all(cell.tag == "th" for cell in cells):
            header = line
        lines.append(line)
    return "\n".join(lines), header


def add_html_blocks(element: _Element, assembly: DocumentAssembly) -> None:
    """Add the visible text of an element to an assembly, block by block.

    Parameters
    ----------
    element
        An lxml element, such as ``<main>`` or ``<body>``.
    assembly
        Where the blocks go.
    """
    _Walker(assembly).run(element)
