"""What all tests share: the environment they run in and the folder of public collections."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

# A shell that starts the tests in the background has them ignore Ctrl-C, which some tests press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine may be slow and shared: a slow example is no failure. Same examples in each run of
# the gate, new ones at the desk.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")

#: Settings of a user's machine that would change what a test sees.
_PREFIXES = ("NBRAG_", "LITELLM_", "OPENAI_", "ANTHROPIC_", "AZURE_", "OLLAMA_", "HF_", "OTEL_")
_KEPT = frozenset({"NBRAG_DATA"})


def data_folder_or_none() -> Path | None:
    """Return the folder of public test collections: NBRAG_DATA, else one beside the repository."""
    named = os.environ.get("NBRAG_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    return folder.resolve() if folder.is_dir() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of public collections, with the reason, where the collections are not."""
    if data_folder_or_none() is not None:
        return
    reason = "no public test collections here: set NBRAG_DATA to their folder"
    for item in items:
        if item.get_closest_marker("data") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public test collections; the test is skipped where there is none."""
    folder = data_folder_or_none()
    if folder is None:
        pytest.skip("no public test collections here: set NBRAG_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's folder."""
    return REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory):
    """Keep the user's keys, settings and notebook history out, and the tests' own files in.

    For the whole session, so that fixtures of every scope and all child processes see the same.
    """
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.startswith(_PREFIXES) and name not in _KEPT:
            patch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    patch.setenv("IPYTHONDIR", str(home / "ipython"))
    patch.setenv("JUPYTER_CONFIG_DIR", str(home / "jupyter"))
    patch.setenv("JUPYTER_DATA_DIR", str(home / "jupyter-data"))
    patch.setenv("NBRAG_CACHE", str(home / "cache"))
    # Nothing in a test may reach for the network.
    patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    patch.setenv("HF_HUB_OFFLINE", "1")
    # The debugger's start-up remark on frozen modules would be noise on each kernel's stderr.
    patch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    yield
    patch.undo()
