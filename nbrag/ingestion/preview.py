"""What an ingestion would do, counted before anything is embedded, asked or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nbrag.errors import ConfigurationError
from nbrag.rendering import Cell, Rendering, render_table

if TYPE_CHECKING:
    from nbrag.models.chat import StagePreview
    from nbrag.protocols import Collection
    from nbrag.spec import BuildContext, PipelineSpec

__all__ = ["IngestPreview", "PreviewCounts", "given_sources", "preview"]


@dataclass(frozen=True, slots=True)
class PreviewCounts:
    """What there is to do.

    Attributes
    ----------
    documents, chunks, tokens
        Documents that are new or changed, and their chunks; tokens of what may have to be
        embedded.
    outcomes
        What is known of the others already: how many are unchanged, fail, or are duplicates.
    """

    documents: int
    chunks: int
    tokens: int
    outcomes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IngestPreview:
    """The counts of an ingestion, and what its stages would ask a chat model.

    Attributes
    ----------
    collection
        Name of the collection.
    counts
        Documents, chunks and tokens.
    stages
        One per stage that asks a chat model.
    """

    collection: str
    counts: PreviewCounts
    stages: tuple[StagePreview, ...] = ()

    @property
    def calls(self) -> int:
        """How many calls of the chat model there would be in all."""
        return sum(stage.calls for stage in self.stages)

    @property
    def summary(self) -> str:
        """One line."""
        counts = self.counts
        others = "".join(f", {count} {name}" for name, count in counts.outcomes.items())
        return (
            f"{self.collection}: {counts.documents} documents to ingest{others}; "
            f"{counts.chunks} chunks, {counts.tokens} tokens; {self.calls} calls of the chat model"
        )

    def __repr__(self) -> str:
        """Return the summary."""
        return f"<IngestPreview {self.summary}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Rendering:  # noqa: ARG002
        """Return the stages as a table."""
        rows: list[Sequence[Cell]] = [
            [
                stage.stage,
                stage.calls,
                stage.kept,
                stage.input_tokens,
                "unknown" if stage.cost is None else f"${stage.cost:.4f}",
            ]
            for stage in self.stages
        ]
        notes = ["nothing was embedded, asked or written"]
        if rows:
            notes.append("tokens are estimated; what the model writes comes on top of the cost")
        return render_table(
            self.summary,
            ["stage", "calls", "kept answers", "tokens read", "cost of reading"],
            [list(row) for row in rows],
            notes=notes,
        )


def given_sources(spec: PipelineSpec, sources: Any) -> Any:
    """Return what is to be read: the sources, else the specification's own.

    Raises
    ------
    ConfigurationError
        When there are none.
    """
    given = list(spec.sources) if sources is None else sources
    if given is None or (isinstance(given, list | tuple) and not given):
        raise ConfigurationError(
            "no sources are given.", hint="name files, folders, globs, URLs or a variable"
        )
    return given


async def preview(
    spec: PipelineSpec,
    sources: Any,
    context: BuildContext,
    collection: Collection | None,
    *,
    text_column: str = "text",
) -> IngestPreview:
    """Count what an ingestion would do.

    Parameters
    ----------
    spec
        The stages; its name is the collection's.
    sources, text_column
        What would be read.
    context
        Where stages find their models; the chat model is not asked.
    collection
        The collection if it exists.

    Raises
    ------
    ConfigurationError
        When a stage needs a chat model and there is none, or no sources are given.
    """
    from nbrag.ingestion.builder import IngestionPipelineBuilder
    from nbrag.models.chat import PreviewChatClient
    from nbrag.stores.memory import MemoryCollection

    counting: list[PreviewChatClient] = []

    def chat() -> PreviewChatClient:
        """Return the one client that counts for all stages."""
        if not counting:
            counting.append(PreviewChatClient(context.chat()))
        return counting[0]

    pipeline = IngestionPipelineBuilder(spec, replace(context, chat=chat)).build()
    known = collection or MemoryCollection(spec.name, pipeline.embedder.identity)
    counts = await pipeline.preview(given_sources(spec, sources), known, text_column=text_column)
    stages = await counting[0].stages() if counting else []
    return IngestPreview(spec.name, counts, tuple(stages))
