"""Panels in a notebook that is run by a tool: its committed form reads without anything else."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from nbrag.testing import run_notebook
from nbrag.testing.normalise import normalise

pytestmark = pytest.mark.kernel

SETUP = (
    "%load_ext nbrag\nimport nbrag\nfrom nbrag.testing import HashEmbedder\n"
    "workspace = nbrag.Workspace('run.duckdb', embedder=HashEmbedder())\n"
    "nbrag.use_workspace(workspace)\n"
    "_ = workspace.ingest('docs', [{'id': 'a.md', 'text': 'Backups are kept for 35 days.'}])"
)
CELLS = (
    SETUP,
    "%rag_panel pipeline -c docs --question 'How long are backups kept?'",
    "%rag_panel search -c docs --question 'How long are backups kept?'",
)


def test_the_committed_form_has_the_still_pictures_and_nothing_private(tmp_path: Path) -> None:
    from nbconvert import HTMLExporter, MarkdownExporter

    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "panels.ipynb")
    ran = run_notebook(tmp_path / "panels.ipynb", cwd=tmp_path)
    assert str(tmp_path) not in str(ran.metadata.get("widgets"))
    made = normalise(ran)
    assert str(tmp_path) not in nbformat.writes(made)
    assert str(Path.home()) not in nbformat.writes(made)
    page, _ = HTMLExporter().from_notebook_node(made)
    assert page.count("A still picture of the panel") == 2
    assert page.count("Backups are kept for 35 days.") > 2
    text, _ = MarkdownExporter().from_notebook_node(made)
    assert "%%rag_pipeline pipeline -c docs" in text
    for cell in made.cells[1:]:
        assert list(cell.outputs[0].data) == ["text/html", "text/plain"]
