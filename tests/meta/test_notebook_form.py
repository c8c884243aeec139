"""Notebooks are committed in one form, with outputs and with parameters."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    """The command that brings notebooks into the committed form."""
    path = repository / ".ci" / "normalise_notebooks.py"
    spec = importlib.util.spec_from_file_location("normalise_notebooks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def executed_notebook() -> nbformat.NotebookNode:
    """Return a notebook as papermill leaves it."""
    code = new_code_cell("1 + 1", execution_count=7)
    code.metadata = {"execution": {"iopub.status.busy": "now"}, "tags": ["parameters"]}
    code.outputs = [
        new_output("execute_result", {"text/plain": "2"}, execution_count=7),
        new_output(
            "display_data",
            {"application/vnd.jupyter.widget-view+json": {"model_id": "ab"}, "text/plain": "bar"},
        ),
    ]
    injected = new_code_cell("x = 1", metadata={"tags": ["injected-parameters"]})
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), code, injected])
    notebook.metadata = {"papermill": {"duration": 1.0}, "widgets": {"state": {}}}
    return notebook


def test_normalising_removes_what_differs_from_run_to_run(tool: ModuleType) -> None:
    result = tool.normalise(executed_notebook())
    assert "papermill" not in result.metadata
    assert "widgets" not in result.metadata
    assert [cell.id for cell in result.cells] == ["cell-01", "cell-02"]
    code = result.cells[1]
    assert dict(code.metadata) == {"tags": ["parameters"]}
    assert code.execution_count == code.outputs[0].execution_count == 1
    assert code.outputs[0].data == {"text/plain": "2"}
    assert code.outputs[1].data == {"text/plain": "bar"}


def test_normalising_twice_changes_nothing(tool: ModuleType) -> None:
    once = tool.text_of(tool.normalise(executed_notebook()))
    assert tool.text_of(tool.normalise(nbformat.reads(once, as_version=4))) == once


def test_the_command_tells_and_repairs(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "note.ipynb"
    nbformat.write(executed_notebook(), path)
    before = path.read_text("utf-8")
    assert tool.main(["--check", str(path)]) == 1
    assert path.read_text("utf-8") == before
    assert tool.main([str(path)]) == 0
    assert tool.main(["--check", str(path)]) == 0
    assert "not in committed form" in capsys.readouterr().out


def test_committed_notebooks_have_the_form(tool: ModuleType, notebook_paths: list[Path]) -> None:
    assert notebook_paths
    assert tool.main(["--check", *map(str, notebook_paths)]) == 0


def test_committed_notebooks_were_run_and_hold_no_error(notebook_paths: list[Path]) -> None:
    for path in notebook_paths:
        cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        assert all(cell.execution_count is not None for cell in cells), path.name
        kinds = {output.output_type for cell in cells for output in cell.outputs}
        assert "error" not in kinds, path.name


def test_each_notebook_has_one_cell_of_plain_parameters(notebook_paths: list[Path]) -> None:
    assert notebook_paths
    for path in notebook_paths:
        tagged = [
            cell
            for cell in nbformat.read(path, as_version=4).cells
            if "parameters" in cell.metadata.get("tags", [])
        ]
        assert len(tagged) == 1, path.name
        for node in ast.parse(tagged[0].source).body:
            assert isinstance(node, ast.Assign | ast.AnnAssign), (path.name, ast.unparse(node))
            assert node.value is not None
            ast.literal_eval(node.value)
