"""What a run would ask of a chat model, counted before anything is spent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbrag.errors import ChatUnavailable
from nbrag.models.chat.budget import PricedChatClient, estimated_tokens
from nbrag.models.chat.managed import ManagedChatClient
from nbrag.tracing import current_stage
from nbrag.types import ChatMessage, ChatReply

__all__ = ["PreviewChatClient", "StagePreview"]


@dataclass(frozen=True, slots=True)
class StagePreview:
    """What one stage would ask for.

    Attributes
    ----------
    stage
        Its name.
    calls
        Requests that would be made.
    kept
        Requests whose answers are kept from before, and cost nothing.
    input_tokens
        Tokens that the calls would read, estimated from their length in bytes.
    cost
        US dollars for reading them; what is written comes on top. None when the price is not
        known.
    """

    stage: str
    calls: int
    kept: int
    input_tokens: int
    cost: float | None


class PreviewChatClient:
    """Stands in for a chat client: it asks nothing, and counts what it would have to ask.

    Answers that are kept are given, so that what follows from them is counted too. Everything
    else is refused as a model is that does not answer.

    Parameters
    ----------
    client
        The client that would be asked.
    """

    cacheable = False

    def __init__(self, client: ManagedChatClient) -> None:
        self._client = client
        self._calls: dict[str, int] = defaultdict(int)
        self._kept: dict[str, int] = defaultdict(int)
        self._tokens: dict[str, int] = defaultdict(int)

    @property
    def model(self) -> str:
        """The name of the model that would be asked."""
        return self._client.model

    async def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """Return a kept answer; count the request and refuse it otherwise.

        Raises
        ------
        ChatUnavailable
            When no answer is kept.
        """
        stage = current_stage()
        kept = await self._client.kept_reply(messages, **options)
        if kept is not None:
            self._kept[stage] += 1
            return kept
        self._calls[stage] += 1
        self._tokens[stage] += sum(estimated_tokens(message.content) for message in messages)
        raise ChatUnavailable("it was only counted.")

    async def stages(self) -> list[StagePreview]:
        """Return what was counted, by stage in the order of their first request."""
        asked = self._client.client
        price = await asked.price() if isinstance(asked, PricedChatClient) else None
        return [
            StagePreview(
                stage,
                self._calls[stage],
                self._kept[stage],
                self._tokens[stage],
                None if price is None else price.input * self._tokens[stage],
            )
            for stage in dict.fromkeys((*self._kept, *self._calls))
        ]
