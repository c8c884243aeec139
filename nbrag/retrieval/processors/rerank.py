"""The stage ``rerank``: a second look at the order of the results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, field_validator, model_validator

from nbrag.spec import BuildContext, ModelStageOptions, StageDefinition, register_stage

if TYPE_CHECKING:
    from nbrag.protocols import RetrievalResultProcessor

__all__ = ["RerankOptions", "reranker_name"]

#: What a path or a hub name has and no plain word: the stage's own words stay apart from folders.
_PLACE = re.compile(r"[/\\]|\.onnx$|^[.~]")
#: Options that mean something to one of the two kinds of model only.
_OF_CHAT_MODELS = ("window", "step", "words")
_OF_CROSS_ENCODERS = (
    "tokenizer",
    "file",
    "mix",
    "threshold",
    "windows",
    "headings",
    "max_tokens",
    "outputs",
    "batch_tokens",
    "threads",
    "providers",
)


def reranker_name(model: str | Path) -> str:
    """Return where a cross-encoder is as the option ``model`` has it: ``./`` before a bare name."""
    text = str(model)
    return text if _PLACE.search(text) else f"./{text}"


class RerankOptions(ModelStageOptions):
    """What looks again, at how many results, and how many are kept."""

    model: Literal["llm"] | str = Field(  # noqa: PYI051 - the literal is what completion offers
        description="llm: the chat model ranks passages in a list; else a cross-encoder: a folder "
        "with model.onnx and tokenizer.json (./name), an .onnx file, or a hub name (owner/name)",
    )
    keep: int | None = Field(
        default=None, ge=1, le=1_000, description="results that are kept; none keeps all"
    )
    candidates: int = Field(
        default=20,
        ge=2,
        le=1_000,
        description="results that are reranked; more than that follow in their old order",
    )
    window: int = Field(
        default=20, ge=2, le=100, description="passages that a chat model sees at once"
    )
    step: int = Field(
        default=10, ge=1, le=99, description="how far the window moves up; less than window"
    )
    words: int = Field(
        default=300, ge=10, le=10_000, description="words of each passage that a chat model sees"
    )
    mix: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="cross-encoder: its share of the score, the rest being the search's; none: "
        "its score alone",
    )
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="cross-encoder: results whose own score, 0 to 1, is less are dropped",
    )
    windows: int = Field(
        default=1,
        ge=1,
        le=100,
        description="cross-encoder: windows in which a passage that is too long is read, the best "
        "one counting; 1 reads its beginning",
    )
    headings: bool = Field(
        default=True, description="cross-encoder: title and headings before each passage"
    )
    tokenizer: str | None = Field(
        default=None, description="cross-encoder: tokenizer.json, where it is not beside the model"
    )
    file: str | None = Field(
        default=None, description="cross-encoder: its graph, e.g. onnx/model_quantized.onnx"
    )
    max_tokens: int | None = Field(
        default=None,
        ge=16,
        le=100_000,
        description="cross-encoder: where pairs are cut; none: what the model takes",
    )
    outputs: Literal["auto", "logit", "probability"] = Field(
        default="auto", description="cross-encoder: what the graph gives; auto finds out"
    )
    batch_tokens: int = Field(
        default=512, ge=1, le=1_000_000, description="cross-encoder: tokens of one call"
    )
    threads: int | None = Field(
        default=None, ge=1, le=256, description="cross-encoder: calls at once; none: one per CPU"
    )
    providers: tuple[str, ...] = Field(
        default=(), description="cross-encoder: ONNX Runtime providers; none: the CPU"
    )
    prepared: bool | None = Field(
        default=None,
        description="cross-encoder: its graph made by `nbrag models prepare`; none: where there is "
        "one",
    )

    @field_validator("model")
    @classmethod
    def _is_a_model(cls, text: str) -> str:
        if text != "llm" and not _PLACE.search(text):
            raise ValueError(
                f"it is neither llm nor a folder (./{text}), an .onnx file or a hub name "
                "(owner/name)"
            )
        return text

    @model_validator(mode="after")
    def _windows_overlap(self) -> Self:
        if self.step >= self.window:
            raise ValueError("step must be less than window, or nothing could rise past a window")
        return self

    @model_validator(mode="after")
    def _options_fit_the_model(self) -> Self:
        chat = self.model == "llm"
        for name in _OF_CROSS_ENCODERS if chat else _OF_CHAT_MODELS:
            if getattr(self, name) != type(self).model_fields[name].default:
                kind = "a cross-encoder" if chat else "model=llm"
                raise ValueError(f"{name}= is an option of {kind}, not of model={self.model}")
        return self


def _reranker(options: RerankOptions, context: BuildContext) -> RetrievalResultProcessor:
    """Return the stage that a choice of model stands for."""
    if options.model == "llm":
        from nbrag.retrieval.processors.llm_reranker import LlmReranker

        return LlmReranker(context.chat(), options, strict=context.strict)
    from nbrag.models.reranking import shared_cross_encoder
    from nbrag.retrieval.processors.cross_encoder import CrossEncoderReranker, model_options

    model = shared_cross_encoder(options.model, **model_options(options))
    return CrossEncoderReranker(model, options)


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
