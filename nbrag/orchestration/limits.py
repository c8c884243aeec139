"""A limit to the calls of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbrag.errors import BudgetExceeded
from nbrag.models.chat.managed import ManagedChatClient
from nbrag.models.chat.streams import ReplyStream
from nbrag.types import ChatMessage, ChatReply

__all__ = ["CallLimit", "LimitedChatClient"]


class CallLimit:
    """Counts the requests of one answer, whichever model they go to.

    Parameters
    ----------
    calls
        Most requests.
    """

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.used = 0

    @property
    def left(self) -> int:
        """How many requests there may be yet."""
        return self.calls - self.used

    def take(self) -> None:
        """Count a request.

        Raises
        ------
        BudgetExceeded
            When it would be one too many.
        """
        if self.used >= self.calls:
            raise BudgetExceeded(
                f"the {self.calls} calls that one answer may take are used up.", hint="raise calls="
            )
        self.used += 1


class LimitedChatClient:
    """A managed chat client that takes part in one answer's limit.

    Parameters
    ----------
    client
        Who is asked.
    limit
        What counts; several clients may share it.
    """

    def __init__(self, client: ManagedChatClient, limit: CallLimit) -> None:
        self._client = client
        self.limit = limit

    @property
    def model(self) -> str:
        """The name of the model that is asked."""
        return self._client.model

    @property
    def client(self) -> ManagedChatClient:
        """The client that is asked."""
        return self._client

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return the model's answer; :class:`nbrag.errors.BudgetExceeded` beyond the limit."""
        self.limit.take()
        return await self._client.complete(messages, **options)

    def stream(self, messages: Sequence[ChatMessage], **options: Any) -> ReplyStream:
        """Yield the answer's pieces; :class:`nbrag.errors.BudgetExceeded` beyond the limit."""
        self.limit.take()
        return self._client.stream(messages, **options)

    async def forget(self, messages: Sequence[ChatMessage], **options: Any) -> None:
        """Let go of an answer that is kept and can't be used."""
        await self._client.forget(messages, **options)
