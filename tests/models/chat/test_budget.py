from __future__ import annotations

import asyncio

import pytest

from nbrag.errors import BudgetExceeded, ConfigurationError
from nbrag.models.chat import Budget, BudgetUse, TokenPrice
from nbrag.types import ChatMessage, ChatReply

HELLO = [ChatMessage("user", "hello")]  # 2 tokens and 4 for the message, as they are estimated


async def reserve(budget, **more):
    options = {"max_tokens": 10}
    return await asyncio.wait_for(budget.reserve("m", HELLO, options, **more), 1)


async def test_calls_are_counted_when_they_end_and_reserved_before():
    budget = Budget(calls=2)
    first, second = await reserve(budget), await reserve(budget)
    assert (budget.used.calls, budget.reserved) == (0, 2)
    with pytest.raises(BudgetExceeded, match="0 of 2 calls, 2 in flight"):
        await reserve(budget)
    budget.settle(first, ChatReply("a", 5, 5, 0.1))
    budget.settle(second, None)
    assert budget.used == BudgetUse(calls=2, tokens=10, money=0.1)
    with pytest.raises(BudgetExceeded, match=r"2 of 2 calls.*Hint: .*raise_to\(calls=") as caught:
        await reserve(budget)
    assert "use nothing" in caught.value.hint


async def test_a_share_that_is_given_back_counts_nothing():
    budget = Budget(calls=1)
    budget.release(await reserve(budget))
    assert budget.used == BudgetUse()
    await reserve(budget)


async def test_a_spent_budget_can_be_raised():
    budget = Budget(calls=1)
    budget.settle(await reserve(budget), ChatReply("a"))
    budget.raise_to(calls=2)
    assert repr(budget) == "<Budget: 1 of 2 calls>"
    await reserve(budget)


async def test_tokens_in_flight_are_waited_for_rather_than_refused():
    budget = Budget(tokens=40)  # one call takes 16 at most
    shares = [await reserve(budget), await reserve(budget)]
    third = asyncio.ensure_future(reserve(budget))
    await asyncio.sleep(0.01)
    assert not third.done()
    budget.settle(shares[0], ChatReply("a", 3, 2))
    assert (await third).tokens == 16
    assert budget.used.tokens == 5


async def test_tokens_that_really_are_used_up_end_the_waiting():
    budget = Budget(tokens=40)
    shares = [await reserve(budget), await reserve(budget)]
    third = asyncio.ensure_future(reserve(budget))
    await asyncio.sleep(0.01)
    budget.settle(shares[0], ChatReply("a", 16, 10))
    with pytest.raises(BudgetExceeded, match=r"26 of 40 tokens, 1 in flight; .* 16 tokens"):
        await third


async def test_one_that_waits_can_be_cancelled_and_another_goes_on():
    budget = Budget(tokens=20)
    share = await reserve(budget)
    waiting = [asyncio.ensure_future(reserve(budget)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    budget.release(share)
    assert (await waiting[1]).tokens == 16
    assert waiting[0].cancelled() or waiting[0].cancelling()


async def test_a_raised_budget_wakes_those_who_wait():
    budget = Budget(tokens=20)
    await reserve(budget)
    waiting = asyncio.ensure_future(reserve(budget))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(budget.raise_to, tokens=40)
    assert (await waiting).tokens == 16


async def test_the_longest_answer_so_far_is_reserved_where_no_length_is_given():
    budget = Budget(tokens=10_000)
    first = await budget.reserve("m", HELLO, {})
    assert first.output_tokens == 512
    budget.settle(first, ChatReply("a", 6, 80))
    assert (await budget.reserve("m", HELLO, {})).output_tokens == 80


async def test_tokens_that_nobody_counts_are_estimated():
    budget = Budget(tokens=100)
    budget.settle(await reserve(budget), ChatReply("x" * 30))
    assert budget.used.tokens == 6 + 10


async def test_money_is_reserved_at_the_listed_price_and_settled_at_the_real_one():
    budget = Budget(money=1.0)
    price = TokenPrice(0.01, 0.05)
    share = await reserve(budget, price=price)
    assert share.money == pytest.approx(0.56)
    budget.settle(share, ChatReply("a", 6, 2, 0.16))
    assert budget.used.money == pytest.approx(0.16)
    budget.settle(await reserve(budget, price=price), ChatReply("a", 6, 10, 0.56))
    with pytest.raises(BudgetExceeded, match=r"\$0\.7200 of \$1\.00; this call may cost \$0\.56"):
        await reserve(budget, price=price)


async def test_spent_money_stops_calls_of_any_price():
    budget = Budget(money=0.1)
    budget.settle(await reserve(budget), ChatReply("a", 6, 2, 0.1))
    with pytest.raises(BudgetExceeded):
        await reserve(budget)
    with pytest.raises(BudgetExceeded):
        await budget.reserve("another", HELLO, {})


async def test_an_unknown_price_is_refused_where_money_alone_is_limited():
    budget = Budget(money=1.0)
    with pytest.raises(ConfigurationError, match=r"price of m is not known.*calls="):
        await reserve(budget, unpriced=True)
    # Where nobody can tell beforehand, the first answer does.
    budget.settle(await reserve(budget), ChatReply("a", 6, 2, None))
    assert budget.used.unpriced == 1
    with pytest.raises(ConfigurationError, match="price of m is not known"):
        await reserve(budget)


async def test_an_unknown_price_is_taken_where_something_else_is_limited_too():
    budget = Budget(money=1.0, calls=1)
    budget.settle(await reserve(budget, unpriced=True), ChatReply("a", 6, 2, None))
    with pytest.raises(
        BudgetExceeded, match=r"1 of 1 calls, \$0\.0000 of \$1\.00 and 1 of unknown price"
    ):
        await reserve(budget, unpriced=True)


@pytest.mark.parametrize(
    "limits", [{}, {"calls": -1}, {"tokens": float("nan")}, {"money": float("inf")}]
)
def test_senseless_limits_are_refused(limits):
    with pytest.raises(ConfigurationError):
        Budget(**limits)


def test_a_senseless_raise_is_refused_and_changes_nothing():
    budget = Budget(calls=3)
    with pytest.raises(ConfigurationError):
        budget.raise_to(calls=-1)
    assert repr(budget) == "<Budget: 0 of 3 calls>"


async def test_a_first_call_of_unknown_price_goes_alone():
    budget = Budget(money=1.0)
    first = await reserve(budget)
    waiting = [asyncio.ensure_future(reserve(budget)) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert budget.reserved == 1
    budget.settle(first, ChatReply("a", 6, 2, 0.16))  # 2 cents a token, 32 for the next
    assert (await waiting[0]).money == pytest.approx(0.32)
    assert (await waiting[1]).money == pytest.approx(0.32)
    third = asyncio.ensure_future(reserve(budget))
    await asyncio.sleep(0.01)
    assert not third.done()  # 16 + 3 * 32 cents may be too much, or not
    budget.raise_to(money=1.2)
    await third
