"""The stage ``topics``: each chunk's labels out of a taxonomy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    create_model,
    field_validator,
    model_validator,
)

from nbrag.errors import ConfigurationError
from nbrag.ingestion.enriching import ChunkEnricher
from nbrag.ingestion.processors._taxonomy import OTHER, Taxonomy, read_taxonomy, taxonomy_lines
from nbrag.models.chat.passages import PASSAGES_ARE_DATA, passage_block
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Embedder
from nbrag.spec import BuildContext, StageDefinition, StageOptions, register_stage
from nbrag.tracing import stage_span
from nbrag.types import (
    ChatMessage,
    ChatReply,
    Chunk,
    ChunkKind,
    MetadataKeys,
    MetadataValue,
    RetrievalChunk,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TopicClassificationProcessor", "TopicOptions"]

#: Cosine below which the nearest label does not count. Of the tutorial handbook's 245 chunks with
#: a topic (20 described labels, all-MiniLM-L6-v2), the nearest label is the document's for 78 %;
#: at 0.25, 75 % keep it, 38 % of those whose label is taken away become "other", and so do all of
#: a dozen texts from other fields, whose best cosine is 0.18. Other models have other scales.
_THRESHOLD = 0.25
#: How far below the nearest label's cosine a secondary label's may lie: on the same chunks, 0.05
#: gives one in five a secondary label, and the document's topic is among the labels of 80 %.
_MARGIN = 0.05
#: Chunks whose vectors are computed together.
_BATCH = 32

_SYSTEM = f"""You sort a passage into topics. The labels, with what they stand for:
{{labels}}
{PASSAGES_ARE_DATA}
primary: the one label that the passage as a whole fits best, "{OTHER}" when none does.
{{secondary}}Write labels exactly as they stand above."""
_SECONDARY = (
    "secondary: at most {most} further labels, only where a part of the passage is about them; "
    "usually none.\n"
)


class TopicOptions(StageOptions):
    """Which topics there are, and who tells them apart."""

    taxonomy: tuple[str, ...] = Field(
        default=(), description='labels, each alone or as "label: what belongs there"'
    )
    taxonomy_file: str | None = Field(
        default=None,
        description="a JSON or YAML file instead: a list of labels, or label: description",
    )
    classifier: Literal["model", "embedding"] = Field(
        default="model", description="a chat model, or the nearest label by the embedder"
    )
    secondary: int = Field(default=3, ge=0, le=20, description="most secondary labels of a chunk")
    words: int = Field(
        default=500,
        ge=10,
        le=20_000,
        description="for model: words of a chunk that it is shown",
    )
    threshold: float = Field(
        default=_THRESHOLD,
        ge=-1,
        le=1,
        description="for embedding: least cosine to a label; below it is other",
    )

    @field_validator("taxonomy", mode="before")
    @classmethod
    def _in_lines(cls, value: Any) -> Any:
        return taxonomy_lines(value)

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.taxonomy_file is None:
            Taxonomy(self.taxonomy)
        elif self.taxonomy:
            raise ValueError("taxonomy and taxonomy_file exclude each other")
        elif not self.taxonomy_file.strip():
            raise ValueError("taxonomy_file is empty")
        if self.classifier == "model" and self.threshold != _THRESHOLD:
            raise ValueError("threshold is for classifier=embedding only")
        return self


class TopicClassificationProcessor(ChunkEnricher):
    """Adds each chunk's topics: one in ``topic_primary``, any others in ``topic_secondary``.

    Labels are the taxonomy's, in its spelling, and ``other``; nothing else is stored. ``other``
    is never secondary.

    Classifiers: ``model`` is one structured call per chunk. An answer with a label that does not
    exist is asked for again, once; then the chunk is stored without topics and told as a problem.
    ``embedding`` needs no chat model: the label whose ``label: description`` lies nearest to the
    chunk's embedded text (its title and headings included) by cosine, ``other`` when it is below
    ``threshold``; secondary are the next ones that are above it and within 0.05 of the nearest.
    Labels do much better with descriptions: on the tutorial handbook 78 % of chunks get their
    document's topic with them, and 60 % without.

    Parameters
    ----------
    chat
        The model that reads the chunks; None for ``classifier=embedding``.
    options
        Which topics there are, and who tells them apart.
    embedder
        Gives the embedder, for ``classifier=embedding``; called at the first chunk.

    Attributes
    ----------
    taxonomy
        The labels with their descriptions.

    Raises
    ------
    ConfigurationError
        When what the classifier needs is not there, or the taxonomy's file can't be used.
    """

    name = "topics"

    def __init__(
        self,
        chat: ChatClient | None,
        options: TopicOptions,
        *,
        embedder: Callable[[], Embedder] | None = None,
    ) -> None:
        self.options = options
        by_model = options.classifier == "model"
        super().__init__(cast("ChatClient", chat) if by_model else _NoModel())
        if not by_model and embedder is None:
            raise ConfigurationError(
                f"stage '{self.name}' needs an embedder.",
                hint="give embedder=, a function that returns one",
            )
        path = options.taxonomy_file
        self.taxonomy = Taxonomy(options.taxonomy) if path is None else read_taxonomy(path)
        self._embedder = embedder
        self._label_vectors: NDArray[np.float32] | None = None
        labels = "\n".join(f"- {line}" for line in self.taxonomy.lines())
        secondary = _SECONDARY.format(most=options.secondary) if options.secondary else ""
        self._system = ChatMessage("system", _SYSTEM.format(labels=labels, secondary=secondary))
        self._schema = _form(self.taxonomy.labels, secondary=bool(options.secondary))

    @property
    def settings(self) -> dict[str, Any]:
        """What the topics depend on besides the options: the labels, which may be in a file."""
        return {"taxonomy": self.taxonomy.descriptions}

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks in their order, with their topics."""
        if self.options.classifier == "model":
            async for chunk in super().process(chunks):
                yield chunk
            return
        batch: list[Chunk] = []
        async for chunk in chunks:
            batch.append(chunk)
            if len(batch) >= _BATCH:
                for one in await self._nearest(batch):
                    yield one
                batch = []
        for one in await self._nearest(batch):
            yield one

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return the chunk with its topics.

        Raises
        ------
        ChatError
            When the model gives no usable answer.
        """
        if self.options.classifier == "embedding":
            return await self._nearest([chunk])
        topics: list[str] = []

        def check(answer: BaseModel) -> None:
            """Refuse an answer that can't be used."""
            topics[:] = self._labels([answer.primary, *getattr(answer, "secondary", ())])  # type: ignore[attr-defined]

        # The context begins with the document's title, without which many chunks fit anywhere.
        heading = [chunk.context] if chunk.context else list(chunk.heading_path)
        shown = RetrievalChunk("", "", chunk.content, 0.0, {"heading_path": heading})
        block = passage_block([shown], words=self.options.words)
        messages = [self._system, ChatMessage("user", block)]
        await ask(self.chat, messages, self._schema, check=check, temperature=0.0)
        return [self._with_topics(chunk, topics)]

    def _labels(self, names: Sequence[str]) -> list[str]:
        """Return the labels that a model names, in the taxonomy's spelling."""
        labels = []
        for name in names:
            label = self.taxonomy.label(name)
            if label is None:
                known = ", ".join(self.taxonomy.labels[:-1])[:500]
                raise ValueError(f"'{name[:80]}' is none of the labels {known}, {OTHER}")
            labels.append(label)
        return labels

    def _with_topics(self, chunk: Chunk, topics: Sequence[str]) -> Chunk:
        primary, *others = dict.fromkeys(topics)
        secondary = [label for label in others if label != OTHER][: self.options.secondary]
        added: dict[str, MetadataValue] = {
            MetadataKeys.TOPIC_PRIMARY: primary,
            MetadataKeys.TOPIC_SECONDARY: secondary,
        }
        return replace(chunk, metadata={**chunk.metadata, **added})

    # By the embedder ---------------------------------------------------------------------

    async def _nearest(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Return the chunks with the labels that lie nearest."""
        originals = [chunk for chunk in chunks if chunk.kind is ChunkKind.ORIGINAL]
        if not originals:
            return list(chunks)
        with stage_span(f"nbrag.stage {self.name}", {"nbrag.stage": self.name}):
            embedder = cast("Callable[[], Embedder]", self._embedder)()
            if self._label_vectors is None:
                self._label_vectors = await embedder.embed_queries(self.taxonomy.lines()[:-1])
            vectors = await embedder.embed_documents([one.embedding_text for one in originals])
        cosines = (vectors @ self._label_vectors.T).tolist()
        topics = iter([self._near(row) for row in cosines])
        return [
            self._with_topics(chunk, next(topics)) if chunk.kind is ChunkKind.ORIGINAL else chunk
            for chunk in chunks
        ]

    def _near(self, cosines: Sequence[float]) -> list[str]:
        least = max(self.options.threshold, max(cosines) - _MARGIN)
        order = sorted(range(len(cosines)), key=lambda place: -cosines[place])
        labels = self.taxonomy.labels
        return [labels[place] for place in order if cosines[place] >= least] or [OTHER]


class _NoModel:
    """Stands where the embedder needs no chat client."""

    model = "none"

    async def complete(
        self,
        messages: Sequence[ChatMessage],  # noqa: ARG002
        **options: Any,  # noqa: ARG002
    ) -> ChatReply:
        raise ConfigurationError("a stage with classifier=embedding asks no chat model.")


def _alone(value: Any) -> Any:
    """Return the one label that a model has put into a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _list(value: Any) -> Any:
    """Return the labels as a list, also where a model has given one alone, or nothing."""
    if isinstance(value, list):
        return [one for one in value if one not in (None, "")]
    return [] if value in (None, "") else [value]


def _form(labels: Sequence[str], *, secondary: bool) -> type[BaseModel]:
    """Return the answer's form; servers that keep to a schema can give no other label."""
    one = Annotated[str, Field(json_schema_extra={"enum": list(labels)})]
    fields: dict[str, Any] = {"primary": (Annotated[one, BeforeValidator(_alone)], ...)}
    if secondary:
        several = Annotated[list[one], BeforeValidator(_list)]
        fields["secondary"] = (several, Field(default_factory=list))
    return create_model("Topics", **fields)


def _build(options: TopicOptions, context: BuildContext) -> TopicClassificationProcessor:
    chat = context.chat() if options.classifier == "model" else None
    return TopicClassificationProcessor(chat, options, embedder=context.embedder)


register_stage(
    StageDefinition(
        name="topics",
        kind="ingestion",
        role="chunk",
        options=TopicOptions,
        build=_build,
        method="use_topics",
        summary="Adds each chunk's topics out of a taxonomy, by a chat model or the embedder.",
        single=True,
    )
)
