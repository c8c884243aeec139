"""Runs a notebook as a test: papermill, with every way of failing made visible."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["NotebookFailed", "run_notebook"]

#: Seconds that a kernel may take to start.
_STARTUP = 60
#: Settings of the caller's own shell that a notebook under test must not see.
_SETTINGS_PREFIX = "NBRAG_"
#: Cells that papermill adds.
_ADDED_TAGS = frozenset({"injected-parameters", "papermill-error-cell-tag"})


class NotebookFailed(AssertionError):
    """A notebook failed, or could not be run as asked.

    Parameters
    ----------
    message
        Which cell failed, why, and what was on stderr.
    notebook
        The notebook as far as it was executed; None when it was not begun.
    """

    def __init__(self, message: str, notebook: Any = None) -> None:
        super().__init__(message)
        self.notebook = notebook


def run_notebook(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    cell_timeout: float = 120,
    timeout: float = 600,
    **more: Any,
) -> Any:
    """Execute a notebook in a kernel of its own and return it.

    It fails on what other tools let pass: parameters that the notebook does not have, magics that
    IPython refuses (they only print ``UsageError``), errors hidden by ``%%capture`` or by a tag.

    Parameters
    ----------
    path
        The notebook; it is not changed.
    parameters, **more
        Values for the cell that is tagged ``parameters``.
    cwd
        The kernel's folder; by default a new one, removed afterwards.
    env
        Variables for the kernel, on top of the environment without its ``NBRAG_`` settings.
    cell_timeout, timeout
        Seconds for one cell and for the whole notebook.

    Returns
    -------
    nbformat.NotebookNode
        The executed notebook; :func:`nbrag.testing.records.read_records` reads its figures.

    Raises
    ------
    NotebookFailed
        When a cell fails, time runs out, or a parameter is unknown or not plain JSON.
    """
    source = Path(path).resolve()
    values = {**(parameters or {}), **more}
    _check_parameters(source, values)
    with tempfile.TemporaryDirectory(prefix="nbrag-notebook-") as scratch:
        folder = Path(scratch)
        own = folder / "cwd"
        own.mkdir()
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_SETTINGS_PREFIX) or name in ("NBRAG_CACHE", "NBRAG_DATA")
        }
        # No start-up files or history of the user's own.
        environment["IPYTHONDIR"] = str(folder / "ipython")
        environment.update(env or {})
        output = folder / "executed.ipynb"
        failure = _execute(
            source,
            output,
            values=values,
            cwd=str(cwd or own),
            environment=environment,
            cell_timeout=cell_timeout,
            timeout=timeout,
        )
        notebook = _read(output)
    # What ended the run explains more than the interrupt that it left in a cell.
    reasons = [failure] if failure else _failures(notebook)
    if reasons:
        text = "\n".join([f"{source.name} failed:", *reasons, *_stderr(notebook)])
        raise NotebookFailed(text, notebook)
    return notebook


def _check_parameters(source: Path, values: Mapping[str, Any]) -> None:
    if not source.is_file():
        raise NotebookFailed(f"there is no notebook {source.name}")
    if not values:
        return
    import papermill

    known = set(papermill.inspect_notebook(str(source)))
    unknown = sorted(set(values) - known)
    if unknown:
        raise NotebookFailed(
            f"{source.name} has no parameter {', '.join(unknown)}; it has: "
            f"{', '.join(sorted(known)) or 'none (no cell is tagged parameters)'}"
        )
    for name, value in values.items():
        try:
            plain = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise NotebookFailed(f"parameter {name}: {error}; pass text or numbers") from None
        if plain != value:
            raise NotebookFailed(f"parameter {name}: JSON would change {value!r} to {plain!r}")


def _execute(
    source: Path,
    output: Path,
    *,
    values: Mapping[str, Any],
    cwd: str,
    environment: Mapping[str, str],
    cell_timeout: float,
    timeout: float,
) -> str:
    """Run papermill; return what ended the run, empty when it came to the last cell."""
    import papermill
    from jupyter_client.manager import AsyncKernelManager
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    class OwnEnvironment(AsyncKernelManager):
        """Starts the kernel in the given environment, whatever this process's own is."""

        async def _async_pre_start_kernel(self, **options: Any) -> Any:
            options["env"] = dict(environment)
            return await super()._async_pre_start_kernel(**options)

        pre_start_kernel = _async_pre_start_kernel

    deadline = time.monotonic() + timeout

    def seconds_for(_cell: Any) -> float:
        # 0 would mean no limit.
        return max(min(cell_timeout, deadline - time.monotonic()), 0.01)

    try:
        papermill.execute_notebook(
            str(source),
            str(output),
            parameters=dict(values),
            cwd=cwd,
            progress_bar=False,
            log_output=False,
            coalesce_streams=True,
            start_timeout=_STARTUP,
            timeout_func=seconds_for,
            kernel_manager_class=OwnEnvironment,
            # The interpreter that runs the test, whatever kernel the author had.
            kernel_name="python3",
            language="python",
        )
    except PapermillExecutionError as error:
        found = _failures(_read(output))
        return found[0] if found else f"{error.ename}: {error.evalue}"
    except CellTimeoutError as error:
        which = "the whole notebook" if time.monotonic() >= deadline else "one cell"
        return f"time for {which} ran out: {str(error).strip()}"
    except DeadKernelError:
        return "the kernel died"
    return ""


def _read(path: Path) -> Any:
    import nbformat

    untyped: Any = nbformat
    return untyped.read(path, as_version=4) if path.is_file() else untyped.v4.new_notebook()


def _failures(notebook: Any) -> list[str]:
    """Return every trace of a failure, also those that let a run end green."""
    found = []
    for number, output in _outputs(notebook):
        if output.output_type == "error":
            found.append(f"cell {number}: {output.ename}: {output.evalue}")
        elif _is_stderr(output) and output.text.lstrip().startswith("UsageError"):
            found.append(f"cell {number}: {output.text.strip()}")
    if not found and notebook.metadata.get("papermill", {}).get("exception"):
        found.append("papermill saw an exception")
    return found


def _outputs(notebook: Any) -> Iterator[tuple[int, Any]]:
    """Yield each output with its cell's number in the notebook's own file, from 1."""
    number = 0
    for cell in notebook.cells:
        if _ADDED_TAGS.intersection(cell.metadata.get("tags", ())):
            continue
        number += 1
        for output in cell.get("outputs", ()):
            yield number, output


def _is_stderr(output: Any) -> bool:
    return bool(output.output_type == "stream" and output.name == "stderr")


def _stderr(notebook: Any) -> list[str]:
    return [
        f"stderr of cell {number}: {output.text.strip()}"
        for number, output in _outputs(notebook)
        if _is_stderr(output)
    ]
