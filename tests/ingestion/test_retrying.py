"""A second try takes up what failed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrag.ingestion.report import DocumentOutcome, IngestReport
from nbrag.ingestion.retrying import failed_sources, merged_report


def report(*rows: tuple[str, str]) -> IngestReport:
    return IngestReport("docs", tuple(DocumentOutcome(uri, outcome) for uri, outcome in rows))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        place = tmp_path / "pages" / f"{name}.md"
        place.parent.mkdir(exist_ok=True)
        place.write_text(name)
    return tmp_path


def test_only_what_failed_is_given_again_each_once(folder: Path) -> None:
    before = report(("pages/a.md", "added"), ("pages/b.md", "failed"))
    items = list(failed_sources(["pages", "pages/*.md", {"id": "r", "text": "x"}], before))
    assert [item.uri for item in items] == ["pages/b.md"]
    assert items[0].load() == b"b"
    assert items[0].metadata["folder"] == "pages"


def test_a_source_that_gave_nothing_is_gone_through_as_a_whole(folder: Path) -> None:
    before = report(("pages/a.md", "added"), ("later", "failed"))
    assert [item.uri for item in failed_sources(["pages", "later"], before)] == ["later"]
    (folder / "later").mkdir()
    (folder / "later" / "x.md").write_text("x")
    assert [item.uri for item in failed_sources(["pages", "later"], before)] == ["later/x.md"]


def test_one_text_is_one_source(folder: Path) -> None:
    before = report(("pages/c.md", "failed"))
    assert [item.uri for item in failed_sources("pages", before)] == ["pages/c.md"]


def test_the_second_outcome_takes_the_place_of_the_failure() -> None:
    before = report(("a", "added"), ("b", "failed"), ("later", "failed"), ("c", "failed"))
    second = report(("c", "failed"), ("b", "changed"), ("later/x", "added"))
    merged = merged_report(before, second)
    assert [(row.uri, row.outcome) for row in merged] == [
        ("a", "added"),
        ("b", "changed"),
        ("c", "failed"),
        ("later/x", "added"),
    ]
