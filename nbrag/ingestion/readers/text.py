"""Plain text in any encoding, and source code."""

from __future__ import annotations

from pathlib import PurePosixPath

from nbrag.ingestion.decoding import decode
from nbrag.ingestion.readers.assembly import finish, has_text
from nbrag.types import Block, Document

__all__ = ["TextReader", "paragraph_blocks"]

_PROSE = (".txt", ".text", ".log", ".rst", ".adoc", ".asciidoc", ".org", ".tex", ".srt", ".vtt")
_CODE = (
    *(".py", ".r", ".jl", ".sql", ".js", ".ts", ".java", ".kt", ".scala", ".go", ".rs", ".c"),
    *(".h", ".cpp", ".hpp", ".cs", ".rb", ".php", ".swift", ".sh", ".bash", ".ps1", ".lua"),
    *(".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".xml", ".css"),
)


def paragraph_blocks(text: str) -> list[Block]:
    """Return a block for each run of lines between blank lines."""
    blocks: list[Block] = []
    start, end, offset = 0, 0, 0
    for line in (*text.split("\n"), ""):
        if line.strip():
            start = start if end else offset
            end = offset + len(line.rstrip())
        elif end:
            if has_text(text[start:end]):
                blocks.append(Block("paragraph", start, end))
            end = 0
        offset += len(line) + 1
    return blocks


class TextReader:
    """Reads plain text as paragraphs, and source code as code that is cut between lines."""

    suffixes: tuple[str, ...] = (*_PROSE, *_CODE)
    media_types: tuple[str, ...] = ("text/plain",)

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; its text is the whole decoded file.

        Raises
        ------
        UnsupportedFormat
            When the data are binary.
        EmptyDocument
            When there is no visible text.
        """
        decoded = decode(data, name=uri)
        text = decoded.text
        if PurePosixPath(name.lower()).suffix in _CODE and has_text(text):
            blocks = [Block("code", 0, len(text.rstrip()))]
        else:
            blocks = paragraph_blocks(text)
        return finish(
            text,
            blocks,
            uri=uri,
            name=name,
            media_type="text/plain",
            title="",
            metadata={},
            notes=[decoded.note],
        )
