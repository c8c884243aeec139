"""What is asked of the models while stages are edited: which of them are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbrag.errors import NbragError, SpecificationError
from nbrag.notebook.panels.messages import error_lines
from nbrag.notebook.panels.stages_state import StageEntry, first_values
from nbrag.spec import BuildContext, StageSpec, stage_definition, stage_definitions
from nbrag.spec.pipeline import make_stage
from nbrag.spec.stages import PipelineKind

__all__ = ["Models", "look_at_models"]


@dataclass(frozen=True, slots=True)
class Models:
    """What stages need that is not there.

    Attributes
    ----------
    missing
        By an entry's number, and for stages that are not in the pipeline by name: the lines that
        say what is missing and how to get it.
    asking
        Numbers of the entries that ask a chat model.
    """

    missing: dict[int | str, tuple[str, ...]]
    asking: frozenset[int]


async def look_at_models(
    kind: PipelineKind, entries: Sequence[StageEntry], context: BuildContext
) -> Models:
    """Build every stage there is, and each entry, to see what is missing; nothing is asked."""
    return await asyncio.to_thread(_look, kind, tuple(entries), context)


def _look(kind: PipelineKind, entries: Sequence[StageEntry], context: BuildContext) -> Models:
    missing: dict[int | str, tuple[str, ...]] = {}
    asking: set[int] = set()
    for name, definition in stage_definitions(kind).items():
        values = first_values(definition)
        if all(
            k in values or not f.is_required() for k, f in definition.options.model_fields.items()
        ):
            try:
                stage = make_stage(kind, name, values)
            except SpecificationError:
                continue  # its options have to be filled in first
            lines, _ = _build(kind, stage, context)
            if lines:
                missing[name] = lines
    for entry in entries:
        if entry.problem(kind) is None:
            lines, asks = _build(kind, entry.check(kind), context)
            if lines:
                missing[entry.number] = lines
            if asks and entry.enabled:
                asking.add(entry.number)
    return Models(missing, frozenset(asking))


def _build(
    kind: PipelineKind, stage: StageSpec, context: BuildContext
) -> tuple[tuple[str, ...], bool]:
    """Return what is missing for one stage, and whether it asks a chat model."""
    asked = False

    def chat() -> Any:
        nonlocal asked
        asked = True
        return context.chat()

    try:
        stage_definition(kind, stage.name).build(stage.options, replace(context, chat=chat))
    except NbragError as error:
        return error_lines(error), asked
    return (), asked
