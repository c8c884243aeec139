"""Bring notebooks into the form in which they are committed.

    python .ci/normalise_notebooks.py NOTEBOOK...

Outputs stay, since readers see them; what differs from run to run goes: times, widget state,
papermill's notes, random cell ids. With ``--check`` nothing is written and the exit code tells
whether all notebooks have the form already.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy of the notebook in the committed form."""
    result = nbformat.from_dict(notebook)
    result.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    result.nbformat, result.nbformat_minor = 4, 5
    result.cells = [
        cell for cell in result.cells if "injected-parameters" not in cell.metadata.get("tags", [])
    ]
    count = 0
    for number, cell in enumerate(result.cells, start=1):
        cell.id = f"cell-{number:02d}"
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type != "code":
            continue
        ran = cell.execution_count is not None
        count += ran
        cell.execution_count = count if ran else None
        cell.outputs = [_output(output, cell.execution_count) for output in cell.outputs]
    return result


def _output(output: nbformat.NotebookNode, count: int | None) -> nbformat.NotebookNode:
    """Return one output without what differs from run to run."""
    if output.output_type == "execute_result":
        output.execution_count = count
    if "data" in output:
        output.data.pop(WIDGET_VIEW, None)
        output.metadata = nbformat.from_dict({})
    return output


def text_of(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook as the text of a committed file."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Normalise or check the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description="Bring notebooks into their committed form.")
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="only tell; write nothing")
    options = parser.parse_args(arguments)
    changed = []
    for path in options.notebooks:
        before = path.read_text("utf-8")
        after = text_of(normalise(nbformat.reads(before, as_version=4)))
        if before != after:
            changed.append(path)
            if not options.check:
                path.write_text(after, "utf-8")
    for path in changed:
        print(f"{'not in committed form' if options.check else 'normalised'}: {path}")
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
