"""Produce the handbook's PDF and DOCX files from the Markdown sources next to this script.

Run ``python make_binary.py`` after a change in ``sources/``. The same input gives the same
bytes on every machine: dates, identifiers and the order of archive members are fixed, and
nothing is compressed, because compressors differ between builds of zlib.

Needs reportlab and python-docx, which are development tools only; the produced files are kept
under version control.
"""

from __future__ import annotations

import argparse
import io
import re
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
HANDBOOK = HERE / "handbook"

#: The versions that wrote the committed files; others may lay a page out differently.
GENERATED_WITH = {"reportlab": "5.1.0", "python-docx": "1.2.0"}

#: Relationships of python-docx's template that a handbook file doesn't need.
UNUSED_PARTS = ("/stylesWithEffects", "/thumbnail")


@dataclass(frozen=True)
class Block:
    """One block of a source: a heading, a paragraph, a list item or a table.

    Attributes
    ----------
    kind
        ``heading``, ``paragraph``, ``bullet``, ``number`` or ``table``.
    text
        The text of the block; empty for a table.
    level
        1 to 6 for a heading, otherwise 0.
    rows
        The rows of a table, the header first; empty for everything else.
    """

    kind: str
    text: str = ""
    level: int = 0
    rows: tuple[tuple[str, ...], ...] = ()


def split_front_matter(source: str) -> tuple[dict[str, str | list[str]], str]:
    """Split a Markdown source into its front matter and its body.

    The front matter of the handbook uses only ``key: value`` and ``key: [a, b]``, so no YAML
    library is needed here.

    Parameters
    ----------
    source
        The whole text of the file.

    Returns
    -------
    tuple
        The fields and the text after them; no fields if the source doesn't start with ``---``.
    """
    match = re.match(r"---\n(.*?)\n---\n", source, re.DOTALL)
    if match is None:
        return {}, source
    fields: dict[str, str | list[str]] = {}
    for line in match[1].splitlines():
        key, _, value = line.partition(":")
        value = value.strip()
        if value.startswith("["):
            fields[key] = [item.strip() for item in value.strip("[]").split(",")]
        else:
            fields[key] = value.strip('"')
    return fields, source[match.end() :]


def parse_blocks(body: str) -> list[Block]:
    """Parse the small part of Markdown that the binary sources use.

    Parameters
    ----------
    body
        Markdown without front matter: headings, one-line paragraphs, lists and pipe tables.

    Returns
    -------
    list of Block
        The blocks in reading order.
    """
    blocks: list[Block] = []
    rows: list[tuple[str, ...]] = []
    for line in [*body.splitlines(), ""]:
        if line.startswith("|"):
            if not re.fullmatch(r"[|\s:-]+", line):
                rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
            continue
        if rows:
            blocks.append(Block("table", rows=tuple(rows)))
            rows = []
        if heading := re.match(r"(#{1,6}) (.*)", line):
            blocks.append(Block("heading", heading[2], level=len(heading[1])))
        elif bullet := re.match(r"- (.*)", line):
            blocks.append(Block("bullet", bullet[1]))
        elif number := re.match(r"\d+\. (.*)", line):
            blocks.append(Block("number", number[1]))
        elif line.strip():
            blocks.append(Block("paragraph", line.strip()))
    return blocks


def _text(fields: dict[str, str | list[str]], key: str) -> str:
    value = fields.get(key, "")
    return ", ".join(value) if isinstance(value, list) else value


def render_pdf(source: str) -> bytes:
    """Lay a source out as an A4 PDF.

    Parameters
    ----------
    source
        Markdown with front matter.

    Returns
    -------
    bytes
        The PDF file, the same for the same source.
    """
    from reportlab.lib import colors
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
    from reportlab.lib.units import mm
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

    fields, body = split_front_matter(source)
    styles = getSampleStyleSheet()
    text = ParagraphStyle(
        "text", parent=styles["BodyText"], fontSize=11.5, leading=17, spaceAfter=8
    )
    small = ParagraphStyle("small", parent=text, fontSize=10, leading=13, spaceAfter=0)
    heads = {1: styles["Title"], 2: styles["Heading2"]}
    story: list[object] = []
    number = 0
    for block in parse_blocks(body):
        number = number + 1 if block.kind == "number" else 0
        if block.kind == "heading":
            story.append(Paragraph(escape(block.text), heads[min(block.level, 2)]))
            if block.level == 1:
                version, updated = _text(fields, "version"), _text(fields, "updated")
                line = f"Version {version}. Last change {updated}."
                story += [Paragraph(line, small), Spacer(1, 6 * mm)]
        elif block.kind == "table":
            cells = [[Paragraph(escape(cell), small) for cell in row] for row in block.rows]
            table = Table(cells, hAlign="LEFT", spaceAfter=10)
            grid = ("GRID", (0, 0), (-1, -1), 0.4, colors.grey)
            table.setStyle(TableStyle([grid, ("VALIGN", (0, 0), (-1, -1), "TOP")]))
            story.append(table)
        else:
            mark = {"bullet": "\u2022 ", "number": f"{number}. "}.get(block.kind, "")
            story.append(Paragraph(mark + escape(block.text), text))

    def decorate(canvas: object, template: object) -> None:
        """Print the running head and foot that real documents have."""
        canvas.setFont("Helvetica", 8)  # type: ignore[attr-defined]
        head = f"Nightbarge Handbook / {_text(fields, 'topic')}"
        canvas.drawString(25 * mm, 285 * mm, head)  # type: ignore[attr-defined]
        foot = f"Lantern Quay Systems, page {template.page}"  # type: ignore[attr-defined]
        canvas.drawString(25 * mm, 12 * mm, foot)  # type: ignore[attr-defined]

    stream = io.BytesIO()
    document = SimpleDocTemplate(
        stream,
        pagesize=A4,
        leftMargin=25 * mm,
        rightMargin=35 * mm,
        topMargin=25 * mm,
        bottomMargin=25 * mm,
        title=_text(fields, "title"),
        author=_text(fields, "owner"),
        subject=_text(fields, "topic"),
        keywords=_text(fields, "tags"),
        invariant=1,
        pageCompression=0,
    )
    document.build(story, onFirstPage=decorate, onLaterPages=decorate)
    return stream.getvalue()


def render_docx(source: str) -> bytes:
    """Write a source as a DOCX file.

    Parameters
    ----------
    source
        Markdown with front matter.

    Returns
    -------
    bytes
        The DOCX file, the same for the same source.
    """
    from docx import Document
    from docx.enum.style import WD_STYLE_TYPE

    fields, body = split_front_matter(source)
    document = Document()
    # The template's unused table styles and previews would be 800 kB of each file.
    for style in list(document.styles):
        if style.type == WD_STYLE_TYPE.TABLE and style.name not in {"Normal Table", "Table Grid"}:
            style.delete()
    for holder in (document.part.rels, document.part.package.rels):
        for key in [key for key, rel in holder.items() if rel.reltype.endswith(UNUSED_PARTS)]:
            del holder[key]
    properties = document.core_properties
    properties.title = _text(fields, "title")
    properties.author = _text(fields, "owner")
    properties.subject = _text(fields, "topic")
    properties.keywords = _text(fields, "tags")
    properties.version = _text(fields, "version")
    properties.comments = ""
    properties.created = properties.modified = datetime.fromisoformat(_text(fields, "updated"))
    for block in parse_blocks(body):
        if block.kind == "heading":
            document.add_heading(block.text, level=block.level - 1)
        elif block.kind == "table":
            table = document.add_table(len(block.rows), len(block.rows[0]), style="Table Grid")
            for row, cells in zip(table.rows, block.rows, strict=True):
                for cell, text in zip(row.cells, cells, strict=True):
                    cell.text = text
        else:
            style = {"bullet": "List Bullet", "number": "List Number"}.get(block.kind)
            document.add_paragraph(block.text, style=style)
    stream = io.BytesIO()
    document.save(stream)
    return _with_fixed_archive(stream.getvalue())


def _with_fixed_archive(data: bytes) -> bytes:
    """Write a ZIP archive again in a fixed order, with fixed dates and without compression."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as new,
    ):
        for name in sorted(old.namelist(), key=lambda item: (item != "[Content_Types].xml", item)):
            member = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))
            member.create_system = 3
            member.external_attr = 0o644 << 16
            new.writestr(member, old.read(name))
    return stream.getvalue()


def render_all() -> dict[str, bytes]:
    """Render every source.

    Returns
    -------
    dict
        Path below ``handbook/`` to the bytes of the file.
    """
    rendered: dict[str, bytes] = {}
    for path in sorted(SOURCES.rglob("*.md")):
        name = path.relative_to(SOURCES).as_posix().removesuffix(".md")
        render = render_pdf if name.endswith(".pdf") else render_docx
        rendered[name] = render(path.read_text(encoding="utf-8"))
    return rendered


def main() -> None:
    """Write all binary documents into the handbook."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for name, data in render_all().items():
        target = HANDBOOK / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


if __name__ == "__main__":
    main()
