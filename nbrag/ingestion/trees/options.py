"""The options of summary trees."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from nbrag.spec import StageOptions

__all__ = ["TreeOptions"]


class TreeOptions(StageOptions):
    """The form of the tree, and its measures."""

    form: Literal["outline", "raptor"] = Field(
        default="outline",
        description="outline: by documents; raptor: by clusters across documents",
    )
    summary_tokens: int = Field(
        default=128,
        ge=16,
        le=4_000,
        description="tokens of a summary that are aimed at; half as many again are accepted",
    )
    group_tokens: int = Field(
        default=3_500,
        ge=100,
        le=500_000,
        description="most tokens that are summarised together, by the embedder's tokenizer",
    )
    levels: int = Field(
        default=5, ge=1, le=50, description="most levels of summaries, with form=raptor"
    )
    threshold: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="probability from which a passage belongs to a cluster, with form=raptor",
    )
    dimensions: int = Field(
        default=10,
        ge=1,
        le=100,
        description="what vectors are reduced to before they are clustered, with form=raptor",
    )
    clusters: int = Field(
        default=50,
        ge=2,
        le=256,
        description="most clusters of one division, with form=raptor",
    )
    recluster: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="share of changed passages from which all clusters are formed anew, with "
        "form=raptor",
    )
    temperature: float = Field(
        default=0.0, ge=0, le=2, description="how much chance there is in the model's words"
    )

    @model_validator(mode="after")
    def _room_for_summaries(self) -> Self:
        # Longest summaries are 1.5 times what is aimed at; two of them must fit with room left.
        if self.group_tokens < 4.5 * self.summary_tokens:
            raise ValueError(
                f"group_tokens={self.group_tokens} is too little to summarise summaries of "
                f"{self.summary_tokens} tokens: at least {int(4.5 * self.summary_tokens) + 1}"
            )
        return self

    @property
    def few(self) -> int:
        """Nodes that get one summary without being clustered: one more than dimensions."""
        return self.dimensions + 1
