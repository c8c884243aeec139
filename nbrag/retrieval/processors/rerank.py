"""The stage ``rerank``: a second look at the order of the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from nbrag.spec import BuildContext, ModelStageOptions, StageDefinition, register_stage

if TYPE_CHECKING:
    from nbrag.retrieval.processors.llm_reranker import LlmReranker

__all__ = ["RerankOptions"]


class RerankOptions(ModelStageOptions):
    """What looks again, at how many results, and how many are kept."""

    model: Literal["llm"] = Field(description="llm: the chat model ranks passages in a list")
    keep: int | None = Field(
        default=None, ge=1, le=1_000, description="results that are kept; none keeps all"
    )
    candidates: int = Field(
        default=20,
        ge=2,
        le=1_000,
        description="results that are reranked; more than that follow in their old order",
    )
    window: int = Field(default=20, ge=2, le=100, description="passages that a model sees at once")
    step: int = Field(
        default=10, ge=1, le=99, description="how far the window moves up; less than window"
    )
    words: int = Field(
        default=300, ge=10, le=10_000, description="words of each passage that the model sees"
    )

    @model_validator(mode="after")
    def _windows_overlap(self) -> Self:
        if self.step >= self.window:
            raise ValueError("step must be less than window, or nothing could rise past a window")
        return self


def _reranker(options: RerankOptions, context: BuildContext) -> LlmReranker:
    """Return the stage that a choice of model stands for."""
    from nbrag.retrieval.processors.llm_reranker import LlmReranker

    return LlmReranker(context.chat(), options, strict=context.strict)


register_stage(
    StageDefinition(
        name="rerank",
        kind="retrieval",
        role="result",
        options=RerankOptions,
        build=_reranker,
        method="use_reranker",
        summary="A second look at the order of the best results.",
    )
)
