"""Bring notebooks into the form in which they are committed.

    python -m nbrag.testing.normalise NOTEBOOK...

Outputs stay, since readers see them; what differs from run to run goes: times, widget state,
papermill's notes and injected parameters, random cell ids, execution counts that skip. With
``--check`` nothing is written, and the exit code tells whether all have the form already.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "normalise", "notebook_text"]

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
#: Cells that papermill adds to a run: parameters, and the remarks on a failure.
_ADDED_TAGS = frozenset({"injected-parameters", "papermill-error-cell-tag"})


def normalise(notebook: Any) -> Any:
    """Return a copy of the notebook in the committed form.

    Parameters
    ----------
    notebook
        A notebook node of nbformat 4.
    """
    nbformat = _nbformat()
    result = nbformat.from_dict(notebook)
    result.metadata = nbformat.from_dict(_METADATA)
    result.nbformat, result.nbformat_minor = 4, 5
    result.cells = [
        cell for cell in result.cells if not _ADDED_TAGS.intersection(cell.metadata.get("tags", []))
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


def _output(output: Any, count: int | None) -> Any:
    """Return one output without what differs from run to run."""
    if output.output_type == "execute_result":
        output.execution_count = count
    if "data" in output:
        output.data.pop(_WIDGET_VIEW, None)
        output.metadata = {}
    return output


def _nbformat() -> Any:
    """Return the module nbformat, most of which has no annotations."""
    import nbformat

    return nbformat


def notebook_text(notebook: Any) -> str:
    """Return the notebook as the text of a committed file."""
    return str(_nbformat().writes(notebook, version=4)).rstrip("\n") + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Normalise or check the notebooks that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nbrag.testing.normalise",
        description="Bring notebooks into the form in which they are committed.",
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="only tell; write nothing")
    options = parser.parse_args(arguments)
    changed = 0
    for path in options.notebooks:
        before = path.read_text("utf-8")
        after = notebook_text(normalise(_nbformat().reads(before, as_version=4)))
        if before == after:
            continue
        changed += 1
        if not options.check:
            path.write_text(after, "utf-8")
        print(f"{'not in committed form' if options.check else 'normalised'}: {path}")  # noqa: T201
    return int(options.check and changed > 0)


if __name__ == "__main__":
    sys.exit(main())
