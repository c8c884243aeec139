"""Excel workbooks: a section per sheet, a block per row."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterable
from typing import Any

from nbrag.errors import CorruptDocument, MissingDependency
from nbrag.ingestion.readers.archive import checked_archive
from nbrag.ingestion.readers.assembly import DocumentAssembly
from nbrag.ingestion.readers.records import add_table
from nbrag.types import Document

__all__ = ["XlsxReader"]


class XlsxReader:
    """Reads .xlsx workbooks: values as last computed, wherever on the sheet the table stands."""

    suffixes: tuple[str, ...] = (".xlsx", ".xlsm")
    media_types: tuple[str, ...] = (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    )

    def read(self, data: bytes, *, uri: str, name: str) -> Document:
        """Return the document; each sheet's name is a heading.

        Raises
        ------
        PasswordRequired
            When it is encrypted.
        CorruptDocument
            When it is truncated or is no workbook.
        EmptyDocument
            When no cell has a value.
        """
        try:
            import openpyxl
            from openpyxl.utils.exceptions import InvalidFileException
        except ImportError as error:
            raise MissingDependency("reading .xlsx files", "openpyxl") from error
        checked_archive(data, uri, "XLSX").close()
        assembly = DocumentAssembly()
        try:
            with warnings.catch_warnings():
                # openpyxl warns of features of a sheet that are of no concern to its values.
                warnings.simplefilter("ignore")
                book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
                for sheet in book.worksheets:
                    rows = _filled(sheet.iter_rows(values_only=True))
                    if rows:
                        assembly.add("heading", str(sheet.title), level=1)
                        add_table(assembly, rows)
                properties = book.properties
                book.close()
        except (
            InvalidFileException,
            zipfile.BadZipFile,
            KeyError,
            ValueError,
            TypeError,
            SyntaxError,  # ElementTree's ParseError
            OSError,
            EOFError,
        ) as error:
            raise CorruptDocument(f"{uri} is damaged or is no workbook: {error}.") from error
        title = properties.title or name.rpartition(".")[0]
        return assembly.document(
            uri=uri,
            name=name,
            media_type=self.media_types[0],
            title=title,
            metadata={"author": properties.creator, "subject": properties.subject},
        )


def _filled(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that have values, without the columns left and right of the table."""
    kept = [row for row in rows if any(_is_filled(cell) for cell in row)]
    used = {index for row in kept for index, cell in enumerate(row) if _is_filled(cell)}
    if not used:
        return []
    return [row[min(used) : max(used) + 1] for row in kept]


def _is_filled(cell: Any) -> bool:
    return cell is not None and bool(str(cell).strip())
