"""Jupyter notebooks of any format version: Markdown, code, and short outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nbrag.errors import CorruptDocument, MissingDependency
from nbrag.ingestion.decoding import clean_text, decode, normalize_newlines
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.markdown import markdown_blocks
from nbrag.types import Document

__all__ = ["NotebookReader"]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")
_INLINE_DATA = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=\s]{40,}")
#: A repr such as <Figure size 640x480 with 1 Axes> says nothing.
_BARE_REPR = re.compile(r"\s*<[^\n]*>\s*")
_OUTPUT_LINES = 20
_OUTPUT_CHARACTERS = 1_000


class NotebookReader:
    """Reads notebooks.

    Markdown cells are read as Markdown, code cells as code. Of outputs only text is taken, its
    first 20 lines or 1,000 characters; of errors the name and the message. Pictures, HTML,
    attachments and terminal colours are left out.
    """

    suffixes: tuple[str, ...] = (".ipynb",)
    media_types: tuple[str, ...] = ("application/x-ipynb+json",)

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document.

        Raises
        ------
        CorruptDocument
            When it is no JSON (truncated, or with merge conflicts) or no notebook.
        EmptyDocument
            When its cells are empty.
        """
        decoded = decode(data, name=uri)
        notebook = _parse(decoded.text, uri)
        assembly = DocumentAssembly()
        assembly.notes.append(decoded.note)
        for cell in notebook.get("cells", []):
            _add_cell(assembly, cell)
        properties = notebook.get("metadata", {})
        kernel = properties.get("kernelspec", {})
        info = properties.get("language_info", {})
        authors = properties.get("authors", [])
        return assembly.document(
            uri=uri,
            name=name,
            media_type=self.media_types[0],
            title=str(properties.get("title") or ""),
            metadata={
                "programming_language": info.get("name") or kernel.get("language"),
                "authors": [a["name"] for a in authors if isinstance(a, dict) and a.get("name")],
            },
        )


def _parse(text: str, uri: str) -> Any:
    """Return the notebook in format 4, converted if it is older."""
    try:
        from nbformat import ValidationError, converter, reader
        from nbformat.reader import NotJSONError
    except ImportError as error:
        raise MissingDependency("reading notebooks", "nbformat") from error
    hint = "it may be truncated or hold merge conflicts: restore or save it again"
    try:
        reads: Any = reader.reads  # neither has type annotations
        convert: Any = converter.convert
        notebook = reads(text)
        if notebook.get("nbformat", 0) < 4:
            notebook = convert(notebook, 4)
    except NotJSONError as error:
        raise CorruptDocument(f"{uri} is not valid JSON.", hint=hint) from error
    except (
        ValidationError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise CorruptDocument(f"{uri} is no notebook: {error}.", hint=hint) from error
    if not isinstance(notebook.get("cells"), list):
        raise CorruptDocument(f"{uri} is no notebook: it has no cells.", hint=hint)
    return notebook


def _add_cell(assembly: DocumentAssembly, cell: Any) -> None:
    source = clean_text(normalize_newlines(_joined(cell.get("source", ""))))
    kind = cell.get("cell_type")
    if kind == "markdown":
        source = _INLINE_DATA.sub("", source)
        for block in markdown_blocks(source):
            assembly.add(
                block.kind,
                source[block.start : block.end],
                level=block.level,
                title=block.title,
                header=block.header,
            )
    elif kind == "code":
        assembly.add("code", source)
        for output in cell.get("outputs", []):
            for text in _output_texts(output):
                assembly.add("code", _shortened(text))
    else:
        assembly.add("paragraph", source)


def _joined(value: Any) -> str:
    """Return multi-line text, which notebooks keep as a list of lines or as one text."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


def _output_texts(output: Any) -> Iterator[str]:
    """Yield what an output says in words."""
    kind = output.get("output_type")
    if kind == "stream":
        yield _joined(output.get("text", ""))
    elif kind == "error":
        yield f"{output.get('ename', 'Error')}: {output.get('evalue', '')}"
    else:
        bundle = output.get("data", {})
        for media_type in ("text/markdown", "text/plain", "text/latex"):
            text = _joined(bundle.get(media_type, ""))
            if text.strip() and not _BARE_REPR.fullmatch(text):
                yield text
                return


def _shortened(text: str) -> str:
    lines = _INLINE_DATA.sub("", _ANSI.sub("", text)).split("\n")
    kept = "\n".join(lines[:_OUTPUT_LINES])[:_OUTPUT_CHARACTERS]
    return kept if len(kept) == len("\n".join(lines)) else f"{kept} …"
