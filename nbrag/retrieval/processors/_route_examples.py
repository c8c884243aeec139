"""Example questions with their routes, built in or from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nbrag.errors import ConfigurationError

__all__ = ["BUILT_IN_EXAMPLES", "RouteExample", "read_examples"]


class RouteExample(BaseModel):
    """A question and what it is: one line of a file of examples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(min_length=1)
    route: Literal["simple", "thematic", "entity-specific"]


def _examples(
    route: Literal["simple", "thematic", "entity-specific"], *questions: str
) -> list[RouteExample]:
    return [RouteExample(question=question, route=route) for question in questions]


BUILT_IN_EXAMPLES = (
    *_examples(
        "simple",
        "How long are backups kept?",
        "How do I reset my password?",
        "What is the maximum upload size?",
        "When does the free trial end?",
        "Which port does the service listen on?",
        "What temperature does water boil at on a mountain?",
        "How many days of leave do new employees get?",
        "Who approves travel expenses?",
        "What is the difference between a full and an incremental backup?",
        "Is renting cheaper than buying when interest rates rise?",
        "How do the cancellation rules for monthly and yearly plans compare?",
    ),
    *_examples(
        "thematic",
        "What are the main themes of these documents?",
        "Give me an overview of the security policies.",
        "Summarise what the reports say about customer satisfaction.",
        "Which trends run through the last few years of research?",
        "What are the most important ideas in this collection?",
        "What do the authors generally think about remote work?",
        "What are the recurring problems across all incidents?",
        "In broad terms, what is this handbook about?",
        "How has the overall strategy changed from the first reports to the latest ones?",
        "Compare the general attitudes of the two departments.",
    ),
    *_examples(
        "entity-specific",
        "What did Marie Curie discover?",
        "Which version of PostgreSQL does the Helios project use?",
        "Where is the head office of Northwind Traders?",
        "Does Kubernetes 1.29 support this feature?",
        "Who is the maintainer of the Aurora library?",
        "What does Anna Bergmann say about the merger?",
        "When was Python 3.11 released?",
        "Which contracts mention Contoso?",
        "How does Redis differ from Memcached?",
        "Did Ada Lovelace and Charles Babbage publish in the same year?",
        "Which of Fabrikam and Contoso had the higher revenue in 2019?",
    ),
)


def read_examples(path: str) -> tuple[RouteExample, ...]:
    """Return the examples of a JSON Lines file.

    Each line is an object with ``question`` and ``route``.

    Raises
    ------
    ConfigurationError
        When the file can't be read, a line is no example, or all have the same route.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigurationError(
            f"stage 'route': the examples in {path} can't be read: {reason}.",
            hint="give a JSON Lines file in UTF-8",
        ) from None
    examples = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            examples.append(RouteExample.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ConfigurationError(
                f"stage 'route': line {number} of {path} is no example: "
                f"{f'{place}: ' if place else ''}{first['msg']}.",
                hint='write {"question": "...", "route": "simple|thematic|entity-specific"}',
            ) from None
    if len({example.route for example in examples}) < 2:
        raise ConfigurationError(
            f"stage 'route': the examples in {path} have fewer than two routes.",
            hint="give some examples of each route",
        )
    return tuple(examples)
