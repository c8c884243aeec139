"""A real JupyterLab and a real browser, driven the way a person does it: by names and keys."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat

#: Seconds until the server answers, and until a cell has run.
PATIENCE = 120
_BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "apputils-extension/themes": {"theme": "JupyterLab Light"},
    "docmanager-extension/plugin": {"autosave": False},
    "completer-extension/manager": {"autoCompletion": False},
    # All cells are drawn, also those outside of the window.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


def browser_path() -> str | None:
    """Return the machine's Chromium; None where there is none."""
    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


@contextlib.contextmanager
def served_lab(folder: Path) -> Iterator[str]:
    """Run a JupyterLab over a folder, with settings of its own; yield its address."""
    own = folder / ".jupyter-own"
    for plugin, values in _SETTINGS.items():
        place = own / "lab" / "user-settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(values), "utf-8")
    environment = {name: v for name, v in os.environ.items() if not name.startswith("JUPYTER")}
    environment |= {
        "JUPYTER_CONFIG_DIR": str(own / "config"),
        "JUPYTER_DATA_DIR": str(own / "data"),
        "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(own / "lab" / "user-settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(own / "lab" / "workspaces"),
        "IPYTHONDIR": str(own / "ipython"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    log = (folder / "lab.log").open("wb")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        yield _address(own / "runtime", server, folder / "lab.log")
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _address(runtime: Path, server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise AssertionError(f"JupyterLab did not start: {log.read_text('utf-8')[-2000:]}")
        for file in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):
                return str(json.loads(file.read_text("utf-8"))["url"]).rstrip("/")
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start in time: {log.read_text('utf-8')[-2000:]}")


class LabPage:
    """One notebook in the browser.

    Attributes
    ----------
    page
        The Playwright page.
    problems
        What the console complained of, and requests that left this machine.
    """

    def __init__(self, browser: Any, address: str, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self.page = browser.new_page(viewport={"width": 1360, "height": 1500})
        self.page.set_default_timeout(PATIENCE * 1000)
        self.problems: list[str] = []
        self._name = ""
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._see)

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def _see(self, request: Any) -> None:
        place = urlsplit(request.url)
        far = place.hostname not in {"127.0.0.1", "localhost"}
        if far and place.scheme in {"http", "https", "ws", "wss"}:
            self.problems.append(f"a request left the machine: {request.url}")

    def open(self, name: str, *cells: str) -> None:
        """Write a notebook, open it alone, and run all of its cells."""
        self._name = name
        made = [nbformat.v4.new_code_cell(source) for source in cells]
        notebook = nbformat.v4.new_notebook(cells=made)
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3 (ipykernel)",
        }
        nbformat.write(notebook, self._folder / f"{name}.ipynb")
        self.page.goto(f"{self._address}/doc/tree/{name}.ipynb?reset")
        first = self.page.locator(".jp-CodeCell .cm-content").first
        first.wait_for()
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        first.click()
        for _ in cells:
            self.page.keyboard.press("Shift+Enter")

    def run_cell(self, number: int) -> None:
        """Run one cell again, by keyboard."""
        self.page.locator(".jp-CodeCell .cm-content").nth(number).click()
        self.page.keyboard.press("Control+Enter")

    def by_label(self, label: str) -> Any:
        """Return the control of that name."""
        return self.page.get_by_label(label, exact=True)

    def button(self, words: str) -> Any:
        """Return the button with these words."""
        return self.page.get_by_role("button", name=words, exact=True)

    def fill(self, label: str, value: str) -> None:
        """Write into a field and leave it."""
        self.by_label(label).fill(value)
        self.page.keyboard.press("Tab")

    def alerts(self) -> list[str]:
        """Return the errors that are shown."""
        return [text for text in self.page.get_by_role("alert").all_inner_texts() if text]

    def tab_to(self, name: str, *, most: int = 80) -> None:
        """Press the tab key until something of that name has the focus."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.focused() == name:
                return
        raise AssertionError(f"the tab key never came to '{name}'; it is at {self.focused()}")

    def focused(self) -> str:
        """Return the accessible name of what has the focus."""
        return str(
            self.page.evaluate(
                """() => {
                    const e = document.activeElement;
                    if (e.labels && e.labels.length) return e.labels[0].textContent.trim();
                    return (e.getAttribute('aria-label') || e.textContent || '').trim();
                }"""
            )
        )

    def save(self) -> Any:
        """Save the notebook by keyboard, and return it as it stands in the file."""
        file = self._folder / f"{self._name}.ipynb"
        before = file.stat().st_mtime_ns
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.page.wait_for_timeout(100)
            # The file is there before all of it is written.
            with contextlib.suppress(nbformat.reader.NotJSONError):
                if file.stat().st_mtime_ns != before:
                    return nbformat.read(file, as_version=4)
        raise AssertionError("the notebook was not saved")

    def close(self) -> None:
        """End the kernel, which would take its share of the machine from the next test."""
        self.page.evaluate(
            """async () => {
                const token = (document.cookie.match(/_xsrf=([^;]+)/) || [])[1] || '';
                const found = await (await fetch('/api/sessions')).json();
                for (const session of found) {
                    const place = '/api/sessions/' + session.id;
                    await fetch(place, {method: 'DELETE', headers: {'X-XSRFToken': token}});
                }
            }"""
        )
        self.page.close()
