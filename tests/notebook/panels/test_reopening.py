"""Every panel, opened again and again: one lives, nothing piles up, nothing private is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ipywidgets.widgets.widget import _instances as living

import nbrag
from nbrag.evaluation import Judgements
from nbrag.notebook.panels import open_panels, panel_definitions
from nbrag.testing import controls
from nbrag.workspace import Workspace

JUDGED = Judgements({"1": "backups?"}, {"1": {"handbook/backups.md": 1}})
OPTIONS: dict[str, dict[str, Any]] = {
    "eval": {"cases": JUDGED},
    "map": {"question": "backups"},
    "pipeline": {"question": "backups"},
    "search": {"question": "backups"},
}
NAMES = ("eval", "ingest", "map", "pipeline", "search")


def test_these_are_all_panels() -> None:
    assert tuple(panel_definitions()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_ten_openings_leave_one_panel_and_no_more_controls(name: str, workspace: Workspace) -> None:
    options = OPTIONS.get(name, {})
    made = nbrag.panel(name, workspace, collection="docs", **options)
    made.wait()
    before = len(living)
    for _ in range(10):
        made = nbrag.panel(name, workspace, collection="docs", **options)
        made.wait()
    assert open_panels() == [made]
    assert len(living) == before
    made.close()
    assert open_panels() == []


@pytest.mark.parametrize("name", NAMES)
def test_no_folder_and_no_key_is_in_its_controls_or_pictures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret0123456789abcdef")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.md").write_text("# A\n\nBackups are kept.")
    (tmp_path / "pages" / "bad.pdf").write_bytes(b"none")
    (tmp_path / "cases.jsonl").write_text(json.dumps({"query": "backups?", "relevant": ["a.md"]}))
    from nbrag.testing import HashEmbedder

    with Workspace(tmp_path / "x.duckdb", embedder=HashEmbedder()) as own:
        own.ingest("docs", tmp_path / "pages" / "a.md")
        options: dict[str, Any] = dict(OPTIONS.get(name, {}))
        words: tuple[str, ...] = ()
        if name == "eval":
            options["cases"] = str(tmp_path / "cases.jsonl")
        if name == "ingest":
            words = (str(tmp_path / "pages"), str(tmp_path / "gone"))
        made: Any = nbrag.panel(name, own, *words, collection="docs", **options)
        if name == "ingest":
            made.preview()
            made.count()
            made.wait()
            made.run()
        if name == "eval":
            made.measure()
        made.wait()
        states = [str(widget.get_state()) for widget in (made, *controls(made))]
        shown = "\n".join([*states, *made.snapshot().values()])
        assert str(tmp_path) not in shown
        assert "verysecret" not in shown
        made.close()
