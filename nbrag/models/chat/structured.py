"""Answers in a given form: asked for as JSON, found in whatever a model says, and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from nbrag.errors import ConfigurationError, ReplyInvalid
from nbrag.models.chat._json_values import FoundValue, scan_json
from nbrag.protocols import ChatClient
from nbrag.types import ChatMessage

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

__all__ = ["ForgettingChatClient", "ask", "parse_reply"]

Reply = TypeVar("Reply", bound="BaseModel")

#: What an answer may follow on its line: a tag such as </think>, or a fence.
_AFTER_WHAT = re.compile(r"</?[\w|]+>$|```json$")
#: Most characters of an unusable reply that are shown to the model again.
_LONGEST_REPLY = 4000
#: Most errors of one reply that are named.
_MOST_ERRORS = 3


@runtime_checkable
class ForgettingChatClient(Protocol):
    """A chat client that keeps answers, and can let go of them."""

    async def forget(self, messages: Sequence[ChatMessage], **options: Any) -> None:
        """Let go of the answer to a request, so that it is asked anew."""


async def ask(
    chat: ChatClient,
    messages: Sequence[ChatMessage],
    schema: type[Reply],
    *,
    check: Callable[[Reply], None] | None = None,
    tries: int = 2,
    **options: Any,
) -> Reply:
    """Ask a model for an answer in the form of a pydantic model.

    The form is sent as ``response_format`` and described in words after the last message, because
    many models and servers know only one of the two. An answer that doesn't fit is shown to the
    model with the reason, and asked for again.

    Parameters
    ----------
    chat
        The model.
    messages
        The conversation; it ends with what is asked.
    schema
        The form of the answer.
    check
        Raises ``ValueError`` with the reason for an answer that has the form and still can't be
        right, such as the number of a passage that was not sent.
    tries
        How often the model is asked in all.
    options
        Handed to the client, e.g. ``temperature``.

    Raises
    ------
    ReplyInvalid
        When no answer fits; ``reply`` holds the last one's words.
    ChatError, ModelError
        As the client raises them.
    ConfigurationError
        When there are no messages or ``tries`` is below 1.

    Examples
    --------
    >>> class Variants(BaseModel):
    ...     variants: list[str]
    >>> answer = await ask(chat, [ChatMessage("user", "Say it in other words: ...")], Variants)
    """
    if tries < 1 or not messages:
        raise ConfigurationError(
            f"a model is asked at least once, about something; got tries={tries} and "
            f"{len(messages)} messages."
        )
    form = _form(schema)
    options.setdefault("response_format", _response_format(schema, form))
    asked = _with_text(messages, _described(form))
    conversation = asked
    conversations = []
    for attempt in range(tries):
        conversations.append(conversation)
        words = (await chat.complete(conversation, **options)).text
        try:
            answer = parse_reply(words, schema)
            _checked(answer, check, words)
        except ReplyInvalid as error:
            if attempt + 1 < tries:
                conversation = _asked_again(asked, error)
                continue
            if isinstance(chat, ForgettingChatClient):
                # A kept answer that can't be used would be in the way of every later run.
                for without_answer in conversations:
                    await chat.forget(without_answer, **options)
            raise ReplyInvalid(
                f"{chat.model} did not answer in the form asked for: {error.message}",
                hint=error.hint,
                reply=error.reply,
            ) from None
        return answer
    raise AssertionError("unreachable")


def parse_reply(text: str, schema: type[Reply]) -> Reply:
    """Return the answer in a model's words.

    Fences, prose before and after, and ``<think>`` blocks are passed over; of several JSON values
    the last that fits counts. Numbers may be strings. A bare array is taken for an object with
    one list field, unless it stands in the middle of a sentence. A value that was cut off is
    never completed.

    Raises
    ------
    ReplyInvalid
        When no value fits; the message is one line.
    """
    from pydantic import ValidationError

    if not text.strip():
        raise ReplyInvalid(
            "the reply is empty.",
            hint="the model may have used up its tokens on thoughts: raise max_tokens",
            reply=text,
        )
    scan = scan_json(text)
    names, list_field = _fields(schema)
    objects = [found.value for found in scan.values if isinstance(found.value, dict)]
    # With defaults for all fields, any object would do.
    candidates = [value for value in objects if not names or names & value.keys()]
    if list_field is not None:
        arrays = _bare_arrays(scan.values, text)
        candidates = [{list_field: value} for value in arrays] + candidates
    wrong = ""
    for value in reversed(candidates):
        try:
            return schema.model_validate(value)
        except ValidationError as error:
            wrong = wrong or _in_one_line(error)
    reason = wrong or scan.broken or _nothing_fitting(text, schema, scan.values)
    raise ReplyInvalid(
        f"{reason.rstrip('.')}.",
        hint="try a larger model, or one that keeps to a JSON schema",
        reply=text,
    )


def _fields(schema: type[BaseModel]) -> tuple[set[str], str | None]:
    """Return the names that fields go by, and the one list field that a bare array may be."""
    form = schema.model_json_schema()
    properties: Mapping[str, Any] = form.get("properties", {})
    lists = [name for name, field in properties.items() if _is_list(field)]
    alone = len(lists) == 1 and set(form.get("required", ())) <= set(lists)
    return {*schema.model_fields, *properties}, lists[0] if alone else None


def _is_list(field: Mapping[str, Any]) -> bool:
    return any(option.get("type") == "array" for option in field.get("anyOf", (field,)))


def _bare_arrays(values: Sequence[FoundValue], text: str) -> list[Any]:
    """Return the arrays that may be the answer: a reference such as [3] in a sentence is none."""
    alone, named = [], []
    for found in values:
        if not isinstance(found.value, list):
            continue
        before = text[max(found.start - 80, 0) : found.start].rstrip(" \t`")
        after = text[found.end : found.end + 80].lstrip(" \t`.")
        if after and after[0] not in "\r\n<":
            continue
        if not before or before[-1] == "\n" or _AFTER_WHAT.search(before):
            alone.append(found.value)
        elif before[-1] == ":":
            named.append(found.value)
    # Of several lists with names, nobody knows which one is meant.
    return alone or (named if len(named) == 1 else [])


def _nothing_fitting(text: str, schema: type[BaseModel], values: Sequence[FoundValue]) -> str:
    if any(isinstance(found.value, dict) for found in values):
        return f"the JSON has none of the fields {', '.join(schema.model_fields)}"
    words = " ".join(text[:1000].split())
    return f"there is no JSON object in the reply '{words[:120]}{'...' if words[120:] else ''}'"


def _in_one_line(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    named = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}"
        for problem in problems[:_MOST_ERRORS]
    ]
    more = len(problems) - len(named)
    return "; ".join(" ".join(one.split()) for one in named) + (f"; {more} more" if more else "")


def _checked(answer: Reply, check: Callable[[Reply], None] | None, words: str) -> None:
    if check is None:
        return
    try:
        check(answer)
    except ValueError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ReplyInvalid(f"{reason}.", reply=words) from error


def _form(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema as strict providers want it, in the fields' own order."""
    form: dict[str, Any] = _strict(schema.model_json_schema())
    return form


def _strict(node: Any) -> Any:
    """Return a schema whose objects name all their fields and no others, without titles."""
    if isinstance(node, list):
        return [_strict(one) for one in node]
    if not isinstance(node, dict):
        return node
    strict: dict[str, Any] = {}
    for key, value in node.items():
        if key in {"properties", "$defs"}:
            strict[key] = {name: _strict(one) for name, one in value.items()}
        elif key in {"const", "enum", "examples"}:
            strict[key] = value
        elif key not in {"title", "default"}:
            strict[key] = _strict(value)
    if "properties" in strict:
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


def _response_format(schema: type[BaseModel], form: Mapping[str, Any]) -> dict[str, Any]:
    name = re.sub(r"[^\w-]", "_", schema.__name__, flags=re.ASCII)[:64]
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": dict(form), "strict": True},
    }


def _described(form: Mapping[str, Any]) -> str:
    described = json.dumps(form, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON object and nothing else. Its JSON schema: {described}"


def _with_text(messages: Sequence[ChatMessage], text: str) -> tuple[ChatMessage, ...]:
    """Return the conversation with a last word; roles keep taking turns, as templates demand."""
    *earlier, last = messages
    if last.role == "user":
        return (*earlier, ChatMessage("user", f"{last.content}\n\n{text}"))
    return (*messages, ChatMessage("user", text))


def _asked_again(asked: tuple[ChatMessage, ...], error: ReplyInvalid) -> tuple[ChatMessage, ...]:
    text = (
        f"This answer can't be used: {error.message} "
        "Answer again, with one JSON object of the given schema and nothing else."
    )
    words = error.reply.strip()
    if not words:
        # Providers refuse empty messages.
        return _with_text(asked, text)
    shown = words if len(words) <= _LONGEST_REPLY else f"{words[:_LONGEST_REPLY]}..."
    return (*asked, ChatMessage("assistant", shown), ChatMessage("user", text))
