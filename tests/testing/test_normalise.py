"""Notebooks are brought into the form in which they are committed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from nbrag.testing.normalise import main, normalise, notebook_text

VIEW = "application/vnd.jupyter.widget-view+json"


def executed_notebook() -> nbformat.NotebookNode:
    """Return a notebook as papermill leaves it."""
    code = new_code_cell("1 + 1", execution_count=7)
    code.metadata = {"execution": {"iopub.status.busy": "now"}, "tags": ["parameters"]}
    code.outputs = [
        new_output("execute_result", {"text/plain": "2"}, execution_count=7),
        new_output("display_data", {VIEW: {"model_id": "ab"}, "text/plain": "bar"}),
        new_output("stream", name="stdout", text="printed"),
    ]
    added = [
        new_code_cell("x = 1", metadata={"tags": ["injected-parameters"]}, execution_count=8),
        new_markdown_cell("failed", metadata={"tags": ["papermill-error-cell-tag"]}),
    ]
    last = new_code_cell("2", execution_count=12)
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), code, *added, last])
    notebook.metadata = {"papermill": {"duration": 1.0}, "widgets": {"state": {}}}
    return notebook


def test_what_differs_from_run_to_run_goes_and_outputs_stay() -> None:
    before = executed_notebook()
    result = normalise(before)
    assert set(result.metadata) == {"kernelspec", "language_info"}
    assert [(cell.id, cell.get("execution_count")) for cell in result.cells] == [
        ("cell-01", None),
        ("cell-02", 1),
        ("cell-03", 2),
    ]
    code = result.cells[1]
    assert dict(code.metadata) == {"tags": ["parameters"]}
    assert code.outputs[0].execution_count == 1
    assert [output.get("data", output.get("text")) for output in code.outputs] == [
        {"text/plain": "2"},
        {"text/plain": "bar"},
        "printed",
    ]


def test_twice_is_as_once() -> None:
    once = notebook_text(normalise(executed_notebook()))
    assert notebook_text(normalise(nbformat.reads(once, as_version=4))) == once


def test_the_command_tells_and_repairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "note.ipynb"
    nbformat.write(executed_notebook(), path)
    before = path.read_text("utf-8")
    assert main(["--check", str(path)]) == 1
    assert path.read_text("utf-8") == before
    assert main([str(path)]) == 0
    assert main(["--check", str(path)]) == 0
    assert capsys.readouterr().out == (f"not in committed form: {path}\nnormalised: {path}\n")
