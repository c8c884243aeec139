"""The registry of stages: what a pipeline may consist of.

A stage is declared where it is implemented: its file defines the options (a
:class:`StageOptions`), and calls :func:`register_stage`. By being registered it appears in cells,
builders, completion, help and panels. Packages bring their stages through the entry-point group
``nbrag.stages``; a notebook registers its own with the same call.
"""

from __future__ import annotations

import importlib.metadata
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from nbrag.errors import SpecificationError, did_you_mean

__all__ = [
    "BuildContext",
    "ModelStageOptions",
    "PipelineKind",
    "StageDefinition",
    "StageOptions",
    "StageRole",
    "allows_none",
    "is_list_option",
    "option_choices",
    "option_type_name",
    "register_stage",
    "stage_definition",
    "stage_definitions",
    "unregister_stage",
]

PipelineKind = Literal["retrieval", "ingestion"]
StageRole = Literal["query", "search", "result", "answer", "document", "chunker", "chunk"]

_GROUP = "nbrag.stages"
_ROLES: dict[str, tuple[str, ...]] = {
    "retrieval": ("query", "search", "result", "answer"),
    "ingestion": ("document", "chunker", "chunk"),
}


class StageOptions(BaseModel):
    """The options of a stage; unknown names and values out of bounds are refused.

    Give each field a ``description`` and its bounds: help texts, completion and panels are made
    from them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelStageOptions(StageOptions):
    """The options of a stage that asks a chat model."""

    time_limit: float = Field(
        default=60.0,
        gt=0,
        le=3_600,
        description="seconds after which the stage gives up and its input goes on",
    )


@dataclass(frozen=True)
class BuildContext:
    """What a stage may ask for when it is built.

    Attributes
    ----------
    embedder
        Gives the embedder of queries and chunks; a function, so that nothing is loaded before
        it is needed.
    chat
        Gives the chat client; raises one clear error when no model is configured.
    strict
        Whether a stage raises instead of degrading with a warning.
    other_chat
        Gives another chat client by its name (``openai/gpt-4o-mini``, ``local``), with the budget
        and the accounts of the first; None where only the name itself can be resolved.
    """

    embedder: Callable[[], Any]
    chat: Callable[[], Any]
    strict: bool = False
    other_chat: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class StageDefinition:
    """One kind of stage.

    Attributes
    ----------
    name
        The word that starts its line in a cell.
    kind
        The pipelines that it belongs to.
    role
        Its place: ``query``, ``search``, ``result`` or ``answer`` in retrieval; ``document``,
        ``chunker`` or ``chunk`` in ingestion. Stages run role by role, in the order in which they
        are written. A pipeline has one ``answer`` stage at the most.
    options
        The model of its options.
    build
        Makes the processor from options and context; for an ``answer`` stage, a function that
        makes the orchestrator from a retriever.
    method
        Name of the builder's method.
    summary
        One line for help and completion.
    single
        Whether a pipeline may have only one of it.
    """

    name: str
    kind: PipelineKind
    role: StageRole
    options: type[StageOptions]
    build: Callable[[Any, BuildContext], Any]
    method: str
    summary: str
    single: bool = False

    def describe(self) -> str:
        """Return the stage's help: its summary and one line per option."""
        lines = [f"{self.name}: {self.summary}"]
        for name, field in self.options.model_fields.items():
            default = "required" if field.is_required() else f"default {_shown(field.default)}"
            text = f"    {name}={option_type_name(field)} ({default}) {field.description or ''}"
            lines.append(text.rstrip())
        return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | frozenset):
        return ",".join(str(item) for item in value) or "none"
    return str(value)


_registry: dict[tuple[str, str], StageDefinition] = {}
_loading = threading.RLock()
_loaded = False


def register_stage(definition: StageDefinition, *, replace: bool = False) -> StageDefinition:
    """Make a stage known.

    Parameters
    ----------
    definition
        The stage.
    replace
        Whether a stage of the same name may be replaced (re-running a notebook cell).

    Raises
    ------
    SpecificationError
        When the name or the builder method is taken, or the role is not one of the kind's.
    """
    if definition.role not in _ROLES[definition.kind]:
        raise SpecificationError(
            f"stage '{definition.name}': {definition.kind} has no role '{definition.role}'.",
            hint=f"roles: {', '.join(_ROLES[definition.kind])}",
        )
    key = (definition.kind, definition.name)
    if not replace and key in _registry:
        raise SpecificationError(
            f"stage '{definition.name}' is registered already.", hint="pass replace=True"
        )
    for other in _registry.values():
        same_kind = other.kind == definition.kind and other.name != definition.name
        if same_kind and other.method == definition.method:
            raise SpecificationError(
                f"stage '{definition.name}': the method {definition.method} belongs to "
                f"'{other.name}'.",
                hint="choose another method name",
            )
    _registry[key] = definition
    return definition


def unregister_stage(kind: PipelineKind, name: str) -> None:
    """Forget a stage that a notebook or a test has registered."""
    _registry.pop((kind, name), None)


def _load() -> None:
    """Import the packages that declare stages, once."""
    global _loaded  # noqa: PLW0603 - the registry belongs to the process
    with _loading:
        if _loaded:
            return
        _loaded = True
        for entry in importlib.metadata.entry_points(group=_GROUP):
            entry.load()


def stage_definitions(kind: PipelineKind) -> dict[str, StageDefinition]:
    """Return the stages of one kind of pipeline by name, in order of role and name."""
    _load()
    roles = _ROLES[kind]
    found = [d for d in _registry.values() if d.kind == kind]
    found.sort(key=lambda d: (roles.index(d.role), d.name))
    return {d.name: d for d in found}


def stage_definition(kind: PipelineKind, name: str, *, line: int | None = None) -> StageDefinition:
    """Return one stage; an unknown name gives an error with the nearest known one."""
    known = stage_definitions(kind)
    if name not in known:
        raise SpecificationError(
            f"unknown stage '{name}'.",
            hint=did_you_mean(name, known, what="stages"),
            line=line,
            stage=name,
        )
    return known[name]


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a union, or the annotation itself."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def allows_none(field: FieldInfo) -> bool:
    """Return whether an option may be without a value."""
    return field.default is None or type(None) in _members(field.annotation)


def is_list_option(field: FieldInfo) -> bool:
    """Return whether an option takes several values, written with commas."""
    return any(
        typing.get_origin(member) in (tuple, list, frozenset, set)
        for member in _members(field.annotation)
    )


def option_choices(field: FieldInfo) -> tuple[str, ...]:
    """Return the values that an option may have, empty when they can't be listed."""
    found: list[str] = []
    for member in _members(field.annotation):
        if typing.get_origin(member) is Literal:
            found += [str(value) for value in typing.get_args(member)]
        elif member is bool:
            found += ["true", "false"]
        elif member is type(None):
            found.append("none")
        elif typing.get_origin(member) in (tuple, list, frozenset, set):
            inner = typing.get_args(member)[0]
            if typing.get_origin(inner) is Literal:
                found += [str(value) for value in typing.get_args(inner)]
    return tuple(dict.fromkeys(found)) if found != ["none"] else ()


def option_type_name(field: FieldInfo) -> str:
    """Return an option's type in a reader's words."""
    choices = option_choices(field)
    if choices:
        return "|".join(choices)
    names: Mapping[Any, str] = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true|false",
    }
    if is_list_option(field):
        return "a,b,..."
    return " or ".join(
        names.get(m, "none" if m is type(None) else "value") for m in _members(field.annotation)
    )
