"""The fluent builder: one method per registered stage, over the one specification."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Self

from nbrag.errors import did_you_mean
from nbrag.spec.pipeline import PipelineSpec
from nbrag.spec.stages import StageDefinition, stage_definitions

__all__ = ["SpecBuilder"]


class SpecBuilder:
    """Builds a pipeline stage by stage.

    Each registered stage is a method (``use_...``) whose keyword arguments are the stage's
    options. Every call returns a new builder, so that a common beginning can be shared.

    Parameters
    ----------
    spec
        What has been built so far.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec

    @property
    def spec(self) -> PipelineSpec:
        """The specification built so far."""
        return self._spec

    def _with_spec(self, spec: PipelineSpec) -> Self:
        """Return a builder like this one over another specification."""
        return type(self)(spec)

    def stage(self, name: str, **options: Any) -> Self:
        """Add a stage by its name."""
        return self._with_spec(self._spec.with_stage(name, **options))

    def _methods(self) -> dict[str, StageDefinition]:
        return {d.method: d for d in stage_definitions(self._spec.kind).values()}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the method of a registered stage."""
        if name.startswith("_"):
            raise AttributeError(name)
        methods = self._methods()
        if name not in methods:
            raise AttributeError(
                f"{type(self).__name__} has no method '{name}': {did_you_mean(name, methods)}"
            )
        definition = methods[name]

        def add(**options: Any) -> SpecBuilder:
            return self.stage(definition.name, **options)

        add.__name__ = name
        add.__qualname__ = f"{type(self).__name__}.{name}"
        add.__doc__ = definition.describe()
        add.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    key,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if info.is_required() else info.default,
                    annotation=info.annotation,
                )
                for key, info in definition.options.model_fields.items()
            ]
        )
        return add

    def __dir__(self) -> list[str]:
        """List the stages' methods too, for completion."""
        return sorted({*super().__dir__(), *self._methods()})
