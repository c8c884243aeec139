"""Readers: the bytes of one kind of source in, a document with its structure out."""

from nbrag.ingestion.readers.markdown import MarkdownReader
from nbrag.ingestion.readers.metadata import clean_metadata
from nbrag.ingestion.readers.registry import reader_for, readers, register_reader
from nbrag.ingestion.readers.text import TextReader

__all__ = [
    "MarkdownReader",
    "TextReader",
    "clean_metadata",
    "reader_for",
    "readers",
    "register_reader",
]

for _reader in (TextReader(), MarkdownReader()):
    register_reader(_reader)
