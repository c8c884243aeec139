"""The notebook of panels runs, and shows every panel where there is no kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest

from nbrag.notebook.panels import panel_definitions
from nbrag.testing import read_records, run_notebook

HEADINGS = {
    "eval": "Evaluation",
    "ingest": "Ingest",
    "map": "Map of a collection",
    "pipeline": "Pipeline",
    "search": "Search",
}


@pytest.mark.kernel
@pytest.mark.model
def test_it_gives_the_figures_that_it_shows(notebooks: Path) -> None:
    path = notebooks / "panels.ipynb"
    executed = run_notebook(path, cwd=notebooks, cell_timeout=400, timeout=900)
    committed, found = read_records(nbformat.read(path, as_version=4)), read_records(executed)
    assert list(found) == list(committed)
    for record, value in committed.items():
        if isinstance(value, float):
            assert found[record] == pytest.approx(value, abs=0.01), record
        else:
            assert found[record] == value, record


def test_every_panel_has_a_still_picture_without_kernel_scripts_and_network(
    notebooks: Path,
) -> None:
    notebook = nbformat.read(notebooks / "panels.ipynb", as_version=4)
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", ())]
    pictures = [o.data.get("text/html", "") for o in outputs if "data" in o]
    texts = [o.data.get("text/plain", "") for o in outputs if "data" in o]
    assert set(HEADINGS) == set(panel_definitions())
    for heading in HEADINGS.values():
        assert any(f'<section aria-label="{heading}"' in picture for picture in pictures), heading
        assert any(text.startswith(f"{heading}\n") for text in texts), heading
    for picture in pictures:
        assert "<script" not in picture
        assert "src=" not in picture
        assert "widget" not in picture
    assert any("<svg" in p and "Map of a collection" in p for p in pictures)
    assert "widgets" not in notebook.metadata
    text = nbformat.writes(notebook)
    assert str(Path.home()) not in text
    assert sys.prefix not in text
