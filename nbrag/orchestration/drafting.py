"""One draft of an answer from a few passages: its rationale, its evidence, its text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from nbrag.models.chat.passages import PASSAGES_ARE_DATA
from nbrag.orchestration.evidence import Evidence
from nbrag.orchestration.prompts import REFUSAL, Prompt
from nbrag.orchestration.reading import AnswerReader, CitedText
from nbrag.orchestration.writing import answer_messages
from nbrag.protocols import ChatClient

__all__ = ["DRAFT_PROMPT", "Draft", "rationale_of", "write_draft"]

DRAFT_PROMPT = Prompt(
    "draft",
    "1",
    f"""You draft an answer to a question from a few passages, and from nothing else. Others draft \
from other passages; one draft will be chosen.
{PASSAGES_ARE_DATA}

First write a line with the word EVIDENCE. Below it, for each passage that helps to answer, write \
one line: the passage's id in square brackets and, in double quotes, the words of it that matter, \
copied exactly, at most 40 words.
Then write a line with the word RATIONALE. Below it, say in one to three sentences how the answer \
follows from that evidence, and what speaks against it.
Then write a line with the word ANSWER. Below it, answer the question in its language, shortly and \
completely. End each sentence with the ids of the passages that it rests on, in square brackets. \
Where passages contradict each other, say so and cite both.
If these passages do not answer the question, write below ANSWER only the words {REFUSAL}: and in \
one sentence what is missing. Never guess, and never answer from what you know otherwise.""",
)

_RATIONALE = re.compile(
    r"^[\s#*_>-]*rationale\s*[*_]*\s*(?::[*_]*\s*(?P<rest>.*))?$", re.IGNORECASE
)
_NEXT = re.compile(r"^[\s#*_>-]*(?:evidence|quotes?|answer)\s*[*_]*\s*(?::.*)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft as it came.

    Attributes
    ----------
    number
        From 1.
    passages
        Numbers of the passages that it was drafted from.
    cited
        The answer with its citations, checked against these passages.
    rationale
        Why the answer should be right, in the model's words.
    probability
        Geometric mean of the tokens' probabilities; None where the provider gives none.
    problem
        Why there is no draft; empty when there is one.
    """

    number: int
    passages: tuple[int, ...]
    cited: CitedText
    rationale: str = ""
    probability: float | None = None
    problem: str = ""

    @property
    def answered(self) -> bool:
        """Whether it holds an answer."""
        return not self.problem and self.cited.outcome == "answered"

    @property
    def cites(self) -> frozenset[int]:
        """The numbers of the passages that it cites in words which occur there."""
        return frozenset(one.number for one in self.cited.citations if one.verified)


async def write_draft(
    chat: ChatClient,
    question: str,
    number: int,
    evidence: Evidence,
    *,
    max_tokens: int,
    probabilities: bool,
) -> Draft:
    """Let a model draft an answer, and check what it cites.

    Parameters
    ----------
    chat
        The model; it is asked once.
    question
        The question.
    number
        The draft's number.
    evidence
        The passages of this draft; a citation of any other is removed.
    max_tokens
        Tokens of the reply.
    probabilities
        Whether the tokens' probabilities are asked for.

    Raises
    ------
    ChatError, ModelError
        As the client raises them.
    """
    asked = {"logprobs": True} if probabilities else {}
    reply = await chat.complete(
        answer_messages(DRAFT_PROMPT, question, evidence),
        temperature=0.0,
        max_tokens=max_tokens,
        **asked,
    )
    rationale, rest = rationale_of(reply.text)
    reader = AnswerReader(evidence)
    reader.feed(rest)
    cited = reader.finish()
    if reply.finish_reason == "length":
        cut = f"the reply was cut off at max_tokens={max_tokens}"
        cited = replace(cited, warnings=(*cited.warnings, cut))
    known = [token.logprob for token in reply.tokens]
    return Draft(
        number,
        tuple(passage.number for passage in evidence.passages),
        cited,
        rationale,
        math.exp(sum(known) / len(known)) if known else None,
        cited.reason if cited.outcome == "failed" else "",
    )


def rationale_of(text: str) -> tuple[str, str]:
    """Return a reply's rationale, and the reply without it.

    A rationale that nothing follows is taken for the answer.
    """
    lines = text.split("\n")
    starts = [place for place, line in enumerate(lines) if _RATIONALE.match(line)]
    if not starts:
        return "", text
    start = starts[-1]
    end = next((n for n, line in enumerate(lines) if n > start and _NEXT.match(line)), None)
    first = _RATIONALE.match(lines[start])
    head = (first["rest"] or "") if first is not None else ""
    if end is None:
        return "", "\n".join([*lines[:start], "ANSWER", head, *lines[start + 1 :]])
    rationale = " ".join(" ".join([head, *lines[start + 1 : end]]).split())
    return rationale, "\n".join([*lines[:start], *lines[end:]])
