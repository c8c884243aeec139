"""The stage ``route``: each question is searched in the way that suits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nbrag.protocols import ChatClient, Collection, Embedder, RetrievalQueryProcessor
from nbrag.retrieval.processors._entities import EntityIndex, entity_filter, read_entities
from nbrag.retrieval.processors._questions import clean_rewrites, required, with_rewrites
from nbrag.retrieval.processors._route_examples import BUILT_IN_EXAMPLES, read_examples
from nbrag.retrieval.processors._routes import (
    ENTITY,
    THEMATIC,
    Classifier,
    Decision,
    EmbeddingClassifier,
    ModelClassifier,
    RuleClassifier,
)
from nbrag.spec import ModelStageOptions, StageDefinition, register_stage
from nbrag.types import Fallback, RetrievalQuery, Strategy

__all__ = ["AdaptiveRouter", "RouteOptions"]


class RouteOptions(ModelStageOptions):
    """Who chooses the route, and what each route means."""

    classifier: Literal["model", "rules", "embedding"] = Field(
        default="model", description="a chat model, cues in the wording, or example questions"
    )
    simple: Literal["hybrid", "vector"] = Field(
        default="hybrid", description="how simple questions are searched"
    )
    entity_fields: tuple[str, ...] = Field(
        default=(), description="fields that hold entities; none: all that start with entities_"
    )
    minimum: int = Field(
        default=3, ge=1, le=100, description="fewer results than this widen a narrowed search"
    )
    allow_none: bool = Field(
        default=False, description="whether a question may be answered without any search"
    )
    questions: int = Field(default=3, ge=1, le=10, description="most sub-questions")
    weight: float = Field(
        default=1.0, gt=0, le=1, description="a sub-question's vote; the question's own is 1"
    )
    temperature: float = Field(
        default=0.0, ge=0, le=2, description="for model: how much chance there is in its answer"
    )
    examples: str | None = Field(
        default=None, description="for embedding: a JSON Lines file with questions and routes"
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.examples is not None and self.classifier != "embedding":
            raise ValueError("examples are for classifier=embedding only")
        if self.temperature and self.classifier != "model":
            raise ValueError("temperature is for classifier=model only")
        return self


class AdaptiveRouter(RetrievalQueryProcessor):
    """Chooses the search by what kind of question it is.

    Two axes. The kind of question sets the strategy:

    ``simple``
        hybrid or vector search, as the option ``simple`` says.
    ``thematic``
        a search of the summary tree; where there is none, the pipeline says so and searches as
        its search stage does.
    ``entity-specific``
        hybrid search among the chunks that carry one of the entities named. Only entities that
        exist in the collection and occur in the question count (case, punctuation and spacing
        don't matter); with none, nothing is filtered. A chunk needs one of several entities, not
        all, since a comparison is seldom made in one passage.

    Complexity is that of Adaptive-RAG (Jeong et al., arXiv 2403.14403), whose three classes are
    no retrieval, one step, several steps: ``none`` searches nothing, if ``allow_none`` permits
    it; ``several`` adds the sub-questions to the variants, all searched at once. The paper trains
    a small model on the outcomes of the strategies and lets steps build on each other; here the
    classes are asked for or guessed, and the kind of question is no part of the paper.

    A narrowed search that finds fewer than ``minimum`` chunks is widened with a warning
    (:class:`nbrag.types.Fallback`). The strategy overrides the search stage's ``mode``.

    Classifiers: ``model`` is one call. ``rules`` needs no model: an entity of the collection in
    the question, words that ask for the whole in a dozen languages, then what looks like a name
    (quotes, capitalised runs, mixed case). ``embedding`` takes the route whose example questions
    have the nearest mean vector (the built-in ones are English). Both take the complexity from
    the wording: greetings are ``none``; comparisons and several question marks are ``several``,
    the latter with their questions as sub-questions. When the classifier fails, the query goes on
    unchanged with a warning.

    Metadata: ``search_paradigm``, ``router_reasoning`` (if there is any), ``complexity``, and for
    entities ``router_entities`` and ``router_unknown_entities``, each if there are any.

    Parameters
    ----------
    chat
        The model that classifies; None for the other classifiers.
    options
        Who chooses the route, and what each route means.
    embedder
        Gives the embedder of questions, for ``classifier=embedding``.

    Raises
    ------
    ConfigurationError
        When what the classifier needs is not there, or the examples can't be read.
    """

    name = "route"

    def __init__(
        self,
        chat: ChatClient | None,
        options: RouteOptions | None = None,
        *,
        embedder: Callable[[], Embedder] | None = None,
    ) -> None:
        self.options = options or RouteOptions()
        self._classifier = self._chosen(chat, embedder)

    def _chosen(
        self, chat: ChatClient | None, embedder: Callable[[], Embedder] | None
    ) -> Classifier:
        options = self.options
        if options.classifier == "rules":
            return RuleClassifier()
        if options.classifier == "model":
            return ModelClassifier(
                required(chat, self.name, "a chat client"),
                most=options.questions,
                temperature=options.temperature,
            )
        examples = read_examples(options.examples) if options.examples else BUILT_IN_EXAMPLES
        return EmbeddingClassifier(required(embedder, self.name, "an embedder"), examples)

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:
        """Return the query with the strategy, filter and variants of its route.

        Raises
        ------
        ChatError
            When the model gives no valid route.
        FilterError
            When a field of ``entity_fields`` doesn't exist or holds no text.
        """
        if not query.text.strip():
            return query
        read: list[EntityIndex] = []

        async def index() -> EntityIndex:
            """Return the collection's entities, read when they are first needed."""
            if not read:
                read.append(await read_entities(collection, self.options.entity_fields))
            return read[0]

        decision = await self._classifier.classify(query.text, index)
        query = replace(query, metadata={**query.metadata, **_told(decision)})
        if decision.complexity == "none" and self.options.allow_none:
            return replace(query, strategy=Strategy.NONE)
        if decision.route == THEMATIC:
            query = self._narrowed(query, Strategy.TREE, query.filter, "summary tree")
        elif decision.route == ENTITY:
            query = self._filtered(query, decision, await index())
        else:
            query = replace(query, strategy=Strategy(self.options.simple))
        if decision.complexity == "several":
            known = [query.text, *(variant.text for variant in query.variants)]
            questions = clean_rewrites(decision.questions, known, self.options.questions)
            if questions:
                query = with_rewrites(query, questions, self.options.weight)
        return query

    def _filtered(
        self, query: RetrievalQuery, decision: Decision, index: EntityIndex
    ) -> RetrievalQuery:
        """Return the query for the chunks of the entities that there are."""
        linked, unknown = index.link(decision.entities, query.text)
        metadata = dict(query.metadata)
        if linked:
            metadata["router_entities"] = list(dict.fromkeys(e.value for e in linked))
        if unknown:
            metadata["router_unknown_entities"] = unknown
        query = replace(query, metadata=metadata)
        # To compare a known thing with an unknown one takes passages about both.
        if linked and not (unknown and decision.complexity == "several"):
            wanted = entity_filter(linked)
            both = wanted if query.filter is None else query.filter & wanted
            return self._narrowed(query, Strategy.HYBRID, both, str(wanted))
        if unknown and index.cut:
            query = query.with_warning(
                f"stage '{self.name}': field '{index.cut[0]}' has too many values; only the most "
                "frequent were looked at"
            )
        elif not len(index):
            query = query.with_warning(
                f"stage '{self.name}': the collection has no entities to filter by; "
                "all of it was searched"
            )
        return replace(query, strategy=Strategy.HYBRID)

    def _narrowed(
        self, query: RetrievalQuery, strategy: Strategy, condition: Any, what: str
    ) -> RetrievalQuery:
        """Return the query with a narrower search, and the way back."""
        reason = f"route {query.metadata['search_paradigm']} ({what})"
        fallback = Fallback(self.options.minimum, reason, query.strategy, query.filter)
        return replace(query, strategy=strategy, filter=condition, fallback=fallback)


def _told(decision: Decision) -> dict[str, str]:
    """Return what the metadata says about a decision."""
    told: dict[str, str] = {"search_paradigm": decision.route, "complexity": decision.complexity}
    reasoning = " ".join(decision.reasoning.split())
    return {**told, "router_reasoning": reasoning} if reasoning else told


register_stage(
    StageDefinition(
        name="route",
        kind="retrieval",
        role="query",
        options=RouteOptions,
        build=lambda options, context: AdaptiveRouter(
            context.chat() if options.classifier == "model" else None,
            options,
            embedder=context.embedder,
        ),
        method="use_adaptive_routing",
        summary="Searches simple, thematic and entity questions each in their own way.",
        single=True,
    )
)
