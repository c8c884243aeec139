"""Write ``questions/corpus.jsonl``: the plain text and the fields of each handbook document.

Run ``python make_corpus.py`` after a change in ``handbook/`` or ``sources/``. The text of a PDF
or DOCX file comes from its source, so that only the standard library is needed.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from make_binary import HANDBOOK, HERE, SOURCES, Block, parse_blocks, split_front_matter

QUESTIONS = HERE / "questions"

#: What a plain text or CSV file can't say about itself.
BARE = {
    "faq/troubleshooting.txt": {"title": "Questions that support gets every week"},
    "operations/maintenance-windows.csv": {"title": "Maintenance windows of the hosted regions"},
    "people/directory.csv": {"title": "Directory of people"},
    "security/hardening-checklist.txt": {"title": "Nightbarge hardening checklist"},
}


class _MainText(HTMLParser):
    """Collect the visible text of ``<main>``, without scripts, menus and footers."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str | list[str]] = {}
        self.pieces: list[str] = []
        self._inside = ""
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "meta" and named.get("name"):
            name, content = str(named["name"]), str(named.get("content", ""))
            self.fields[name] = content.split(", ") if name == "tags" else content
        if tag == "main":
            self._depth += 1
        self._inside = tag
        if tag in {"p", "li", "tr", "h1", "h2", "h3", "pre"}:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "main":
            self._depth -= 1
        if tag in {"td", "th"}:
            self.pieces.append(" |")
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "title":
            self.fields["title"] = data.partition(" | ")[0]
        elif self._depth:
            self.pieces.append(data if data.strip() else " ")


def html_text(source: str) -> tuple[dict[str, str | list[str]], str]:
    """Read the fields and the main text of a handbook page in HTML.

    Parameters
    ----------
    source
        The whole page.

    Returns
    -------
    tuple
        The fields of its ``<meta>`` elements and the visible text of ``<main>``.
    """
    parser = _MainText()
    parser.feed(source)
    return parser.fields, re.sub(r"\s*\n\s*", "\n", "".join(parser.pieces)).strip() + "\n"


def plain_block(block: Block) -> str:
    """Render one block of a binary source as plain text.

    Parameters
    ----------
    block
        A block of a PDF or DOCX source.

    Returns
    -------
    str
        Its text; the cells of a table row are joined by a bar.
    """
    return "\n".join(" | ".join(row) for row in block.rows) if block.rows else block.text


def read_document(name: str) -> dict[str, object]:
    """Read one handbook document as a line of ``corpus.jsonl``.

    Parameters
    ----------
    name
        Path below ``handbook/``, with forward slashes.

    Returns
    -------
    dict
        ``_id``, ``title``, ``text`` and ``metadata``.
    """
    path = HANDBOOK / name
    fields: dict[str, str | list[str]]
    if path.suffix in {".pdf", ".docx"}:
        fields, body = split_front_matter((SOURCES / f"{name}.md").read_text(encoding="utf-8"))
        text = "\n\n".join(plain_block(block) for block in parse_blocks(body)) + "\n"
    elif path.suffix == ".html":
        fields, text = html_text(path.read_text(encoding="utf-8"))
    elif path.suffix == ".ipynb":
        notebook = json.loads(path.read_text(encoding="utf-8"))
        fields = dict(notebook["metadata"]["handbook"])
        text = "\n\n".join("".join(cell["source"]) for cell in notebook["cells"]) + "\n"
    else:
        fields, text = split_front_matter(path.read_text(encoding="utf-8"))
        fields = fields or dict(BARE[name])
    title = fields.pop("title")
    return {"_id": name, "title": title, "text": text.lstrip("\n"), "metadata": fields}


def document_names() -> list[str]:
    """List the documents of the handbook.

    Returns
    -------
    list of str
        Paths below ``handbook/``, sorted.
    """
    files = (path for path in HANDBOOK.rglob("*") if path.is_file())
    return sorted(path.relative_to(HANDBOOK).as_posix() for path in files)


def corpus_lines() -> str:
    """Build the content of ``corpus.jsonl``.

    Returns
    -------
    str
        One JSON object per line, sorted by path.
    """
    documents = (read_document(name) for name in document_names())
    return "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)


def main() -> None:
    """Write the corpus file."""
    QUESTIONS.mkdir(exist_ok=True)
    Path(QUESTIONS / "corpus.jsonl").write_text(corpus_lines(), encoding="utf-8")


if __name__ == "__main__":
    main()
