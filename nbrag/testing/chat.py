"""A chat client for tests that answers from a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbrag.types import ChatMessage, ChatReply

__all__ = ["ScriptExhausted", "ScriptedCall", "ScriptedChatClient"]

Reply = str | ChatReply | Exception


class ScriptExhausted(AssertionError):
    """The code under test asked for more replies than the script has.

    Not an :class:`nbrag.errors.NbragError`, so that stages which degrade on model errors don't
    hide it.
    """


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call that a scripted client received.

    Attributes
    ----------
    messages
        The conversation.
    options
        What else was asked for.
    """

    messages: tuple[ChatMessage, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The messages' words, one message after the other, for plain ``in`` checks."""
        return "\n".join(message.content for message in self.messages)


class ScriptedChatClient:
    """A chat client that gives prepared replies and records what it was asked.

    Parameters
    ----------
    replies
        What to answer, in order: text, a :class:`nbrag.types.ChatReply`, or an exception, which
        is raised. Or a function of the messages that returns one of these, for calls whose order
        is not fixed.

    Attributes
    ----------
    calls
        Every call so far, in order.
    model
        The name that it goes by.

    Examples
    --------
    >>> chat = ScriptedChatClient(["yes", "no"])
    >>> chat = ScriptedChatClient(lambda messages: messages[-1].content.upper())
    """

    #: A script is to be followed, each time anew.
    cacheable = False

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Sequence[ChatMessage]], Reply] = (),
        *,
        model: str = "scripted",
    ) -> None:
        if isinstance(replies, str):
            raise TypeError("a script is a list of replies: write ['...'] for one")
        self._function = replies if callable(replies) else None
        self._queue: deque[Reply] = deque() if callable(replies) else deque(replies)
        self._length = len(self._queue)
        self.calls: list[ScriptedCall] = []
        self.model = model

    @property
    def remaining(self) -> int:
        """How many prepared replies have not been asked for."""
        return len(self._queue)

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the next reply; tokens are counted as words where the script doesn't say.

        Raises
        ------
        ScriptExhausted
            When there is no reply left; the message shows the request.
        """
        call = ScriptedCall(tuple(messages), options)
        self.calls.append(call)
        if self._function is not None:
            reply = self._function(messages)
        elif self._queue:
            reply = self._queue.popleft()
        else:
            raise ScriptExhausted(
                f"the script has {self._length} replies, and this is call {len(self.calls)}: "
                f"{call.text[-500:]!r}"
            )
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, ChatReply):
            return reply
        return ChatReply(reply, len(call.text.split()), len(reply.split()))
