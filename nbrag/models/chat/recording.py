"""Replies that are recorded in a file and replayed from it, without a key or a network."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import takewhile
from typing import Any

from nbrag.errors import ReplayMissing
from nbrag.models.chat._reply_file import Recorded, ReplyFile, Request
from nbrag.models.chat.budget import PricedChatClient, TokenPrice
from nbrag.models.chat.streams import ReplyStream
from nbrag.protocols import ChatClient, StreamingChatClient
from nbrag.types import ChatMessage, ChatReply

__all__ = ["RecordingChatClient", "ReplayChatClient"]

#: Most characters of a request that an error shows.
_SHOWN = 160
#: Characters of each request that are compared in search of the nearest one.
_COMPARED = 2000


class RecordingChatClient:
    """A chat client that writes down what another one answers.

    A request that the file holds is answered from there, and not asked again: so a run that
    records takes the same course as the one that replays. To record anew, delete the file. Errors
    are not recorded.

    The file is JSON Lines, made to be kept in a repository: keys are sorted, text is readable, and
    a request stands on one line only. What identifies a request is its messages and the options
    that the answer depends on (not ``timeout``, say).

    Parameters
    ----------
    client
        Who is asked.
    path
        The file; it is made at the first reply, and added to if it exists.
    by_model
        Whether a reply counts only for the model that gave it.
    about
        How the replies come to be: the first line of a new file.

    Raises
    ------
    ModelInvalid
        When the file is there and can't be read.
    """

    def __init__(
        self,
        client: ChatClient,
        path: str | os.PathLike[str],
        *,
        by_model: bool = False,
        about: str = "",
    ) -> None:
        self._client = client
        self._file = ReplyFile(path, must_exist=False)
        self._by_model = by_model
        self._about = about

    def __repr__(self) -> str:
        """Return the client's and the file's name."""
        return f"RecordingChatClient({self._client!r}, {str(self._file.path)!r})"

    #: The file keeps the answers already.
    cacheable = False

    @property
    def model(self) -> str:
        """The name of the model that is asked."""
        return self._client.model

    @property
    def one_at_a_time(self) -> bool:
        """Whether the client that is asked takes one request at a time."""
        return bool(getattr(self._client, "one_at_a_time", False))

    @property
    def timeout(self) -> float:
        """Seconds that one answer of the client that is asked may take."""
        return float(getattr(self._client, "timeout", 60.0))

    @property
    def options(self) -> Mapping[str, Any]:
        """The client's own options, on which its answers depend."""
        return dict(getattr(self._client, "options", None) or {})

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the model's answer, now recorded; errors as the client raises them."""
        request = self._request(messages, options)
        kept = self._file.reply(request.key)
        if kept is not None:
            return replace(kept, cost=0.0, cached=True)
        reply = await self._client.complete(messages, **options)
        return self._recorded(request, reply)

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> ReplyStream:
        """Return the answer's pieces as they come; recorded once they are all there.

        A client that can't stream is asked for the whole, which is given word by word.
        """
        return ReplyStream(self._parts(messages, options))

    async def _parts(
        self, messages: Sequence[ChatMessage], options: dict[str, Any]
    ) -> AsyncGenerator[str | ChatReply]:
        request = self._request(messages, options)
        if self._file.reply(request.key) is not None or not isinstance(
            self._client, StreamingChatClient
        ):
            reply = await self.complete(messages, **options)
            for word in _words(reply.text):
                yield word
            yield reply
            return
        pieces: list[str] = []
        answer: Any = self._client.stream(messages, **options)
        async with aclosing(answer):
            async for piece in answer:
                pieces.append(piece)
                yield piece
        whole = getattr(answer, "reply", None)
        yield self._recorded(request, whole or ChatReply("".join(pieces), model=self.model))

    async def price(self) -> TokenPrice | None:
        """Return the price of the model that is asked, None when it is not known."""
        if isinstance(self._client, PricedChatClient):
            return await self._client.price()
        return None

    def close(self) -> None:
        """Close the client that was asked, where it can be closed."""
        close = getattr(self._client, "close", None)
        if close is not None:
            close()

    def _request(self, messages: Sequence[ChatMessage], options: dict[str, Any]) -> Request:
        return Request.of(messages, options, self.model if self._by_model else "")

    def _recorded(self, request: Request, reply: ChatReply) -> ChatReply:
        kept = self._file.add(request, replace(reply, cached=False), about=self._about)
        # The same request may have been answered twice at the same time: the file's word counts.
        return reply if kept is None or kept.text == reply.text else kept


class ReplayChatClient:
    """A chat client that answers from a file of recorded replies, and from nowhere else.

    Parameters
    ----------
    path
        The file, as :class:`RecordingChatClient` writes it. A reply may also be written by hand,
        as text or as ``{"text": ...}``.
    model
        Replay only what was recorded for this model (``by_model=True``). None replays whatever
        was recorded without regard to the model.
    missing
        Where requests that the file does not hold are put down: a list, to which a dict each is
        appended, or another file, which gets one line each, to which a ``"reply"`` can be added.

    Attributes
    ----------
    about
        How the replies came to be, in the file's own words; empty when it doesn't say.

    Raises
    ------
    ModelNotFound, ModelInvalid
        When the file is missing or can't be read.
    """

    #: The file keeps the answers already.
    cacheable = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        model: str | None = None,
        missing: list[dict[str, Any]] | str | os.PathLike[str] | None = None,
    ) -> None:
        self._file = ReplyFile(path, must_exist=True)
        self._model = model
        self._list = missing if isinstance(missing, list) else None
        self._missing = (
            None
            if missing is None or isinstance(missing, list)
            else ReplyFile(missing, must_exist=False)
        )
        self.about = self._file.about

    def __repr__(self) -> str:
        """Return the file's name."""
        return f"ReplayChatClient({str(self._file.path)!r})"

    @property
    def model(self) -> str:
        """The model that is replayed, else the file's name."""
        return self._model or f"replay:{self._file.path.name}"

    @property
    def options(self) -> Mapping[str, Any]:
        """The file's hash: answers that are kept elsewhere don't outlive it."""
        return {"replies": self._file.digest}

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the recorded answer, ``cached`` and at no cost.

        Raises
        ------
        ReplayMissing
            When there is none; the message shows the request and where the nearest one differs.
        """
        request = Request.of(messages, options, self._model or "")
        reply = self._file.reply(request.key)
        if reply is None:
            self._put_down(request)
            raise self._missed(request)
        return replace(reply, cost=0.0, cached=True)

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> ReplyStream:
        """Return the recorded answer word by word; errors as in :meth:`complete`."""
        return ReplyStream(self._parts(messages, options))

    async def _parts(
        self, messages: Sequence[ChatMessage], options: dict[str, Any]
    ) -> AsyncGenerator[str | ChatReply]:
        reply = await self.complete(messages, **options)
        for word in _words(reply.text):
            yield word
        yield reply

    async def price(self) -> TokenPrice:
        """Return the price of a replay: nothing."""
        return TokenPrice(0.0, 0.0)

    def _put_down(self, request: Request) -> None:
        if self._missing is not None:
            self._missing.add(request, None)
        if self._list is not None and request.as_dict() not in self._list:
            self._list.append(request.as_dict())

    def _missed(self, request: Request) -> ReplayMissing:
        place = self._file.path
        known = self._file.recorded.get(request.key)
        if known is not None:
            return ReplayMissing(
                f"{place}, line {known.line} holds this request without a reply: "
                f"{_shown(_text(request))}.",
                hint='add "reply": {"text": "..."} to that line',
            )
        nearest = _nearest(request, list(self._file.recorded.values()))
        return ReplayMissing(
            f"{place} holds no reply to this request: {_shown(_text(request))}. {nearest}",
            hint="prompts and options must be the recorded ones to the letter; record anew with "
            f"model='record:{place}=provider/model', or put the missing requests down with "
            "missing= and write their replies",
        )


def _words(text: str) -> list[str]:
    """Return the words with the white space after each: together they are the text."""
    return re.findall(r"^\s+|\S+\s*", text)


def _text(request: Request) -> str:
    return "\n".join(f"{message.role}: {message.content}" for message in request.messages)


def _nearest(request: Request, recorded: Sequence[Recorded]) -> str:
    """Return a sentence on the recorded request that is most like this one."""
    if not recorded:
        return "The file holds no requests at all."
    wanted = _text(request)
    # The last part differs most: prompts begin alike.
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[-_COMPARED:])

    def likeness(one: Recorded) -> tuple[float, int]:
        matcher.set_seq1(_text(one.request)[-_COMPARED:])
        return matcher.quick_ratio(), -one.line

    best = max(recorded, key=likeness)
    there = _text(best.request)
    if there == wanted:
        return f"Line {best.line} asks the same with {_other_settings(request, best.request)}."
    pairs = zip(there, wanted, strict=False)
    place = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return (
        f"Line {best.line} is nearest; it differs from character {place} on: "
        f"{_shown(there[place:], 60)} there, {_shown(wanted[place:], 60)} here."
    )


def _other_settings(asked: Request, recorded: Request) -> str:
    if asked.model != recorded.model:
        return f"the model '{recorded.model or 'any'}', not '{asked.model or 'any'}'"
    names = sorted({*asked.options, *recorded.options})
    different = [
        f"{name}={_shown(str(recorded.options.get(name)), 40)}, "
        f"not {_shown(str(asked.options.get(name)), 40)}"
        for name in names
        if asked.options.get(name) != recorded.options.get(name)
    ]
    return "; ".join(different)


def _shown(text: str, most: int = _SHOWN) -> str:
    """Return text in quotes on one line; of a long one the beginning and the end."""
    line = " ".join(text[: 20 * most].split()) if len(text) > 40 * most else " ".join(text.split())
    if len(line) > most:
        line = f"{line[: most // 2]} ... {line[-most // 2 :]}"
    return f"'{line}'"
