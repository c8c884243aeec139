"""The notebooks of the techniques: each runs offline and gives the figures that it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbrag.errors import NbragError
from nbrag.testing import read_records, run_notebook

TECHNIQUES = ["crag", "expand", "hyde", "rerank-llm", "route"]
#: Those that ask no chat model.
WITHOUT_CHAT = ["rerank-cross-encoder"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all of them: the handbook is embedded once."""
    return tmp_path_factory.mktemp("techniques") / "work.duckdb"


@pytest.mark.kernel
@pytest.mark.model
@pytest.mark.parametrize("name", [*TECHNIQUES, *WITHOUT_CHAT])
def test_a_notebook_gives_the_figures_that_it_shows(
    notebooks: Path, database: Path, name: str
) -> None:
    path = notebooks / f"{name}.ipynb"
    executed = run_notebook(path, cwd=notebooks, database=str(database))
    committed = read_records(nbformat.read(path, as_version=4))
    found = read_records(executed)
    assert list(found) == list(committed)
    assert len(found) >= 9
    for record, value in committed.items():
        assert found[record] == pytest.approx(value, abs=0.005), record


@pytest.mark.kernel
@pytest.mark.model
def test_a_request_that_is_not_in_the_file_is_an_error_that_shows_it(
    notebooks: Path, database: Path
) -> None:
    with pytest.raises((AssertionError, NbragError), match="ReplayMissing"):
        run_notebook(notebooks / "rerank-llm.ipynb", cwd=notebooks, database=str(database), step=3)


def test_replies_and_notebooks_say_that_they_are_authored(notebooks: Path) -> None:
    first = (notebooks / "replies" / "handbook.jsonl").read_text("utf-8").partition("\n")[0]
    assert json.loads(first)["about"].startswith("Authored replies: written by hand")
    for name in TECHNIQUES:
        cells: list[Any] = nbformat.read(notebooks / f"{name}.ipynb", as_version=4).cells
        told = [cell.source for cell in cells if cell.cell_type == "markdown"]
        assert any("**authored**" in text for text in told), name
        assert "when not to use it" in told[-1]


def test_the_cross_encoder_s_figures_are_said_to_be_of_random_weights(notebooks: Path) -> None:
    notebook = nbformat.read(notebooks / "rerank-cross-encoder.ipynb", as_version=4)
    told = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert any("**tiny classifier with random weights**" in text for text in told)
    assert "when not to use it" in told[-1]
    records = read_records(notebook)
    assert records["reranked nDCG@10"] < records["hybrid nDCG@10"] - 0.1
    low, high = records["mixed - hybrid nDCG@10"][1:]
    assert low < 0 < high
