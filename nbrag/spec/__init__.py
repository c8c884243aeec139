"""Pipelines as data: the registry of stages, the text grammar, and the views of one spec."""

from nbrag.spec.builder import SpecBuilder
from nbrag.spec.pipeline import PipelineSpec, StageSpec
from nbrag.spec.stages import (
    BuildContext,
    ModelStageOptions,
    StageDefinition,
    StageOptions,
    register_stage,
    stage_definition,
    stage_definitions,
    unregister_stage,
)

__all__ = [
    "BuildContext",
    "ModelStageOptions",
    "PipelineSpec",
    "SpecBuilder",
    "StageDefinition",
    "StageOptions",
    "StageSpec",
    "register_stage",
    "stage_definition",
    "stage_definitions",
    "unregister_stage",
]
