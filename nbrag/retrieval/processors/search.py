"""The stage ``search``: which searches are run and how they are fused."""

from __future__ import annotations

from nbrag.retrieval.searching import SearchOptions
from nbrag.spec import StageDefinition, register_stage

__all__ = ["SearchOptions"]

register_stage(
    StageDefinition(
        name="search",
        kind="retrieval",
        role="search",
        options=SearchOptions,
        build=lambda options, _context: options,
        method="use_search",
        summary="Which searches are run, and how their results are fused.",
        single=True,
    )
)
