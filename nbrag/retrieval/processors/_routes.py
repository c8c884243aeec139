"""The routes that a question may take, and three ways to choose one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol

from pydantic import BaseModel, Field, field_validator

from nbrag.models.chat.passages import question_line
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Embedder
from nbrag.retrieval.processors._entities import EntityIndex, names_in
from nbrag.retrieval.processors._questions import QUESTION_IS_DATA, words_of
from nbrag.retrieval.processors._route_examples import RouteExample
from nbrag.types import ChatMessage

__all__ = [
    "ENTITY",
    "SIMPLE",
    "THEMATIC",
    "Classifier",
    "Decision",
    "EmbeddingClassifier",
    "ModelClassifier",
    "RuleClassifier",
]

SIMPLE: Final = "simple"
THEMATIC: Final = "thematic"
ENTITY: Final = "entity-specific"


class Decision(BaseModel):
    """How a question is to be searched."""

    reasoning: str = Field(default="", description="why, in one short sentence")
    route: Literal["simple", "thematic", "entity-specific"]
    complexity: Literal["none", "one", "several"] = "one"
    entities: list[str] = Field(
        default_factory=list, description="names, as they stand in the question"
    )
    questions: list[str] = Field(default_factory=list, description="sub-questions")

    @field_validator("route", "complexity", mode="before")
    @classmethod
    def _in_one_spelling(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        word = re.sub(r"[\s_-]+", "-", value.strip().casefold())
        return ENTITY if word == "entity" else word


class Classifier(Protocol):
    """Chooses a route."""

    async def classify(
        self, question: str, index: Callable[[], Awaitable[EntityIndex]]
    ) -> Decision:
        """Return what the question is; ``index`` awaits the collection's :class:`EntityIndex`."""
        ...


_SYSTEM = f"""You decide how a collection of documents is searched for a question.
{QUESTION_IS_DATA}

route, one of:
- simple: a fact, a definition, a procedure: a few passages hold the answer.
- thematic: about the collection as a whole or a broad subject in it: overviews, summaries, \
main themes, trends.
- entity-specific: about particular named things: a person, an organisation, a product, \
a technology, a version.
complexity, one of:
- none: nothing has to be looked up: greetings, thanks, small talk, plain arithmetic.
- one: one search finds what is needed. When in doubt, this.
- several: facts from several places must be put together: comparisons, a chain of facts.
entities: for entity-specific, the names exactly as they stand in the question; otherwise empty.
questions: for several, {{most}} sub-questions at most, each understandable on its own and in \
the question's language; otherwise empty."""


class ModelClassifier:
    """Asks a chat model, once.

    Parameters
    ----------
    chat
        The model.
    most
        The most sub-questions.
    temperature
        How much chance there is in the answer.
    """

    def __init__(self, chat: ChatClient, *, most: int, temperature: float) -> None:
        self._chat = chat
        self._system = ChatMessage("system", _SYSTEM.format(most=most))
        self._temperature = temperature

    async def classify(
        self,
        question: str,
        index: Callable[[], Awaitable[EntityIndex]],  # noqa: ARG002
    ) -> Decision:
        """Return the model's decision."""
        messages = [self._system, ChatMessage("user", question_line(question))]
        return await ask(self._chat, messages, Decision, temperature=self._temperature)


#: Beginnings of words that ask for the whole: English, German, French, Spanish, Portuguese,
#: Italian, Dutch, Polish, Russian, Ukrainian, Arabic, Chinese, Japanese, Korean.
_THEMATIC = (
    r"\b(?:overview|summar|main (?:themes?|topics?|ideas?|points?)|key (?:themes?|takeaways?)"
    r"|big picture|trends?\b|in general\b|across all"
    r"|überblick|übersicht|zusammenfass|hauptthem|im allgemeinen"
    r"|aperçu|vue d ensemble|résum(?:er|ez|é d)|thèmes? principa|tendance"
    r"|resum(?:en|ir|o\b)|visión general|panorama general|temas principales|tendencias"
    r"|visão geral|principais temas|tendências"
    r"|panoramica|riassu|temi principali|tendenz"
    r"|overzicht|samenvat|hoofdthema"
    r"|podsumow|podsumuj|przegląd"
    r"|обзор|резюм|основные темы|основных тем|тенденци|огляд|підсум)"
    r"|ملخص|نظرة عامة|概述|概览|概覽|总结|總結|主题|主題|趋势|趨勢"
    r"|概要|要約|まとめ|傾向|요약|개요|주제"
)
_COMPARING = (
    r"\b(?:compar|versus\b|vs\b|differences? between|vergleich|unterschied|différence"
    r"|diferencia|diferença|differenz|confront|verschil|vergelijk|porówn|różnic|сравн|отлича)"
    r"|مقارنة|الفرق|比较|比較|区别|區別|違い|비교|차이"
)
_SMALL_TALK = frozenset(
    """
    hello hi hey thanks thank you bye goodbye good morning evening hallo guten tag morgen danke
    tschüss bonjour merci salut hola gracias buenos días adiós olá obrigado obrigada ciao grazie
    buongiorno dag bedankt dzień dobry dziękuję привет спасибо مرحبا شكرا 你好 谢谢 謝謝 こんにちは
    ありがとう 안녕하세요 감사합니다
    """.split()  # noqa: SIM905 - a word list reads better than quotes
)
_QUESTION_END = re.compile(r"(?<=[?\uff1f\u061f])\s*")


class RuleClassifier:
    """Goes by the collection's entities and by cues in a dozen languages; needs no model."""

    async def classify(
        self, question: str, index: Callable[[], Awaitable[EntityIndex]]
    ) -> Decision:
        """Return what the cues say; see :class:`AdaptiveRouter`."""
        known = await index()
        complexity, questions = _complexity(question)
        words = words_of(question)
        occurring, guessed = _names(question, known)
        cue = re.search(_THEMATIC, words)
        if occurring:
            route, reason = ENTITY, f"the question names {_listed(occurring)}"
        elif cue:
            route, reason = THEMATIC, f"the cue '{cue.group().strip()}'"
        elif guessed:
            route, reason = ENTITY, f"{_listed(guessed)} looks like a name"
        else:
            route, reason = SIMPLE, "no cue for another route"
        return Decision.model_validate(
            {
                "reasoning": f"rules: {reason}",
                "route": route,
                "complexity": complexity,
                "entities": [*occurring, *guessed],
                "questions": questions,
            }
        )


def _names(question: str, index: EntityIndex) -> tuple[list[str], list[str]]:
    """Return the entities that the question names, and what else in it looks like a name."""
    occurring = index.occurring(question)
    keys = [words_of(value) for value in occurring]
    guessed = [
        name
        for name in names_in(question)
        if not any(key in words_of(name) or words_of(name) in key for key in keys)
    ]
    return occurring, guessed


def _complexity(question: str) -> tuple[str, list[str]]:
    """Return how many searches the wording asks for, and the questions that it holds."""
    words = words_of(question)
    if words and all(word in _SMALL_TALK for word in words.split()):
        return "none", []
    parts = [part.strip() for part in _QUESTION_END.split(question) if part.strip()]
    if sum(part[-1] in "?\uff1f\u061f" for part in parts) > 1:
        return "several", parts
    return ("several" if re.search(_COMPARING, words) else "one"), []


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


class EmbeddingClassifier:
    """Takes the route whose example questions lie nearest on average.

    Parameters
    ----------
    embedder
        Gives the embedder of questions; called at the first question.
    examples
        Questions with their routes.
    """

    def __init__(self, embedder: Callable[[], Embedder], examples: Sequence[RouteExample]) -> None:
        self._embedder = embedder
        self._examples = tuple(examples)
        self._means: dict[str, Any] = {}

    async def classify(
        self, question: str, index: Callable[[], Awaitable[EntityIndex]]
    ) -> Decision:
        """Return the nearest route; the complexity comes from the wording, as with rules."""
        embedder = self._embedder()
        if not self._means:
            self._means = await self._learn(embedder)
        vector = (await embedder.embed_queries([question]))[0]
        cosines = {route: float(mean @ vector) for route, mean in self._means.items()}
        route = max(cosines, key=cosines.__getitem__)
        known = await index() if route == ENTITY else None
        occurring, guessed = ([], []) if known is None else _names(question, known)
        complexity, questions = _complexity(question)
        shown = ", ".join(f"{label} {cosine:.2f}" for label, cosine in cosines.items())
        return Decision.model_validate(
            {
                "reasoning": f"embedding: cosine to the examples' means: {shown}",
                "route": route,
                "complexity": complexity,
                "entities": [*occurring, *guessed],
                "questions": questions,
            }
        )

    async def _learn(self, embedder: Embedder) -> dict[str, Any]:
        """Return the mean vector of each route's examples, of length 1."""
        import numpy as np

        vectors = await embedder.embed_queries([example.question for example in self._examples])
        means: dict[str, Any] = {}
        for route in dict.fromkeys(example.route for example in self._examples):
            mean = vectors[[example.route == route for example in self._examples]].mean(axis=0)
            means[route] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return means
