"""What is said to a chat model and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "ChatMessage",
    "ChatReply",
    "LedgerEntry",
    "TokenProbability",
]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation with a chat model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class TokenProbability:
    """How likely a token of a reply was, by the model that wrote it.

    Attributes
    ----------
    token
        Its characters.
    logprob
        Natural logarithm of its probability: 0 at the most.
    others
        The same of the likeliest tokens at this place, itself among them where it is one.
    """

    token: str
    logprob: float
    others: Mapping[str, float] = field(default_factory=dict)

    def to_list(self) -> list[Any]:
        """Return the three fields as JSON has them."""
        return [self.token, self.logprob, dict(self.others)]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> TokenProbability:
        """Return the token of a :meth:`to_list`; a ``TypeError`` or ``ValueError`` for others."""
        token, logprob, others = values
        return cls(str(token), float(logprob), {str(one): float(others[one]) for one in others})


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a chat model answered.

    Attributes
    ----------
    text
        The words of the answer.
    input_tokens, output_tokens
        Tokens read and written, by the provider's count; None when it doesn't tell.
    cost
        US dollars; None when the price is not known, which is not the same as 0.
    model
        The model that answered, as the provider names it; empty when it doesn't tell.
    finish_reason
        Why the answer ended, in the provider's word: ``stop``, ``length``, ...
    cached
        Whether the answer was kept from an earlier call, so that nothing was paid for it.
    tokens
        The answer's tokens with their probabilities: where ``logprobs=True`` asked for them, and
        the provider gives them; otherwise empty.
    """

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    model: str = ""
    finish_reason: str = ""
    cached: bool = False
    tokens: tuple[TokenProbability, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One request to a chat model.

    Attributes
    ----------
    stage
        The pipeline's stage that asked; empty outside of one.
    model
        The model that was asked, without anything secret in it.
    input_tokens, output_tokens
        Tokens read and written, by the provider's count; None when it doesn't tell.
    cost
        US dollars that were paid: 0 for an answer that was kept or shared, None when the price
        is not known.
    cached
        Whether nothing was asked of the provider: the answer was kept from an earlier request,
        or shared with the same request that was under way.
    seconds
        From the question to the answer, waits for a free place and further tries included.
    outcome
        ``answered``, ``kept`` (in the cache), ``shared``, ``cancelled``, or the name of the
        error, e.g. ``RateLimited``.
    """

    stage: str
    model: str
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    cached: bool
    seconds: float
    outcome: str
