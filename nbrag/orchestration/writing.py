"""One answer written from evidence: the request, its pieces, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbrag.errors import BudgetExceeded, ChatUnavailable, RateLimited
from nbrag.models.chat.passages import question_line
from nbrag.orchestration.evidence import Evidence
from nbrag.orchestration.prompts import Prompt
from nbrag.orchestration.reading import AnswerReader, CitedText
from nbrag.orchestration.running import AnswerRun
from nbrag.types import ChatMessage, ChatReply

__all__ = ["answer_messages", "write_answer"]

#: Characters per token of ``max_tokens`` after which a reply is not read any further.
_MOST_PER_TOKEN = 20


def answer_messages(
    prompt: Prompt, question: str, evidence: Evidence, numbers: Sequence[int] | None = None
) -> list[ChatMessage]:
    """Return the request for an answer: instructions, question, passages as data.

    Parameters
    ----------
    prompt
        The instructions.
    question
        The question.
    evidence
        The passages.
    numbers
        Which of them; None for all.
    """
    text = f"{question_line(question)}\n{evidence.block(numbers)}"
    if prompt.reminder:
        text = f"{text}\n\n{prompt.reminder}"
    return [ChatMessage("system", prompt.text), ChatMessage("user", text)]


async def write_answer(
    run: AnswerRun,
    prompt: Prompt,
    evidence: Evidence,
    *,
    cited: bool = True,
    max_tokens: int = 1_024,
) -> CitedText:
    """Let the model answer ``run.question`` from evidence, and check what it cites.

    Where somebody listens, the pieces are told as they come; a stream that fails before its first
    piece is asked for anew, in one piece.

    Raises
    ------
    ChatError, ModelError
        When there is no reply, or it does not come in time.
    """
    messages = answer_messages(prompt, run.question, evidence)
    reader = AnswerReader(evidence, cited=cited)
    reply = await run.in_time(_read(run, messages, reader, max_tokens))
    found = reader.finish()
    if reply is not None and reply.finish_reason == "length":
        cut = f"the reply was cut off at max_tokens={max_tokens}"
        found = replace(found, warnings=(*found.warnings, cut))
    return found


async def _read(
    run: AnswerRun, messages: Sequence[ChatMessage], reader: AnswerReader, max_tokens: int
) -> ChatReply | None:
    """Feed the reader; return the whole reply, None when it was not read to its end."""
    options = {"temperature": 0.0, "max_tokens": max_tokens}
    if run.streams:
        stream = run.chat.stream(messages, **options)
        try:
            async for piece in stream:
                for event in reader.feed(piece):
                    run.emit(event)
                if len(reader.raw) > max_tokens * _MOST_PER_TOKEN:
                    run.warn("the reply was longer than asked for and was not read to its end")
                    return None
        except BudgetExceeded:
            raise
        except (ChatUnavailable, RateLimited):
            if reader.raw:
                raise
        else:
            return stream.reply
        finally:
            await stream.aclose()
    reply = await run.chat.complete(messages, **options)
    for event in reader.feed(reply.text):
        run.emit(event)
    return reply
