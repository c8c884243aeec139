"""Questions that follow others: put so that they can be understood alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nbrag.errors import ReplyInvalid
from nbrag.models.chat.passages import clip_words, data_line, question_line
from nbrag.orchestration.prompts import CONDENSE_PROMPT
from nbrag.protocols import ChatClient
from nbrag.types import ChatMessage, Turn

__all__ = ["standalone_question"]

#: Turns that are shown, the last ones, and words of each answer in them.
_TURNS = 6
_WORDS = 200
#: A longer reply is no question.
_LONGEST = 1_000
_MAX_TOKENS = 300


async def standalone_question(chat: ChatClient, question: str, history: Sequence[Turn]) -> str:
    """Return a follow-up question so that a search can do without the conversation.

    Parameters
    ----------
    chat
        The model; it is asked once.
    question
        The question as it was asked.
    history
        The conversation before; of a long one, the last six turns count.

    Raises
    ------
    ReplyInvalid
        When the reply is no question.
    ChatError, ModelError
        As the client raises them.
    """
    if not history:
        return question
    # The same escapes as for passages: an answer may quote a hostile one.
    lines = "\n".join(
        data_line(
            question=clip_words(turn.question, _WORDS), answer=clip_words(turn.answer, _WORDS)
        )
        for turn in history[-_TURNS:]
    )
    text = f"The conversation:\n{lines}\n\nThe follow-up question:\n{question_line(question)}"
    reply = await chat.complete(
        [ChatMessage("system", CONDENSE_PROMPT.text), ChatMessage("user", text)],
        temperature=0.0,
        max_tokens=_MAX_TOKENS,
    )
    return _question(reply.text)


def _question(words: str) -> str:
    """Return the question in a reply, without thoughts, labels, quotation marks or JSON."""
    text = words.rpartition("</think>")[2].strip()
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and len(value) == 1:
            text = str(next(iter(value.values())))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Of several lines the last is the question: what stands before introduces it.
    found = lines[-1] if lines else ""
    label, colon, rest = found.partition(":")
    if colon and rest.strip() and "question" in label.lower() and len(label.split()) <= 4:
        found = rest.strip()
    found = found.strip("\"'“”*` ")
    if not any(sign.isalnum() for sign in found) or len(found) > _LONGEST:
        raise ReplyInvalid("the reply holds no question of its own.", reply=words)
    return found
