"""The documents of a BEIR folder, ready to be ingested.

The form is that of Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of
Information Retrieval Models" (2021): ``corpus.jsonl``, ``queries.jsonl``, ``qrels/test.tsv``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbrag.errors import JudgementsError
from nbrag.evaluation.lines import json_lines

__all__ = ["beir_records"]


def beir_records(folder: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of ``corpus.jsonl``, one at a time.

    Parameters
    ----------
    folder
        The collection's folder.

    Yields
    ------
    dict
        ``id``, ``title`` and ``text``; judgements name documents by this id.

    Raises
    ------
    JudgementsError
        When there is no such file or a line of it is no document.
    """
    path = Path(folder) / "corpus.jsonl"
    if not path.is_file():
        raise JudgementsError(
            f"{folder} has no corpus.jsonl.", hint="give a folder in BEIR form, or ingest its files"
        )
    return _records(path)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for place, line in json_lines(path):
        identity, text, title = line.get("_id"), line.get("text"), line.get("title")
        if not isinstance(identity, str | int) or isinstance(identity, bool) or identity == "":
            raise JudgementsError(f'{place}: a document without "_id".', hint="give it one")
        if not isinstance(text, str) or not isinstance(title, str | None):
            raise JudgementsError(f'{place}: "text" and "title" must be text.')
        yield {"id": str(identity), "title": title or "", "text": text}
