"""A panel as an application: the real Voila, without JupyterLab around it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from .lab import PATIENCE, browser_path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.kernel,
    pytest.mark.skipif(
        browser_path() is None,
        reason="there is no Chromium on this machine (Debian: apt-get install chromium)",
    ),
]

CELLS = (
    """
import nbrag
from nbrag.testing import HashEmbedder
workspace = nbrag.Workspace(embedder=HashEmbedder())
_ = workspace.ingest("docs", [
    dict(id="backups.md", text="Backups are kept for 35 days in the EU region."),
    dict(id="prices.md", text="The small plan costs 5 dollars."),
])""",
    'nbrag.panel("map", workspace, collection="docs")',
)


@contextlib.contextmanager
def served(notebook: Path) -> Iterator[str]:
    """Run Voila over one notebook; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = notebook.parent / "own"
    environment = {name: v for name, v in os.environ.items() if not name.startswith("JUPYTER")}
    environment |= {
        "JUPYTER_CONFIG_DIR": str(own / "config"),
        "JUPYTER_DATA_DIR": str(own / "data"),
        "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
        "IPYTHONDIR": str(own / "ipython"),
    }
    command = [sys.executable, "-m", "voila", str(notebook), f"--port={port}", "--no-browser"]
    command += ["--Voila.ip=127.0.0.1"]
    log = (notebook.parent / "voila.log").open("wb")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=notebook.parent)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert server.poll() is None, (notebook.parent / "voila.log").read_text()[-2000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _note(message: Any, problems: list[str]) -> None:
    """Keep what the console complains of, without the icons that Voila itself looks for."""
    place = message.location.get("url", "")
    if message.type == "error" and "@fortawesome/fontawesome-free" not in place:
        problems.append(f"{message.text} {place}")


def test_a_panel_is_driven_in_voila_by_names_and_keys(browser: Any, tmp_path: Path) -> None:
    made = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    path = tmp_path / "application.ipynb"
    nbformat.write(notebook, path)
    problems: list[str] = []
    with served(path) as address:
        page = browser.new_page(viewport={"width": 1200, "height": 1100})
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", lambda message: _note(message, problems))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        page.get_by_role("img", name="docs: all 2 chunks").wait_for()
        question = page.get_by_label("Question", exact=True)
        question.focus()
        page.keyboard.type("How long are backups kept?")
        page.keyboard.press("Enter")
        page.get_by_role("cell", name="backups.md").first.wait_for()
        page.get_by_label("Marks tell", exact=True).select_option(label="document")
        page.get_by_role("img", name="marks by document").wait_for()
        page.keyboard.press("Tab")
        page.screenshot(path=tmp_path / "voila.png")
        assert [t for t in page.get_by_role("alert").all_inner_texts() if t] == []
        page.close()
    assert problems == []
