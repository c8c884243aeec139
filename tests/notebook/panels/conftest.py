"""A workspace for panels, and failures of their callbacks that fail the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrag.notebook.panels import close_panels
from nbrag.testing import HashEmbedder, panel_failures
from nbrag.workspace import Workspace

from .lab import LabPage, browser_path, served_lab

PAGES = {
    "handbook/backups.md": "# Backups\n\nBackups are kept for 35 days in the EU region.\n\n"
    "## Restoring\n\nA backup is restored within four hours.\n",
    "handbook/prices.md": "# Prices\n\nThe small plan costs 5 dollars each month.\n",
    "handbook/login.md": "# Login\n\nPeople sign in with a passkey or with a password.\n",
}
TEAMS = {"backups": ("operations", 3), "prices": ("sales", 2), "login": ("security", 1)}


@pytest.fixture(autouse=True)
def failures() -> Iterator[list[BaseException]]:
    """What callbacks fail with; a test that expects one takes it out."""
    with panel_failures() as seen:
        yield seen
    close_panels()


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    """Three small documents with metadata in the collection ``docs``."""
    with Workspace(embedder=HashEmbedder()) as made:
        made.ingest(
            "docs",
            [
                {
                    "id": uri,
                    "text": text,
                    "team": TEAMS[Path(uri).stem][0],
                    "level": TEAMS[Path(uri).stem][1],
                }
                for uri, text in PAGES.items()
            ],
        )
        yield made


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the notebooks."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="session")
def lab_address(lab_folder: Path) -> Iterator[str]:
    """A running JupyterLab."""
    with served_lab(lab_folder) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running Chromium, the machine's own; while it is there, no test can be a coroutine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=browser_path(), args=flags)
        yield running
        running.close()


@pytest.fixture
def lab(
    browser: Any, lab_address: str, lab_folder: Path, request: pytest.FixtureRequest
) -> Iterator[LabPage]:
    """A page of its own; at the end neither console nor panel may have complained."""
    page = LabPage(browser, lab_address, lab_folder)
    yield page
    page.page.screenshot(path=lab_folder / f"{request.node.name}.png")
    problems, alerts = list(page.problems), page.alerts()
    page.close()
    assert problems == []
    assert alerts == []
