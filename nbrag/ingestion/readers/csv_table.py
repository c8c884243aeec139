"""CSV and TSV files: one block per record."""

from __future__ import annotations

import csv
import io

from nbrag.errors import CorruptDocument
from nbrag.ingestion.decoding import decode
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.records import add_table
from nbrag.types import Document

__all__ = ["CsvReader", "sniff_delimiter"]

_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50


def sniff_delimiter(text: str) -> str:
    """Return the delimiter that gives the most columns in the most rows; a comma in doubt."""

    def score(delimiter: str) -> tuple[float, int]:
        sample = csv.reader(io.StringIO(text[:200_000]), delimiter=delimiter)
        widths: list[int] = []
        for row in sample:
            if row:
                widths.append(len(row))
            if len(widths) == _SAMPLE_ROWS:
                break
        usual = max(set(widths), key=widths.count, default=1)
        agreement = widths.count(usual) / len(widths) if widths else 0.0
        return (agreement if usual > 1 else 0.0, usual)

    return max(_DELIMITERS, key=score)


class CsvReader:
    """Reads delimited text; the delimiter is found by trying, names are those of the first row."""

    suffixes: tuple[str, ...] = (".csv", ".tsv", ".tab")
    media_types: tuple[str, ...] = ("text/csv", "text/tab-separated-values")

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document.

        Raises
        ------
        UnsupportedFormat
            When the data are binary.
        CorruptDocument
            When the rows can't be told apart.
        EmptyDocument
            When there are none.
        """
        decoded = decode(data, name=uri)
        # The limit of 131,072 characters a field is the process's; it is only ever raised.
        csv.field_size_limit(max(csv.field_size_limit(), len(decoded.text) + 1))
        assembly = DocumentAssembly()
        assembly.notes.append(decoded.note)
        try:
            delimiter = sniff_delimiter(decoded.text)
            rows = [
                row
                for row in csv.reader(io.StringIO(decoded.text, newline=""), delimiter=delimiter)
                if any(cell.strip() for cell in row)
            ]
        except csv.Error as error:
            raise CorruptDocument(f"{uri} can't be read as a table: {error}.") from error
        add_table(assembly, rows)
        return assembly.document(uri=uri, name=name, media_type="text/csv")
