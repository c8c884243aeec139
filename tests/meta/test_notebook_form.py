"""Notebooks are committed in one form, with outputs and with parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat

from nbrag.testing import normalise


def test_there_are_notebooks(notebook_paths: list[Path]) -> None:
    assert notebook_paths


def test_committed_notebooks_have_the_form(notebook_paths: list[Path]) -> None:
    assert normalise.main(["--check", *map(str, notebook_paths)]) == 0


def test_committed_notebooks_were_run_and_hold_no_error(notebook_paths: list[Path]) -> None:
    for path in notebook_paths:
        cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        assert all(cell.execution_count is not None for cell in cells), path.name
        kinds = {output.output_type for cell in cells for output in cell.outputs}
        assert "error" not in kinds, path.name


def test_each_notebook_has_one_cell_of_plain_parameters(notebook_paths: list[Path]) -> None:
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
