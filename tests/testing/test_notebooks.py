"""The notebook runner sees every way in which a notebook can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbrag.testing.notebooks import NotebookFailed, run_notebook
from nbrag.testing.records import read_records

PARAMETERS = "count = 1  # how many\nwords: list = []\n"


@pytest.fixture
def notebook(tmp_path: Path):
    """Return a function that writes a notebook of the given cells."""

    def write(*cells: str, parameters: str = "") -> Path:
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata["kernelspec"] = {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        }
        if parameters:
            cell = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
            made.cells.insert(0, cell)
        path = tmp_path / "made.ipynb"
        nbformat.write(made, path)
        return path

    return write


@pytest.mark.kernel
def test_runs_with_parameters_environment_and_a_folder_of_its_own(
    notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBRAG_TOP_K", "not for the notebook")
    monkeypatch.setenv("OUTER", "seen")
    path = notebook(
        "import os, pathlib, nbrag",
        "nbrag.record('count', count + len(words))",
        "nbrag.record('environment', [os.environ.get(n) for n in ('NBRAG_TOP_K', 'OUTER', 'OWN')])",
        "nbrag.record('files', os.listdir())",
        "print('a'); print('b')",
        parameters=PARAMETERS,
    )
    before = path.read_bytes()
    executed = run_notebook(path, {"count": 2}, words=["x", "y"], env={"OWN": "1"})
    assert read_records(executed) == {
        "count": 4,
        "environment": [None, "seen", "1"],
        "files": [],
    }
    assert [output.text for output in executed.cells[-1].outputs] == ["a\nb\n"]
    assert path.read_bytes() == before


@pytest.mark.kernel
def test_runs_in_a_given_folder(notebook, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "file.txt").write_text("found", "utf-8")
    path = notebook("import nbrag; nbrag.record('text', open('file.txt').read())")
    assert read_records(run_notebook(path, cwd=folder)) == {"text": "found"}


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        pytest.param(["1", "1 / 0"], ["cell 2: ZeroDivisionError"], id="an exception"),
        pytest.param(["%nomagic"], ["UsageError", "nomagic"], id="a magic that IPython refuses"),
        pytest.param(["%%capture\n1 / 0"], ["cell 1: ZeroDivisionError"], id="a hidden exception"),
        pytest.param(
            ["import sys; print('before', file=sys.stderr); raise OSError('x')"],
            ["OSError: x", "stderr of cell 1: before"],
            id="what was on stderr",
        ),
        pytest.param(["import os; os._exit(3)"], ["kernel died"], id="a dead kernel"),
    ],
)
def test_sees_a_failure(notebook, cells: list[str], words: list[str]) -> None:
    with pytest.raises(NotebookFailed) as caught:
        run_notebook(notebook(*cells))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("limits", "words"),
    [({"cell_timeout": 1}, "one cell"), ({"timeout": 3, "cell_timeout": 60}, "the whole notebook")],
)
def test_time_limits(notebook, limits: dict[str, Any], words: str) -> None:
    with pytest.raises(NotebookFailed, match=words):
        run_notebook(notebook("import time", "time.sleep(30)"), **limits)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"cuont": 2}, "no parameter cuont; it has: count, words"),
        ({"count": Path()}, "not JSON serializable"),
        ({"count": float("nan")}, "not JSON compliant"),
        ({"words": ("a",)}, "JSON would change"),
    ],
)
def test_refuses_parameters(notebook, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(NotebookFailed, match=words):
        run_notebook(notebook("1", parameters=PARAMETERS), parameters)


def test_refuses_parameters_where_no_cell_is_tagged(notebook) -> None:
    with pytest.raises(NotebookFailed, match="no cell is tagged parameters"):
        run_notebook(notebook("x = 1"), x=2)


def test_says_that_there_is_no_notebook(tmp_path: Path) -> None:
    with pytest.raises(NotebookFailed, match="there is no notebook gone"):
        run_notebook(tmp_path / "gone.ipynb")
