"""Which panels there are, and how one is opened by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbrag.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from nbrag.notebook.panels.base import Panel
    from nbrag.workspace import Workspace

__all__ = ["PanelDefinition", "panel", "panel_definitions", "register_panel"]


@dataclass(frozen=True, slots=True)
class PanelDefinition:
    """One kind of panel.

    Attributes
    ----------
    name
        The word after ``%rag_panel``.
    summary
        One line for help and completion.
    home
        Module and class, as ``package.module:Class``; imported when the panel is opened.
    options
        Keyword arguments that the class takes besides the workspace.
    names
        What the words after the panel's name are, for error texts; empty when it takes none.
    """

    name: str
    summary: str
    home: str
    options: frozenset[str] = frozenset()
    names: str = ""


_HERE = "nbrag.notebook.panels"
_registry: dict[str, PanelDefinition] = {
    definition.name: definition
    for definition in (
        PanelDefinition(
            "eval",
            "Measure pipelines on judged questions, and see where they differ.",
            f"{_HERE}.eval_view:EvalPanel",
            frozenset({"collection", "cases"}),
            "pipelines",
        ),
        PanelDefinition(
            "ingest",
            "Read files into a collection: preview, run, stop, resume, retry what failed.",
            f"{_HERE}.ingest_view:IngestPanel",
            frozenset({"collection", "cell"}),
            "files, folders or globs",
        ),
        PanelDefinition(
            "map",
            "See a collection's chunks in two dimensions, and where a question falls.",
            f"{_HERE}.map_view:MapPanel",
            frozenset({"collection", "question", "by", "method"}),
            "",
        ),
        PanelDefinition(
            "pipeline",
            "Build a retrieval pipeline, with a live question beside it.",
            f"{_HERE}.pipeline_view:PipelinePanel",
            frozenset({"collection", "question", "cell", "file"}),
            "a pipeline",
        ),
        PanelDefinition(
            "search",
            "Compare two pipelines on a question, read and mark what they find.",
            f"{_HERE}.search_view:SearchPanel",
            frozenset({"collection", "question"}),
            "pipelines",
        ),
    )
}


def register_panel(definition: PanelDefinition, *, replace: bool = False) -> PanelDefinition:
    """Make a panel known to ``%rag_panel`` and ``nbrag.panel``.

    Parameters
    ----------
    definition
        The panel.
    replace
        Whether a panel of the same name may be replaced (re-running a notebook cell).

    Raises
    ------
    ConfigurationError
        When the name is taken.
    """
    if definition.name in _registry and not replace:
        raise ConfigurationError(
            f"there is a panel '{definition.name}' already.", hint="pass replace=True"
        )
    _registry[definition.name] = definition
    return definition


def panel_definitions() -> dict[str, PanelDefinition]:
    """Return the panels by name, in order."""
    return dict(sorted(_registry.items()))


def panel(
    name: str,
    workspace: Workspace | Callable[[], Workspace] | None = None,
    *names: str,
    **options: Any,
) -> Panel:
    """Open a panel; the last expression of a cell shows it.

    Opening one in a cell that is run again closes the one that the cell showed before.

    Parameters
    ----------
    name
        ``pipeline``, ``search``, ...; see :func:`panel_definitions`.
    workspace
        What it works on, or a function that gives it each time it is needed; None for the
        workspace of the magics.
    names
        Pipelines: the one to be edited, or those to be compared.
    options
        The panel's own, such as ``collection`` and ``question``.

    Raises
    ------
    ConfigurationError
        When there is no such panel, or it does not take an option.

    Examples
    --------
    >>> nbrag.panel("search", workspace, "plain", "support", collection="docs")  # doctest: +SKIP
    """
    if name not in _registry:
        raise ConfigurationError(
            f"there is no panel '{name}'.", hint=did_you_mean(name, _registry, what="panels")
        )
    definition = _registry[name]
    if names and not definition.names:
        raise ConfigurationError(f"the panel '{name}' takes no names.", hint=definition.summary)
    for option in options:
        if option not in definition.options:
            raise ConfigurationError(
                f"the panel '{name}' has no option '{option}'.",
                hint=did_you_mean(option, definition.options, what="options"),
            )
    if workspace is None:
        from nbrag.notebook.session import current_workspace

        workspace = current_workspace
    module, _, kind = definition.home.partition(":")
    made: Panel = getattr(import_module(module), kind)(workspace, *names, **options)
    return made
