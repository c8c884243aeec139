"""The stage ``expand``: the question in several wordings, searched at once."""

from __future__ import annotations

from pydantic import BaseModel, Field

from nbrag.models.chat.passages import question_line
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Collection, RetrievalQueryProcessor
from nbrag.retrieval.processors._questions import (
    QUESTION_IS_DATA,
    clean_rewrites,
    required,
    with_rewrites,
)
from nbrag.spec import ModelStageOptions, StageDefinition, register_stage
from nbrag.types import ChatMessage, RetrievalQuery, Strategy

__all__ = ["ExpandOptions", "MultiQueryExpander", "Rewrites"]

_SYSTEM = f"""You rewrite search queries, so that passages which put the matter in other words are \
found too.
{QUESTION_IS_DATA}
Each rewrite must look for the same information. Keep names, numbers, versions and codes exactly \
as they stand. Write in the question's language. Add no facts, no numbering, no remarks."""

#: What the rewrites have to be, in turn: they must differ in kind, or they find the same.
_FORMS = (
    "the same question in entirely different words: synonyms, another way to put it",
    "one aspect or sub-question of it that a passage might answer on its own",
    "the bare keywords, as in an index or a heading, without a question's grammar",
)


class ExpandOptions(ModelStageOptions):
    """How many rewrites there are and what they count."""

    variants: int = Field(
        default=3, ge=1, le=10, description="most rewrites, the question itself not counted"
    )
    weight: float = Field(
        default=1.0, gt=0, le=1, description="a rewrite's vote; the question's own is 1"
    )
    temperature: float = Field(
        default=0.0, ge=0, le=2, description="how much chance there is in the model's words"
    )


class Rewrites(BaseModel):
    """Rewrites of the question."""

    queries: list[str] = Field(description="the rewrites, one string each")


class MultiQueryExpander(RetrievalQueryProcessor):
    """Adds rewrites of the question, which are searched along with it.

    RAG-Fusion (Raudaschl, 2023, 4 rewrites; gains level off at 3 to 4): a model rewrites the
    question, every form is searched, and the ranked lists are fused into one. The search stage
    does the fusion, once over all lists of both legs; a reranker after it sees one list, and the
    question as it was asked.

    The rewrites come from one structured call in which each has another form to take (other
    words, an aspect, bare keywords), so that they differ although ``temperature`` is 0. The
    question itself is always the first variant and votes with weight 1. Blanks, repeats (case,
    spacing and punctuation don't count), and what is too short or too long for a question are
    dropped. When nothing is left, or the model fails, the query goes on unchanged with a warning.
    A query that is not searched at all (:attr:`nbrag.types.Strategy.NONE`) is not rewritten.

    Parameters
    ----------
    chat
        The model that rewrites.
    options
        How many rewrites there are and what they count.

    Raises
    ------
    ConfigurationError
        When there is no chat client.
    """

    name = "expand"

    def __init__(self, chat: ChatClient, options: ExpandOptions | None = None) -> None:
        self._chat = required(chat, self.name, "a chat client")
        self.options = options or ExpandOptions()

    async def process(self, query: RetrievalQuery, collection: Collection) -> RetrievalQuery:  # noqa: ARG002
        """Return the query with its rewrites as further variants.

        Raises
        ------
        ChatError
            When the model gives no usable rewrite.
        """
        if query.strategy is Strategy.NONE or not query.text.strip():
            return query
        known = [query.text, *(variant.text for variant in query.variants)]
        options = self.options

        def usable(reply: Rewrites) -> list[str]:
            """Return the rewrites that are searched."""
            return clean_rewrites(reply.queries, known, options.variants)

        def check(reply: Rewrites) -> None:
            """Refuse an answer without any."""
            if not usable(reply):
                raise ValueError("no rewrite that differs from the question")

        reply = await ask(
            self._chat,
            _messages(query.text, options.variants),
            Rewrites,
            check=check,
            temperature=options.temperature,
        )
        return with_rewrites(query, usable(reply), options.weight)


def _messages(question: str, count: int) -> list[ChatMessage]:
    """Return what the model is asked."""
    forms = "\n".join(f"{i + 1}. {_FORMS[i % len(_FORMS)]}" for i in range(count))
    number = "1 rewrite" if count == 1 else f"{count} rewrites, each unlike the others"
    request = f"{question_line(question)}\n\nWrite {number}:\n{forms}"
    return [ChatMessage("system", _SYSTEM), ChatMessage("user", request)]


register_stage(
    StageDefinition(
        name="expand",
        kind="retrieval",
        role="query",
        options=ExpandOptions,
        build=lambda options, context: MultiQueryExpander(context.chat(), options),
        method="use_query_expansion",
        summary="The question in several wordings, by a chat model (RAG-Fusion).",
        single=True,
    )
)
