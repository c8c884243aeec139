"""The stage ``filter``: a condition that every result of a pipeline must pass."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, field_validator

from nbrag.protocols import Collection, RetrievalQueryProcessor
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.stores.filters import Filter, parse_filter
from nbrag.types import RetrievalQuery

__all__ = ["FilterOptions", "FilterProcessor"]


class FilterOptions(StageOptions):
    """Which chunks may be found."""

    where: str = Field(description="a filter expression, e.g. \"topic == 'security'\"")

    @field_validator("where")
    @classmethod
    def _parses(cls, text: str) -> str:
        parse_filter(text)
        return text


class FilterProcessor(RetrievalQueryProcessor):
    """Adds a condition to whatever filter the query has already.

    Parameters
    ----------
    options
        The condition.
    """

    name = "filter"

    def __init__(self, options: FilterOptions) -> None:
        self.options = options
        self._filter = parse_filter(options.where)

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:  # noqa: ARG002
        """Return the query with the condition, which also holds where a stage falls back."""
        fallback = query.fallback
        if fallback is not None:
            fallback = replace(fallback, filter=self._narrowed(fallback.filter))
        return replace(query, filter=self._narrowed(query.filter), fallback=fallback)

    def _narrowed(self, condition: Filter | None) -> Filter:
        return self._filter if condition is None else condition & self._filter


register_stage(
    StageDefinition(
        name="filter",
        kind="retrieval",
        role="query",
        options=FilterOptions,
        build=lambda options, _context: FilterProcessor(options),
        method="use_filter",
        summary="A condition that every result must pass.",
    )
)
