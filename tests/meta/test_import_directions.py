"""Arrows between packages go down only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

#: Lowest first. What stands on one line is independent of each other.
LAYERS = (
    ("errors", "rendering"),
    ("types",),
    ("protocols", "background"),
    ("tracing",),
    ("stores", "models", "spec"),
    ("ingestion", "retrieval"),
    ("orchestration", "evaluation"),
    ("chat_models",),
    ("asking",),
    ("workspace",),
    ("model_list", "maps"),
    ("notebook", "command_line"),
    # Test tools may use everything, and only tests use them.
    ("testing",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported_modules(module: str, source: str, *, package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of every import: in functions and TYPE_CHECKING too."""
    parents = module.split(".") if package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
            == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def upward_arrows(sources: dict[str, str]) -> list[str]:
    """Return one line per import that goes up or sideways."""
    packages = {name.rpartition(".")[0] for name in sources}
    found = []
    for module, source in sources.items():
        parts = module.split(".")
        if len(parts) == 1:
            continue  # the public face names everything
        here = parts[1]
        for line, target in imported_modules(module, source, package=module in packages):
            names = target.split(".")
            if names[0] != "nbrag":
                continue
            there = names[1] if len(names) > 1 else ""
            if there == here:
                continue
            if there not in RANK:
                # The public face: what stands high may use it, below it would be a circle.
                if RANK[here] < RANK["notebook"]:
                    found.append(f"{module}:{line} imports {target} from the public face")
            elif RANK[there] >= RANK[here]:
                found.append(f"{module}:{line} imports {target}")
    return found


def test_every_module_has_a_layer(sources: dict[str, str]) -> None:
    tops = {name.split(".")[1] for name in sources if "." in name}
    assert tops - set(RANK) == set()


def test_imports_go_down_only(sources: dict[str, str]) -> None:
    assert upward_arrows(sources) == []


@pytest.mark.parametrize(
    "source",
    [
        "import nbrag.workspace",
        "from nbrag.retrieval.pipeline import RetrievalPipeline",
        "def late():\n    from nbrag.notebook import magics",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nbrag import workspace",
        "from ..workspace import Workspace",
        "from importlib import import_module\nimport_module('nbrag.ingestion')",
        "from nbrag import Workspace",
        "import nbrag.models",  # a neighbour on the same line
    ],
)
def test_an_upward_arrow_is_seen(source: str) -> None:
    assert len(upward_arrows({"nbrag": "", "nbrag.stores": "", "nbrag.stores.memory": source})) == 1


def test_downward_arrows_and_own_package_are_fine() -> None:
    source = "from nbrag.types import Chunk\nfrom nbrag.stores.filters import Filter\nimport numpy"
    assert upward_arrows({"nbrag": "", "nbrag.stores": "", "nbrag.stores.memory": source}) == []
