"""What is said to a chat model and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ChatMessage",
    "ChatReply",
]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation with a chat model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a chat model answered.

    Attributes
    ----------
    text
        The words of the answer.
    input_tokens, output_tokens
        Tokens read and written, by the provider's count; None when it doesn't tell.
    """

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
