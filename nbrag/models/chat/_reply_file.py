"""A file of recorded replies: JSON Lines, one request and its reply on each line."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrag.errors import ModelError, ModelInvalid, ModelNotFound
from nbrag.models.chat.cache import relevant_options, request_key
from nbrag.types import ChatMessage, ChatReply, TokenProbability

__all__ = ["Recorded", "ReplyFile", "Request"]

_ROLES = ("system", "user", "assistant")
_REPLY_FIELDS = (
    "text",
    "input_tokens",
    "output_tokens",
    "cost",
    "model",
    "finish_reason",
    "tokens",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked.

    Attributes
    ----------
    messages
        The conversation.
    options
        The options that the answer depends on.
    model
        The model that was asked; empty where that makes no difference.
    """

    messages: tuple[ChatMessage, ...]
    options: Mapping[str, Any]
    model: str = ""

    @classmethod
    def of(
        cls, messages: Sequence[ChatMessage], options: Mapping[str, Any], model: str = ""
    ) -> Request:
        """Return the request of a call; what only says how it is sent is left out."""
        return cls(tuple(messages), _plain(relevant_options(options)), model)

    @property
    def key(self) -> str:
        """What identifies the request, in hexadecimal."""
        return request_key(self.model, self.messages, self.options)

    def as_dict(self) -> dict[str, Any]:
        """Return the request's part of a line."""
        messages = [{"role": one.role, "content": one.content} for one in self.messages]
        line = {"request": self.key, "messages": messages, "options": dict(self.options)}
        return {**line, "model": self.model} if self.model else line


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of a file: a request, the number of its line, and its reply where it has one."""

    request: Request
    line: int
    reply: ChatReply | None


class ReplyFile:
    """The replies of one file, by the requests' keys.

    The messages and options of a line decide what it answers; its ``request`` is for readers. Of
    two lines with one request the first counts.

    Parameters
    ----------
    path
        The file.
    must_exist
        Whether a missing file is an error rather than an empty one.

    Attributes
    ----------
    about
        How the replies came to be, as the file's first line says.
    recorded
        The lines, by key.
    digest
        A hash of the file as it was read, in hexadecimal.

    Raises
    ------
    ModelNotFound
        When the file is missing.
    ModelInvalid
        When a line can't be read; the message names it.
    """

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool) -> None:
        self.path = Path(path).expanduser()
        self.about = ""
        self.recorded: dict[str, Recorded] = {}
        self._lock = threading.Lock()
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if must_exist:
                raise ModelNotFound(
                    f"there is no file of recorded replies at {self.path}.",
                    hint=f"record one with model='record:{self.path}=provider/model'",
                ) from None
            data = b""
        except OSError as error:
            raise ModelError(f"{self.path} can't be read: {error.strerror or error}.") from None
        self.digest = hashlib.blake2b(data, digest_size=12).hexdigest()
        # Not splitlines: text may hold other line separators.
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                self._read(number, line)

    def reply(self, key: str) -> ChatReply | None:
        """Return the reply to a request, None when there is none."""
        found = self.recorded.get(key)
        return None if found is None else found.reply

    def add(
        self, request: Request, reply: ChatReply | None, *, about: str = ""
    ) -> ChatReply | None:
        """Append a line, unless the request has one, and return the reply that the file holds.

        ``about`` becomes the first line of a file that has none.

        Raises
        ------
        ModelError
            When the file can't be written.
        """
        key = request.key
        with self._lock:
            if key in self.recorded:
                return self.recorded[key].reply
            line = request.as_dict()
            if reply is not None:
                line["reply"] = _reply_as_dict(reply)
            try:
                self._append(line, about)
            except OSError as error:
                raise ModelError(
                    f"the reply can't be recorded in {self.path}: {error.strerror or error}."
                ) from None
            self.recorded[key] = Recorded(request, 0, reply)
            return reply

    def _append(self, line: Mapping[str, Any], about: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as stream:
            data = _line(line)
            if stream.tell() == 0:
                data = (_line({"about": about}) if about else b"") + data
            elif not _ends_with_newline(self.path):
                data = b"\n" + data
            # One write, so that a crash or another process never leaves half a line.
            stream.write(data)

    def _read(self, number: int, line: bytes) -> None:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise self._invalid(number, f"not JSON ({error})") from None
        if not isinstance(value, dict):
            raise self._invalid(number, "not a JSON object")
        if "about" in value and "messages" not in value:
            self.about = str(value["about"])
            return
        try:
            messages = tuple(_message(one) for one in value["messages"])
            options = dict(value.get("options") or {})
            request = Request.of(messages, options, str(value.get("model") or ""))
            reply = _reply(value.get("reply"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._invalid(number, f"{type(error).__name__}: {error}") from None
        self.recorded.setdefault(request.key, Recorded(request, number, reply))

    def _invalid(self, number: int, reason: str) -> ModelInvalid:
        return ModelInvalid(
            f"{self.path}, line {number} is no recorded reply: {reason}.",
            hint='a line is {"messages": [{"role": "user", "content": "..."}], "options": {}, '
            '"reply": {"text": "..."}}',
        )


def _plain(value: Any) -> Any:
    """Return a value in which 0.0 and 0 are the same, as they are for every model."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _message(value: Mapping[str, Any]) -> ChatMessage:
    role, content = value["role"], value["content"]
    if role not in _ROLES or not isinstance(content, str):
        raise ValueError(f"a message has a role of {', '.join(_ROLES)} and a text as content")
    return ChatMessage(role, content)


def _reply(value: Any) -> ChatReply | None:
    if value is None:
        return None
    fields = {"text": value} if isinstance(value, str) else dict(value)
    if not isinstance(fields.get("text"), str):
        raise TypeError("a reply has a text")
    if unknown := sorted(fields.keys() - set(_REPLY_FIELDS)):
        raise ValueError(f"a reply has no {', '.join(unknown)}")
    fields["tokens"] = tuple(map(TokenProbability.from_list, fields.get("tokens") or ()))
    return ChatReply(**fields)


def _reply_as_dict(reply: ChatReply) -> dict[str, Any]:
    fields = {name: getattr(reply, name) for name in _REPLY_FIELDS}
    fields["tokens"] = [token.to_list() for token in reply.tokens]
    return {
        name: value
        for name, value in fields.items()
        if name == "text" or value not in (None, "", [])
    }


def _line(value: Mapping[str, Any]) -> bytes:
    try:
        return f"{json.dumps(value, sort_keys=True, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        # Half a surrogate pair exists in escaped form only.
        return f"{json.dumps(value, sort_keys=True)}\n".encode()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
