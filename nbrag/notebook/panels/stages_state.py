"""A list of stages that is being edited: enabled or not, with options that may not fit yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from traitlets import Dict, Int, Set, Tuple, Unicode

from nbrag.errors import SpecificationError
from nbrag.notebook.panels.state import PanelState
from nbrag.spec import PipelineSpec, StageDefinition, StageSpec, stage_definition, stage_definitions
from nbrag.spec.pipeline import make_stage
from nbrag.spec.stages import PipelineKind, option_choices

__all__ = ["StageEntry", "StageListState", "first_values"]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One stage as it is being edited.

    Attributes
    ----------
    name
        The stage's name.
    values
        The options that were set; they are checked by :meth:`check`.
    enabled
        Whether it is part of the pipeline; one that is not keeps its options.
    number
        Tells it from others, wherever it is moved.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    number: int = field(default_factory=lambda: next(_numbers))

    def check(self, kind: PipelineKind) -> StageSpec:
        """Return the stage with checked options.

        Raises
        ------
        SpecificationError
            In the words that a cell's error has, with the key where there is one.
        """
        return make_stage(kind, self.name, self.values)

    def problem(self, kind: PipelineKind) -> SpecificationError | None:
        """Return what is wrong with the options."""
        try:
            self.check(kind)
        except SpecificationError as error:
            return error
        return None


def first_values(definition: StageDefinition) -> dict[str, Any]:
    """Return a value for each option that needs one and has choices: the first of them."""
    return {
        name: option_choices(info)[0]
        for name, info in definition.options.model_fields.items()
        if info.is_required() and option_choices(info)
    }


class StageListState(PanelState):
    """The stages of a pipeline in the making.

    Parameters
    ----------
    kind
        ``retrieval`` or ``ingestion``.

    Attributes
    ----------
    name
        The pipeline's name.
    stages
        The :class:`StageEntry` of each stage, in order.
    selected
        Number of the entry whose options are shown; 0 for none.
    missing
        By a stage's name, or an entry's number, the lines that say which model it lacks.
    asking
        Numbers of the entries that ask a chat model.
    """

    name = Unicode("pipeline")
    stages = Tuple()
    selected = Int(0)
    missing: Any = Dict()
    asking: Any = Set()

    def __init__(self, kind: PipelineKind) -> None:
        super().__init__()
        self.kind: PipelineKind = kind

    # Looking -----------------------------------------------------------------------------

    def entry(self, number: int | None = None) -> StageEntry | None:
        """Return an entry by its number; by default the selected one."""
        wanted = self.selected if number is None else number
        return next((entry for entry in self.stages if entry.number == wanted), None)

    def lacks(self, entry: StageEntry) -> tuple[str, ...]:
        """Return the lines that say which model an entry lacks."""
        lines: tuple[str, ...] = self.missing.get(entry.number, ())
        return lines

    def label(self, entry: StageEntry) -> str:
        """Return an entry's line in the list; what is wrong with it is said in words."""
        place = 1 + self.stages.index(entry)
        notes = [] if entry.enabled else ["off"]
        if entry.problem(self.kind) is not None:
            notes.append("check its options")
        if self.lacks(entry):
            notes.append("its model is missing")
        return f"{place}. {entry.name}" + (f" ({', '.join(notes)})" if notes else "")

    def spec(self, **place: Any) -> PipelineSpec:
        """Return the pipeline of the enabled stages.

        Raises
        ------
        SpecificationError
            When a stage's options don't fit, or a stage stands twice that may not.
        """
        stages = tuple(entry.check(self.kind) for entry in self.stages if entry.enabled)
        return PipelineSpec(self.kind, self.name, stages, **place)

    # Editing -----------------------------------------------------------------------------

    def add(self, name: str) -> None:
        """Add a stage behind those that run before it, and select it."""
        definition = stage_definition(self.kind, name)
        if definition.single and any(e.name == name and e.enabled for e in self.stages):
            raise SpecificationError(
                f"stage '{name}' stands there already.", hint="a pipeline has it once", stage=name
            )
        order = list(stage_definitions(self.kind).values())
        roles = list(dict.fromkeys(d.role for d in order))
        rank = roles.index(definition.role)
        earlier = [
            place
            for place, entry in enumerate(self.stages, start=1)
            if roles.index(stage_definition(self.kind, entry.name).role) <= rank
        ]
        place = max(earlier, default=0)
        made = StageEntry(name, first_values(definition))
        self.stages = (*self.stages[:place], made, *self.stages[place:])
        self.selected = made.number

    def remove(self) -> None:
        """Remove the selected stage, and select its neighbour."""
        entry = self._chosen()
        place = self.stages.index(entry)
        left = (*self.stages[:place], *self.stages[place + 1 :])
        self.stages = left
        self.selected = left[min(place, len(left) - 1)].number if left else 0

    def move(self, by: int) -> None:
        """Move the selected stage up (-1) or down (1)."""
        entry = self._chosen()
        place = self.stages.index(entry)
        others = [other for other in self.stages if other is not entry]
        others.insert(max(place + by, 0), entry)
        self.stages = tuple(others)

    def switch(self) -> None:
        """Take the selected stage out of the pipeline, or back into it."""
        self._change(lambda entry: replace(entry, enabled=not entry.enabled))

    def set_option(self, key: str, value: Any) -> None:
        """Set an option of the selected stage; what does not fit is kept and told."""
        self._change(lambda entry: replace(entry, values={**entry.values, key: value}))

    def clear_option(self, key: str) -> None:
        """Let an option of the selected stage have its default again."""
        self._change(
            lambda entry: replace(entry, values={k: v for k, v in entry.values.items() if k != key})
        )

    def load(self, spec: PipelineSpec) -> None:
        """Take over a pipeline.

        Raises
        ------
        SpecificationError
            When it is of another kind, or holds processor objects.
        """
        if spec.kind != self.kind:
            raise SpecificationError(
                f"that is a pipeline for {spec.kind}, not for {self.kind}.",
                hint="an ingestion starts with %%rag_ingest, a retrieval with %%rag_pipeline",
            )
        spec.to_body()
        with self.hold_trait_notifications():
            self.name = spec.name
            self.stages = tuple(StageEntry(s.name, s.changed_options()) for s in spec.stages)
            self.selected = self.stages[0].number if self.stages else 0

    def _chosen(self) -> StageEntry:
        entry = self.entry()
        if entry is None:
            raise SpecificationError("no stage is chosen.", hint="choose one in the list")
        return entry

    def _change(self, change: Callable[[StageEntry], StageEntry]) -> None:
        chosen = self._chosen()
        changed = change(chosen)
        self.stages = tuple(changed if e is chosen else e for e in self.stages)
