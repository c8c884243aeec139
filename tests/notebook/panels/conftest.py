"""A workspace for panels, and failures of their callbacks that fail the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrag.notebook.panels import close_panels
from nbrag.testing import HashEmbedder, panel_failures
from nbrag.workspace import Workspace

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
