"""Readers: the bytes of one kind of source in, a document with its structure out."""

from nbrag.ingestion.readers.csv_table import CsvReader
from nbrag.ingestion.readers.docx import DocxReader
from nbrag.ingestion.readers.epub import EpubReader
from nbrag.ingestion.readers.html import HtmlReader
from nbrag.ingestion.readers.json_records import JsonReader
from nbrag.ingestion.readers.markdown import MarkdownReader
from nbrag.ingestion.readers.metadata import clean_metadata
from nbrag.ingestion.readers.notebook import NotebookReader
from nbrag.ingestion.readers.pdf import PdfReader
from nbrag.ingestion.readers.registry import reader_for, readers, register_reader
from nbrag.ingestion.readers.text import TextReader
from nbrag.ingestion.readers.xlsx import XlsxReader

__all__ = [
    "CsvReader",
    "DocxReader",
    "EpubReader",
    "HtmlReader",
    "JsonReader",
    "MarkdownReader",
    "NotebookReader",
    "PdfReader",
    "TextReader",
    "XlsxReader",
    "clean_metadata",
    "reader_for",
    "readers",
    "register_reader",
]

for _reader in (
    TextReader(),
    MarkdownReader(),
    HtmlReader(),
    PdfReader(),
    DocxReader(),
    NotebookReader(),
    CsvReader(),
    JsonReader(),
    XlsxReader(),
    EpubReader(),
):
    register_reader(_reader)
