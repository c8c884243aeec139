"""A second try of what an ingestion could not read, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nbrag.ingestion.report import IngestReport
from nbrag.ingestion.sources import expand_sources
from nbrag.protocols import SourceItem

__all__ = ["failed_sources", "merged_report"]


def failed_sources(
    sources: Any, report: IngestReport, *, text_column: str = "text"
) -> Iterator[SourceItem]:
    """Yield the items of the documents that failed, gone through lazily.

    A source that gave nothing (a folder that was not there) is gone through as a whole.

    Parameters
    ----------
    sources
        What the ingestion was given; see :func:`nbrag.ingestion.sources.expand_sources`.
    report
        What became of it.
    text_column
        Where records keep their text.
    """
    failed = {row.uri for row in report.failed}
    given = [sources] if isinstance(sources, str) else sources
    seen: set[str] = set()
    for source in given:
        whole = isinstance(source, str) and source in failed
        for item in expand_sources([source], text_column=text_column):
            if (whole or item.uri in failed) and item.uri not in seen:
                seen.add(item.uri)
                yield item


def merged_report(report: IngestReport, second: IngestReport) -> IngestReport:
    """Return a report with the second try's outcomes in the place of the failed ones.

    Parameters
    ----------
    report
        The first run.
    second
        The run over :func:`failed_sources`.
    """
    tried = {row.uri: row for row in second}
    rows = [row for row in report if row.outcome != "failed"]
    still = [tried.pop(row.uri, None) for row in report.failed]
    # A source that gave nothing before may have become many documents, and is then no row itself.
    rows += [row for row in still if row is not None] + list(tried.values())
    return IngestReport(report.collection, tuple(rows), second.warnings, second.notes)
