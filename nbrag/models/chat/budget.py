"""How many calls, tokens or US dollars a chat model may use up."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from nbrag.errors import BudgetExceeded, ConfigurationError
from nbrag.types import ChatMessage, ChatReply

__all__ = [
    "Budget",
    "BudgetUse",
    "PricedChatClient",
    "Reservation",
    "TokenPrice",
    "estimated_tokens",
]

#: Bytes of UTF-8 per token: cautious for English (about 4) and right for most other scripts.
_BYTES_PER_TOKEN = 3
#: Tokens that each message costs besides its words.
_PER_MESSAGE = 4
#: Tokens of an answer that are reserved while none has been seen and ``max_tokens`` isn't given.
_FIRST_ANSWER = 512
#: US dollars set aside for a call of yet unknown price: more than is left of a spent budget.
_SOMETHING = 1e-9


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What a model asks for, in US dollars per token read and written."""

    input: float
    output: float


@runtime_checkable
class PricedChatClient(Protocol):
    """A chat client that knows its model's price."""

    async def price(self) -> TokenPrice | None:
        """Return the price, None when it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """What has been used up.

    Attributes
    ----------
    calls
        Requests sent, failed ones included, further tries of the same request not.
    tokens
        Tokens read and written; estimated where the provider doesn't tell.
    money
        US dollars of the calls whose price is known.
    unpriced
        Calls whose price is not known.
    """

    calls: int = 0
    tokens: int = 0
    money: float = 0.0
    unpriced: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The share of a budget that one call in flight may use up."""

    model: str
    input_tokens: int
    output_tokens: int
    money: float

    @property
    def tokens(self) -> int:
        """Tokens read and written, at most as far as can be told before."""
        return self.input_tokens + self.output_tokens


class Budget:
    """A limit for the calls of one or several chat clients.

    Before a call, its share is reserved: one call, the tokens of its messages (cautiously
    estimated) and of its answer (``max_tokens`` of the call, else the longest answer so far),
    and what these cost. After it, the share is replaced by what was really used. So what is
    used stays within the limit, or exceeds it by no more than the estimates of the calls in
    flight were too low. A call that was cancelled gives its share back; kept answers use nothing.

    When the limit is reached, calls in flight go on to their end, and later ones raise
    :class:`nbrag.errors.BudgetExceeded`. :meth:`raise_to` lets work go on.

    Parameters
    ----------
    calls
        Most requests; None for no limit.
    tokens
        Most tokens, read and written together.
    money
        Most US dollars. Where a model's price is not known, calls are refused unless ``calls``
        or ``tokens`` limits them too.

    Raises
    ------
    ConfigurationError
        When there is no limit at all, or one is negative or not a number.

    Examples
    --------
    >>> budget = Budget(calls=500, money=2.0)
    >>> budget.used.calls
    0
    """

    def __init__(
        self, calls: int | None = None, tokens: int | None = None, money: float | None = None
    ) -> None:
        if calls is None and tokens is None and money is None:
            raise ConfigurationError(
                "a budget needs a limit.", hint="give calls=, tokens= or money= (US dollars)"
            )
        self._limits: dict[str, float | None] = {}
        self._set_limits({"calls": calls, "tokens": tokens, "money": money})
        self._used = BudgetUse()
        self._reserved: set[Reservation] = set()
        self._longest_answer = 0
        #: US dollars per token of the dearest call so far, by model, where no price is listed.
        self._dearest: dict[str, float] = {}
        self._unpriced: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []
        #: Limits are raised from the person's thread while calls run on the background loop.
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Return limits and what has been used."""
        return f"<Budget: {self._account()}>"

    @property
    def used(self) -> BudgetUse:
        """What has been used up so far; calls in flight are not in it."""
        return self._used

    @property
    def limits_money(self) -> bool:
        """Whether money is limited, so that prices matter."""
        return self._limits["money"] is not None

    @property
    def reserved(self) -> int:
        """How many calls are in flight."""
        return len(self._reserved)

    def raise_to(
        self,
        *,
        calls: int | None = None,
        tokens: int | None = None,
        money: float | None = None,
    ) -> None:
        """Set new limits, so that work can go on; what has been used stays counted.

        Parameters
        ----------
        calls, tokens, money
            New limits, as in :class:`Budget`; None leaves a limit as it is.

        Raises
        ------
        ConfigurationError
            When a limit is negative or not a number.
        """
        given = {"calls": calls, "tokens": tokens, "money": money}
        self._set_limits({name: value for name, value in given.items() if value is not None})
        self._wake()

    async def reserve(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        options: Mapping[str, Any],
        *,
        price: TokenPrice | None = None,
        unpriced: bool = False,
    ) -> Reservation:
        """Set a call's share aside; wait where calls in flight may leave enough for it.

        Parameters
        ----------
        model
            The model's name.
        messages, options
            The call.
        price
            The model's price; None when it is not told: the first call then goes alone where
            money is limited, and the dearest one so far, by token, counts.
        unpriced
            Whether nobody knows the price; learnt from the first answer without a cost, too.

        Returns
        -------
        Reservation
            To be given to :meth:`settle` or :meth:`release` once.

        Raises
        ------
        BudgetExceeded
            When what is left is not enough.
        ConfigurationError
            When money is the only limit and the price is not known.
        """
        while True:
            with self._lock:
                share = self._share(model, messages, options, price)
                self._refuse_unpriced(model, unpriced=unpriced)
                short = self._short(share, self._reserved)
                learning = share.money == _SOMETHING and self._learns_price(model, unpriced)
                if short is None and not learning:
                    self._reserved.add(share)
                    return share
                # A call in flight takes a whole call, but often fewer tokens than its share.
                if short is not None and (
                    short == "calls" or not self._reserved or self._short(share, ())
                ):
                    raise self._exceeded(short, share)
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(changed)
            await changed

    def settle(self, reservation: Reservation, reply: ChatReply | None) -> None:
        """Replace a share by what was used: ``reply`` is None for a call that failed."""
        with self._lock:
            self._reserved.discard(reservation)
            used = replace(self._used, calls=self._used.calls + 1)
            self._used = used if reply is None else self._with_reply(used, reservation, reply)
        self._wake()

    def release(self, reservation: Reservation) -> None:
        """Give a share back: the call was cancelled or not made."""
        with self._lock:
            self._reserved.discard(reservation)
        self._wake()

    def _with_reply(self, used: BudgetUse, share: Reservation, reply: ChatReply) -> BudgetUse:
        """Return what is used after a reply, and learn from it for the next shares."""
        read, written = reply.input_tokens, reply.output_tokens
        if read is None:
            read = share.input_tokens
        if written is None:
            written = estimated_tokens(reply.text)
        self._longest_answer = max(self._longest_answer, written)
        used = replace(used, tokens=used.tokens + read + written)
        if reply.cost is None:
            self._unpriced.add(share.model)
            return replace(used, unpriced=used.unpriced + 1)
        rate = reply.cost / max(read + written, 1)
        self._dearest[share.model] = max(self._dearest.get(share.model, 0.0), rate)
        return replace(used, money=used.money + reply.cost)

    def _set_limits(self, limits: Mapping[str, float | None]) -> None:
        for name, value in limits.items():
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigurationError(f"{name} of a budget must be 0 or more, not {value}.")
        self._limits.update(limits)

    def _share(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        options: Mapping[str, Any],
        price: TokenPrice | None,
    ) -> Reservation:
        read = sum(estimated_tokens(message.content) + _PER_MESSAGE for message in messages)
        stated = options.get("max_tokens") or options.get("max_completion_tokens")
        written = int(stated or self._longest_answer or _FIRST_ANSWER)
        if price is None:
            rate = self._dearest.get(model)
            money = _SOMETHING if rate is None else rate * (read + written)
        else:
            money = price.input * read + price.output * written
        return Reservation(model, read, written, money)

    def _refuse_unpriced(self, model: str, *, unpriced: bool) -> None:
        """Refuse a call of unknown price where money is the only limit."""
        known = model in self._dearest or not (unpriced or model in self._unpriced)
        limited = [name for name, limit in self._limits.items() if limit is not None]
        if not known and limited == ["money"]:
            raise ConfigurationError(
                f"the price of {model} is not known, so that a budget in money can't be kept.",
                hint="limit calls or tokens too: Budget(money=..., calls=...)",
            )

    def _learns_price(self, model: str, unpriced: bool) -> bool:  # noqa: FBT001 - private
        """Return whether a first call of the model, in flight, will tell its price."""
        unknown = unpriced or model in self._unpriced or not self.limits_money
        return not unknown and any(other.model == model for other in self._reserved)

    def _short(self, share: Reservation, others: Collection[Reservation]) -> str | None:
        """Return the first limit that the share does not fit into besides the others."""
        wanted = {
            "calls": self._used.calls + len(others) + 1,
            "tokens": self._used.tokens + sum(other.tokens for other in others) + share.tokens,
            "money": self._used.money + sum(other.money for other in others) + share.money,
        }
        for name, limit in self._limits.items():
            if limit is not None and wanted[name] > limit:
                return name
        return None

    def _exceeded(self, short: str, share: Reservation) -> BudgetExceeded:
        needs = {
            "calls": "",
            "tokens": f"; this call may need {share.tokens:,} tokens",
            "money": f"; this call may cost ${share.money:.2g}",
        }
        return BudgetExceeded(
            f"the budget for chat models is used up: {self._account()}{needs[short]}.",
            hint=f"to go on, call budget.raise_to({short}=...) with more than before, and run it "
            "again: answers that a cache has kept use nothing",
        )

    def _account(self) -> str:
        used, limits = self._used, self._limits
        parts = []
        if limits["calls"] is not None:
            parts.append(f"{used.calls:,} of {limits['calls']:,} calls")
        if limits["tokens"] is not None:
            parts.append(f"{used.tokens:,} of {limits['tokens']:,} tokens")
        if limits["money"] is not None:
            more = f" and {used.unpriced:,} of unknown price" if used.unpriced else ""
            parts.append(f"${used.money:.4f} of ${limits['money']:.2f}{more}")
        in_flight = f", {len(self._reserved):,} in flight" if self._reserved else ""
        return ", ".join(parts) + in_flight

    def _wake(self) -> None:
        """Let all that wait look again, in the order in which they came."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has, by its bytes of UTF-8; rather too many."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN)
