"""README, CI, binder and changelog agree with pyproject.toml and with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

NOTEBOOK_COMMAND = (
    "pip install . && papermill notebooks/quickstart.ipynb quickstart-executed.ipynb "
    "--cwd notebooks"
)
TEST_COMMAND = "pip install '.[test]' && pytest"
TOP_LEVEL = frozenset(
    {
        ".ci",
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "binder",
        "nbrag",
        "notebooks",
        "pyproject.toml",
        "tests",
    }
)


def requirements(lines: list[str]) -> dict[str, Requirement]:
    """Return the requirements of a file's lines by name."""
    texts = [line.split("#")[0].strip() for line in lines]
    return {(parsed := Requirement(text)).name: parsed for text in texts if text}


@pytest.mark.parametrize("command", [NOTEBOOK_COMMAND, TEST_COMMAND])
def test_readme_shows_each_command_once_on_a_line_of_its_own(
    repository: Path, command: str
) -> None:
    lines = (repository / "README.md").read_text("utf-8").splitlines()
    assert lines.count(command) == 1


@pytest.mark.parametrize(
    ("variable", "command"),
    [("notebook_command", NOTEBOOK_COMMAND), ("test_command", TEST_COMMAND)],
)
def test_ci_reads_the_command_from_the_readme_and_runs_it(
    repository: Path, variable: str, command: str
) -> None:
    script = (repository / ".ci" / "run").read_text("utf-8")
    assignment = re.search(rf'^{variable}="\$\((grep .*README\.md)\)"$', script, re.MULTILINE)
    assert assignment is not None
    found = subprocess.run(
        ["bash", "-c", assignment.group(1)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found == command + "\n"
    assert re.search(rf'^step .* in_environment \w+ "\${variable}"$', script, re.MULTILINE)


def test_ci_runs_the_check_step(repository: Path) -> None:
    script = (repository / ".ci" / "run").read_text("utf-8")
    assert re.search(r"^step .* '\.ci/check'$", script, re.MULTILINE)
    check = (repository / ".ci" / "check").read_text("utf-8")
    for tool in (
        "ruff check",
        "ruff format --check",
        "mypy --strict nbrag",
        "interrogate",
        "pytest",
    ):
        assert re.search(rf"^{re.escape(tool)}", check, re.MULTILINE), tool


@pytest.mark.parametrize("name", [".ci/run", ".ci/check", "binder/postBuild", "binder/start"])
def test_scripts_can_be_run_and_parse(repository: Path, name: str) -> None:
    path = repository / name
    assert os.access(path, os.X_OK)
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n", str(path)], check=True)


@pytest.mark.parametrize("name", [".ci/run", ".ci/check", "binder/postBuild"])
def test_scripts_stop_at_the_first_failure(repository: Path, name: str) -> None:
    assert "\nset -euo pipefail\n" in (repository / name).read_text("utf-8")


def test_binder_s_packages_satisfy_the_project(repository: Path, project: dict[str, Any]) -> None:
    text = (repository / "binder" / "requirements.txt").read_text("utf-8")
    pinned = requirements(text.splitlines())
    needed = requirements(project["project"]["dependencies"])
    assert "jupyterlab" in pinned
    for name, requirement in pinned.items():
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", name
        if name in needed:
            assert specifier.version in needed[name].specifier, name


def test_binder_s_python_is_one_that_the_project_names(
    repository: Path, project: dict[str, Any]
) -> None:
    stated = (repository / "binder" / "runtime.txt").read_text("utf-8").strip()
    version = stated.removeprefix("python-")
    assert stated == f"python-{version}"
    assert version in SpecifierSet(project["project"]["requires-python"])
    assert f"Programming Language :: Python :: {version}" in project["project"]["classifiers"]


def test_binder_installs_the_project_and_loads_the_model_once(
    repository: Path, project: dict[str, Any]
) -> None:
    script = (repository / "binder" / "postBuild").read_text("utf-8")
    install = re.search(r"^pip install .*'\.\[([a-z,]+)\]'$", script, re.MULTILINE)
    assert install is not None
    assert set(install[1].split(",")) <= set(project["project"]["optional-dependencies"])
    python = script.split("<<'PYTHON'\n")[1].split("\nPYTHON")[0]
    assert "default_embedder()" in python
    compile(python, "postBuild", "exec")


def test_binder_s_start_hands_over(repository: Path) -> None:
    script = (repository / "binder" / "start").read_text("utf-8")
    assert script.rstrip().endswith('exec "$@"')


def test_the_changelog_has_the_version(repository: Path, project: dict[str, Any]) -> None:
    version = project["project"]["version"]
    text = (repository / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## {re.escape(version)}( |$)", text, re.MULTILINE)


def test_only_the_agreed_names_stand_at_the_top(
    tracked_files: list[Path], repository: Path
) -> None:
    tops = {path.relative_to(repository).parts[0] for path in tracked_files}
    assert tops - TOP_LEVEL == set()


def test_nothing_private_is_in_the_repository(tracked_files: list[Path], repository: Path) -> None:
    """No file tells where it was made, nor from which mirror its packages came."""
    private = re.compile(
        # Spelled in pieces, so that this file passes its own test.
        rb"/ro"
        rb"ot/|/wo"
        rb"rk/|/home/[a-z]+/|/tm"
        rb"p/[a-z]|/Us"
        rb"ers/[A-Za-z]"
        rb"|index"
        rb"-url|trusted"
        rb"-host"
    )
    found = []
    for path in tracked_files:
        content = path.read_bytes()
        if b"\0" in content[:4096]:
            continue
        for line in content.splitlines():
            if match := private.search(line):
                found.append(f"{path.relative_to(repository)}: {match.group().decode()}")
                break
    assert found == []
