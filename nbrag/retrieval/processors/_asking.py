"""Questions to a chat model that have to be answered while the stage still has time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from nbrag.errors import ChatUnavailable
from nbrag.spec import ModelStageOptions

__all__ = ["before", "last_moment"]

_Answer = TypeVar("_Answer")

#: Share of a stage's time limit after which it waits no longer: the rest is for handing on what
#: is known by then, which would be lost when the limit itself cuts the stage off.
_SHARE = 0.9


def last_moment(options: ModelStageOptions) -> float:
    """Return the running loop's time, in seconds, up to which a stage that starts now may wait."""
    return asyncio.get_running_loop().time() + _SHARE * options.time_limit


async def before(moment: float, answer: Awaitable[_Answer]) -> _Answer:
    """Return an answer that comes before a moment of the loop's time.

    Raises
    ------
    ChatUnavailable
        When it doesn't.
    """
    try:
        async with asyncio.timeout_at(moment):
            return await answer
    except TimeoutError:
        raise ChatUnavailable(
            "there was no answer within the stage's time.", hint="raise time_limit="
        ) from None
