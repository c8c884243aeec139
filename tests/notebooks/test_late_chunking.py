"""The notebook of late chunking gives the figures that it shows."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from nbrag.testing import read_records, run_notebook


@pytest.mark.kernel
@pytest.mark.model
def test_it_gives_the_figures_that_it_shows(notebooks: Path) -> None:
    path = notebooks / "late-chunking.ipynb"
    # All questions, so that the figures are those of the text; embedding takes most of the time.
    executed = run_notebook(path, cwd=notebooks, cell_timeout=400, timeout=900)
    committed = read_records(nbformat.read(path, as_version=4))
    found = read_records(executed)
    assert list(found) == list(committed)
    assert len(found) == 30
    for record, value in committed.items():
        assert found[record] == pytest.approx(value, abs=0.01), record


def test_its_conclusion_is_what_its_figures_say(notebooks: Path) -> None:
    notebook = nbformat.read(notebooks / "late-chunking.ipynb", as_version=4)
    found = read_records(notebook)
    told = notebook.cells[-1].source
    assert "does not pay" in told
    assert "when not to use it" in told
    for name in ("headings", "late"):
        assert f"{found[f'vector {name} recall@5']:.3f}" in told
    mean, low, high = found["vector late - headings recall@5"]
    assert low < mean < high < 0
    _, low, high = found["vector late - alone nDCG@10"]
    assert low < 0 < high
    hybrid = [found[f"hybrid {name} nDCG@10"] for name in ("headings", "alone", "late")]
    assert max(hybrid) - min(hybrid) < 0.02
