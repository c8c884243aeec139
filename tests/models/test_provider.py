from __future__ import annotations

import sys
import time
from email.utils import formatdate

import httpx
import pytest

from nbrag.errors import MissingDependency
from nbrag.models import provider
from nbrag.models.provider import is_transient, load_litellm, provider_error, retry_after


class Answered(Exception):
    def __init__(self, message="", **headers):
        super().__init__(message)
        self.response = httpx.Response(429, headers=headers)


class RateLimitError(Answered):
    pass


class StillRateLimitError(RateLimitError):
    pass


def test_waits_are_read_in_seconds_and_as_a_date():
    assert retry_after(Answered(**{"retry-after": "1.5"})) == 1.5
    later = formatdate(time.time() + 30, usegmt=True)
    assert retry_after(Answered(**{"retry-after": later})) == pytest.approx(30, abs=2)
    assert retry_after(Answered(**{"retry-after": formatdate(0, usegmt=True)})) == 0
    assert retry_after(Answered(**{"retry-after": "86400"})) == 120
    assert retry_after(Answered(**{"retry-after": "soon"})) is None
    assert retry_after(Answered()) is None
    assert retry_after(ValueError("no response at all")) is None


def test_what_may_pass_is_known_by_name_and_by_parent():
    assert is_transient(RateLimitError())
    assert is_transient(StillRateLimitError())
    assert not is_transient(ValueError())


async def test_only_passing_errors_are_tried_again():
    tried = []

    async def call(error):
        async for attempt in provider.retrying(3):
            with attempt:
                tried.append(error)
                raise error

    for error, times in [(RateLimitError(**{"retry-after": "0"}), 3), (ValueError("no"), 1)]:
        tried.clear()
        with pytest.raises(type(error)):
            await call(error)
        assert len(tried) == times


@pytest.mark.parametrize(
    "text",
    [
        "key my-own-secret-value is wrong",
        "Incorrect API key provided: sk-proj-abc123def456.",
        "header Authorization: Bearer abcdefgh12345678",
        "no route to http://me:hunter2hunter2@host/v1",
    ],
)
def test_no_secret_is_told(monkeypatch, text):
    monkeypatch.setenv("SOME_API_KEY", "my-own-secret-value")
    message = str(provider_error("openai/x", RuntimeError(text)))
    assert "***" in message
    for secret in ("my-own-secret-value", "abc123def456", "abcdefgh12345678", "hunter2hunter2"):
        assert secret not in message


def test_long_answers_become_one_short_line():
    message = provider_error("m", RuntimeError("<html>\n" * 500)).message
    assert "\n" not in message
    assert len(message) < 500


def test_hints_follow_the_kind_of_error():
    assert "concurrency=" in provider_error("m", StillRateLimitError("slow down")).hint


def test_a_missing_litellm_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingDependency, match="litellm"):
        load_litellm()
