"""The notebooks, and what a reader sees of their outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def notebooks(repository: Path) -> Path:
    """The folder of the notebooks."""
    return repository / "notebooks"


@pytest.fixture(scope="session")
def shown_text() -> Callable[[Any], str]:
    """Gives all plain text that an executed notebook shows, in order."""

    def text(notebook: Any) -> str:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
        parts = [
            output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
        ]
        return "\n".join(parts)

    return text
