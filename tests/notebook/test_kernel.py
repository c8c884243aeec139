"""What only a real kernel shows: progress in place, the stop button, red cells."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

from nbrag.testing import HashEmbedder, NotebookFailed, run_notebook
from nbrag.workspace import Workspace

pytestmark = pytest.mark.kernel

#: Seconds that one cell may take.
PATIENCE = 60


@dataclass
class Executed:
    """What one cell left.

    Attributes
    ----------
    status
        ``ok`` or ``error``.
    outputs
        The outputs as a saved notebook has them: a display that was updated is one output.
    messages
        How many messages about outputs there were.
    """

    status: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)
    messages: int = 0

    @property
    def text(self) -> str:
        """All outputs as plain text."""
        parts = []
        for output in self.outputs:
            parts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
            parts += output.get("traceback", [])
        return "\n".join(part for part in parts if part)


class Kernel:
    """One kernel in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder))

    def start(self, code: str) -> str:
        """Start a cell; return its message's id."""
        return str(self.client.execute(code))

    def wait_for_output(self, cell: str, words: str) -> Executed:
        """Return what a running cell has shown as soon as the pattern is in it."""
        return self._collect(cell, words)

    def finish(self, cell: str, so_far: Executed | None = None) -> Executed:
        """Return what a cell left, at its end."""
        found = self._collect(cell, None, so_far)
        while True:
            reply = self.client.get_shell_msg(timeout=PATIENCE)
            if reply["parent_header"].get("msg_id") == cell:
                found.status = reply["content"]["status"]
                return found

    def run(self, code: str) -> Executed:
        """Run a cell to its end."""
        return self.finish(self.start(code))

    def _collect(self, cell: str, words: str | None, so_far: Executed | None = None) -> Executed:
        found = so_far or Executed()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(deadline - time.monotonic(), 0.1))
            except Empty:
                raise AssertionError(f"no end after {PATIENCE} s; so far: {found.text}") from None
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                assert words is None, f"the cell ended without {words!r}: {found.text}"
                return found
            if kind in ("display_data", "update_display_data", "execute_result", "error", "stream"):
                found.messages += 1
                _add(found.outputs, kind, content)
            if words is not None and re.search(words, found.text):
                return found

    def interrupt(self) -> None:
        """Press the stop button."""
        self.manager.interrupt_kernel()

    def close(self) -> None:
        """Stop the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def _add(outputs: list[dict[str, Any]], kind: str, content: dict[str, Any]) -> None:
    if kind == "update_display_data":
        for output in outputs:
            if output.get("transient", {}).get("display_id") == content["transient"]["display_id"]:
                output["data"] = content["data"]
    else:
        outputs.append({"kind": kind, **content})


SETUP = """
%load_ext nbrag
import asyncio, pathlib, nbrag
from nbrag.testing import HashEmbedder

class SlowEmbedder(HashEmbedder):
    seconds = 0.0
    async def embed_documents(self, texts):
        await asyncio.sleep(self.seconds * len(texts))
        return await super().embed_documents(texts)

folder = pathlib.Path("many")
folder.mkdir()
for number in range(120):
    sentences = [f"Fact {number}-{i} is about thing {number * i}." for i in range(60)]
    (folder / f"{number:03d}.md").write_text(f"# Page {number}\\n\\n" + "\\n\\n".join(sentences))
embedder = SlowEmbedder()
nbrag.use_workspace(nbrag.Workspace("kernel.duckdb", embedder=embedder))
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with the magics over a file and an embedder that can be slowed down."""
    made = Kernel(tmp_path_factory.mktemp("kernel"))
    try:
        executed = made.run(SETUP)
        assert executed.status == "ok", executed.text
        yield made
    finally:
        made.close()


def test_a_stop_keeps_what_is_done_and_the_next_run_completes(kernel: Kernel) -> None:
    kernel.run("embedder.seconds = 0.02")
    cell = kernel.start("%rag_ingest stopped --from many")
    # The stop comes once documents were committed, while vectors of others are computed.
    kernel.wait_for_output(cell, r"[1-9]\d* of 120 documents")
    kernel.interrupt()
    executed = kernel.finish(cell)
    assert executed.status == "error"
    assert executed.outputs[-1]["ename"] == "KeyboardInterrupt"
    after = kernel.run(
        "embedder.seconds = 0.0\n"
        "before = len(embedder.embedded)\n"
        "state = nbrag.current_workspace().sql('SELECT count(*), count(DISTINCT id) "
        "FROM stopped.documents').fetchone()\n"
        "orphans = nbrag.current_workspace().sql('SELECT count(*) FROM stopped.chunks WHERE "
        "document_id NOT IN (SELECT id FROM stopped.documents)').fetchone()[0]\n"
        "print(0 < state[0] < 120, state[0] == state[1], orphans)"
    )
    assert after.text == "True True 0\n"
    executed = kernel.run("%rag_ingest stopped --from many -q -o report")
    assert executed.status == "ok", executed.text
    counted = kernel.run("print(sum(report.counts.values()), report.counts['unchanged'] > 0)")
    assert counted.text == "120 True\n"
    # One batch is lost at the most: what was embedded before the stop is not embedded again.
    twice = kernel.run("print(len(embedder.embedded) - len(set(embedder.embedded)), before)")
    repeated, before = map(int, twice.text.split())
    assert repeated < before
    found = kernel.run("r = %rag_search -c stopped Fact 39?\nprint(len(r))")
    assert found.text == "5\n"


def test_progress_is_one_output_that_ends_as_the_report(kernel: Kernel) -> None:
    kernel.run("embedder.seconds = 0.001")
    executed = kernel.run("%rag_ingest shown --from many")
    assert executed.messages > 3
    assert len(executed.outputs) == 1
    assert "shown: 120 added" in executed.text
    kernel.run("embedder.seconds = 0.0")
    quiet = kernel.run("%rag_ingest shown --from many -q")
    assert quiet.text == "shown: 120 unchanged; {} chunks, 0 embedded".format(
        executed.text.split("; ")[1].split(" ")[0]
    )
    assert "shown: 120 unchanged" in kernel.run("_ = %rag_ingest shown --from many\n_").text


def test_a_report_is_shown_again_when_it_is_asked_for(kernel: Kernel) -> None:
    first = kernel.run("%rag_ingest again --from many/000.md -o report")
    assert [output["kind"] for output in first.outputs] == ["display_data"]
    later = kernel.run("report")
    assert [output["kind"] for output in later.outputs] == ["execute_result"]
    assert later.text == first.text


def test_a_cell_that_awaits_mixes_with_magics(kernel: Kernel) -> None:
    executed = kernel.run(
        "%rag_ingest mixed --from many/001.md -q\n"
        "workspace = nbrag.current_workspace()\n"
        "retriever = workspace.pipeline().as_retriever(workspace['mixed'])\n"
        "found = await retriever.retrieve('Fact 1-7', top_k=2)\n"
        "same = %rag_search -c mixed -k 2 Fact 1-7\n"
        "print([c.id for c in found] == [c.id for c in same], len(found))"
    )
    assert executed.outputs[-1]["text"] == "True 2\n", executed.text


@pytest.mark.parametrize(
    ("code", "name", "hint"),
    [
        ("%rag_search", "QueryError", "%rag_search How"),
        ("%rag_search -c nowhere x", "CollectionNotFound", "known collections"),
        ("%rag_search -p nowhere x", "PipelineNotFound", "known pipelines"),
        ("%rag_search -c base --where 'pgae > 1' x", "FilterError", "page"),
        ("%rag_search -c base --where 'page >' x", "FilterError", "e.g. "),
        ("%rag_search --limit 3 x", "MagicUsageError", "options"),
        ("%%rag_pipeline p\nserch", "SpecificationError", "did you mean 'search'"),
        ("%%rag_pipeline p\nsearch mdoe=x", "SpecificationError", "did you mean 'mode'"),
        ("%%rag_ingest d --from many\nchnk", "SpecificationError", "did you mean 'chunk'"),
        ("%rag_eval default --cases gone.jsonl", "JudgementsError", "BEIR folder"),
        ("%rag_config topk=3", "ConfigurationError", "did you mean 'top_k'"),
    ],
)
def test_errors_are_one_line_with_a_hint(kernel: Kernel, code: str, name: str, hint: str) -> None:
    if "base" in code:
        assert kernel.run("%rag_ingest base --from many/000.md -q").status == "ok"
    executed = kernel.run(code)
    assert executed.status == "error"
    (output,) = executed.outputs
    assert (output["kind"], output["ename"]) == ("error", name)
    first, *rest = output["traceback"]
    assert first.startswith(f"{name}: ")
    assert "\n" not in first
    assert len(rest) == 1
    assert rest[0].startswith("Hint: ")
    assert hint in rest[0]


def written(path: Path, *cells: str) -> Path:
    """Write a notebook."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nbformat.write(notebook, path)
    return path


def newer_file(folder: Path) -> None:
    with Workspace(folder / "newer.duckdb") as workspace:
        workspace.database.execute("UPDATE nbrag.meta SET value = '999'")


def other_embedder(folder: Path) -> None:
    with Workspace(folder / "hash.duckdb", embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", [{"id": "a", "text": "Some text."}])


@pytest.mark.parametrize(
    ("prepare", "cells", "words"),
    [
        pytest.param(
            newer_file,
            ["%rag_config database=newer.duckdb", "%rag_search x"],
            ["NewerFormat"],
            id="newer file",
        ),
        pytest.param(
            other_embedder,
            ["%rag_config database=hash.duckdb", "%rag_search x"],
            ["EmbedderMismatch", "hash"],
            id="another embedder",
        ),
        pytest.param(
            other_embedder,
            [
                "%rag_config database=hash.duckdb read_only=true",
                "%%rag_pipeline p\nsearch mode=keyword",
            ],
            ["DatabaseReadOnly"],
            id="read-only",
        ),
        pytest.param(
            None,
            ["%rag_config embedder=gone/folder.onnx", "%rag_ingest d --from ."],
            ["ModelNotFound"],
            id="missing model",
        ),
        pytest.param(
            None,
            [
                "import sys; sys.modules['huggingface_hub'] = None",
                "%rag_config embedder=owner/name",
                "%rag_ingest d --from .",
            ],
            ["MissingDependency", "nbrag[hub]"],
            id="missing extra",
        ),
        pytest.param(None, ["%rag_serach x"], ["UsageError"], id="misspelt magic"),
    ],
)
def test_errors_turn_papermill_red(
    tmp_path: Path, prepare, cells: list[str], words: list[str]
) -> None:
    if prepare is not None:
        prepare(tmp_path)
    path = written(tmp_path / "red.ipynb", "%load_ext nbrag", *cells)
    with pytest.raises(NotebookFailed) as caught:
        run_notebook(path, cwd=tmp_path)
    for word in words:
        assert word in str(caught.value)
    assert f"cell {len(cells) + 1}" in str(caught.value)


def test_a_file_held_by_another_process_names_it(tmp_path: Path) -> None:
    path = written(
        tmp_path / "red.ipynb",
        "%load_ext nbrag\n%rag_config database=held.duckdb",
        "%rag_search x",
    )
    with Workspace(tmp_path / "held.duckdb"), pytest.raises(NotebookFailed) as caught:
        run_notebook(path, cwd=tmp_path)
    assert "DatabaseLocked" in str(caught.value)
    assert f"process {os.getpid()}" in str(caught.value)
