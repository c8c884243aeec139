"""The package's form: public names, size of files, declared dependencies."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

#: Import name to distribution, where the two differ.
DISTRIBUTIONS = {
    "IPython": "ipython",
    "Stemmer": "pystemmer",
    "bs4": "beautifulsoup4",
    "docx": "python-docx",
    "markdown_it": "markdown-it-py",
    "mdit_py_plugins": "mdit-py-plugins",
    "opentelemetry": "opentelemetry-api",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "frontmatter": "python-frontmatter",
    "duckdb_extensions": "duckdb-extensions",
}
#: Imported only for objects that the user made with that package: never needed otherwise.
GUESTS = frozenset({"pandas", "polars", "google"})
#: Comes with litellm, whose failures the tests imitate; the reference implementation, which only
#: the script that made the tiny models needs.
TEST_GUESTS = frozenset({"httpx", "torch", "transformers"})
#: Called by IPython, not by users.
HOOKS = frozenset({"load_ipython_extension", "unload_ipython_extension"})
LONGEST = 500


def declared(project: dict[str, Any]) -> set[str]:
    """Return the names of all dependencies that users can install, normalised."""
    extras = project["project"]["optional-dependencies"]
    lines = [
        *project["project"]["dependencies"],
        *(line for name in extras if name not in {"test", "dev"} for line in extras[name]),
    ]
    return {normalised(re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0]) for line in lines}


def normalised(name: str) -> str:
    """Return a distribution's name in the index's own spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_file_is_longer_than_it_may_be(sources: dict[str, str]) -> None:
    long = {name: text.count("\n") for name, text in sources.items()}
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}


def test_public_names_are_exactly_all(sources: dict[str, str]) -> None:
    """Every public module has ``__all__``, which names what is there and all that is public."""
    wrong = {}
    for name, source in sources.items():
        if any(part.startswith("_") for part in name.split(".")):
            continue
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None)
        defined = public_definitions(source) - HOOKS
        if names is None:
            if defined:
                wrong[name] = f"no __all__, but defines {sorted(defined)}"
            continue
        missing = [exported for exported in names if not hasattr(module, exported)]
        if missing:
            wrong[name] = f"__all__ names what is not there: {missing}"
        elif len(names) != len(set(names)):
            wrong[name] = f"__all__ names something twice: {list(names)}"
        elif hidden := sorted(defined - set(names)):
            wrong[name] = f"public by name, but not in __all__: {hidden}"
    assert wrong == {}


def public_definitions(source: str) -> set[str]:
    """Return the classes and functions of a module's top level that have a public name."""
    return {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    }


def test_public_definitions_are_seen() -> None:
    source = "class Shown: ...\nclass _Hidden: ...\nasync def seen(): ...\nvalue = 1\n"
    assert public_definitions(source) == {"Shown", "seen"}


def test_every_import_is_declared(sources: dict[str, str], project: dict[str, Any]) -> None:
    """What nbrag imports, an installation of nbrag brings, with or without an extra."""
    known = declared(project)
    undeclared = {}
    for name, source in sources.items():
        for top in third_party_imports(source):
            if normalised(DISTRIBUTIONS.get(top, top)) not in known and top not in GUESTS:
                undeclared.setdefault(top, name)
    assert undeclared == {}


def test_the_test_extra_brings_what_tests_import(repository: Path, project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    known = declared(project) | {
        normalised(re.split(r"[\[<>=]", line, maxsplit=1)[0]) for line in extras["test"]
    }
    undeclared = {}
    for path in sorted((repository / "tests").rglob("*.py")):
        for top in third_party_imports(path.read_text("utf-8")):
            if normalised(DISTRIBUTIONS.get(top, top)) not in known and top not in TEST_GUESTS:
                undeclared.setdefault(top, path.name)
    assert undeclared == {}


def third_party_imports(source: str) -> set[str]:
    """Return the top-level names of imported packages that are neither Python's nor nbrag's."""
    tops = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            tops.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            tops.add(node.module.split(".")[0])
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", "") == "importorskip"
            and isinstance(node.args[0], ast.Constant)
        ):
            # What a test is skipped without, the test run must have.
            tops.add(str(node.args[0].value).split(".")[0])
    return tops - sys.stdlib_module_names - {"nbrag", "tests"}


def test_third_party_imports_are_seen_wherever_they_stand() -> None:
    source = (
        "import os, numpy as np\ndef f():\n    from lxml import etree\n    import nbrag.types\n"
        "pytest.importorskip('yaml.nodes')"
    )
    assert third_party_imports(source) == {"numpy", "lxml", "yaml"}


def test_a_hint_to_install_an_extra_names_one_that_exists(
    sources: dict[str, str], project: dict[str, Any]
) -> None:
    extras = project["project"]["optional-dependencies"]
    named = {extra: module for module, source in sources.items() for extra in hinted_extras(source)}
    assert {extra: module for extra, module in named.items() if extra not in extras} == {}


def hinted_extras(source: str) -> set[str]:
    """Return the extras that a module's MissingDependency errors tell people to install."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MissingDependency":
            named = [keyword.value for keyword in node.keywords if keyword.arg == "extra"]
            found.update(
                argument.value
                for argument in [*node.args[2:3], *named]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )
    return found


def test_hinted_extras_are_seen() -> None:
    source = (
        "raise MissingDependency('a', 'b', 'one')\nMissingDependency('a', 'b', extra='two')\n"
        "MissingDependency('a', 'b')"
    )
    assert hinted_extras(source) == {"one", "two"}


def test_every_pin_gives_its_reason(repository) -> None:
    """Each exact version in pyproject.toml stands under a comment that says why."""
    lines = (repository / "pyproject.toml").read_text("utf-8").splitlines()
    bare = []
    for number, line in enumerate(lines):
        if re.match(r'\s*"[A-Za-z0-9_.-]+==', line):
            above = number - 1
            while re.match(r'\s*"', lines[above]):
                above -= 1
            if not lines[above].lstrip().startswith("#") and "#" not in lines[above - 1]:
                bare.append(line.strip())
    assert bare == []


@pytest.mark.parametrize("extra", ["test", "dev"])
def test_extras_for_the_project_itself_exist(project: dict[str, Any], extra: str) -> None:
    assert project["project"]["optional-dependencies"][extra]
