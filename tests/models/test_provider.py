from __future__ import annotations

import sys
import time
import warnings
from email.utils import formatdate

import httpx
import pytest

from nbrag.errors import (
    ChatError,
    ChatUnavailable,
    ConfigurationError,
    MissingDependency,
    ModelError,
    RateLimited,
)
from nbrag.models import provider
from nbrag.models.provider import (
    chat_error,
    is_transient,
    load_litellm,
    provider_error,
    refuse_keys,
    retry_after,
)


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


def test_remarks_about_litellms_own_types_stay_off_the_page():
    for _ in range(2):
        load_litellm()
    before = list(warnings.filters)
    load_litellm()
    assert warnings.filters == before  # a changed list would show old warnings of others again
    warnings.warn(
        "Items 'a', 'b' on TypedDict class 'X' are using the `ReadOnly` qualifier.",
        UserWarning,
        stacklevel=1,
    )


@pytest.mark.parametrize("length", range(380, 401, 4))
def test_no_half_of_a_secret_is_told(monkeypatch, length):
    monkeypatch.setenv("SOME_API_KEY", "my-own-secret-value")
    message = str(chat_error("m", RuntimeError("x" * length + " my-own-secret-value")))
    assert "my-own" not in message


class Told(Exception):
    def __init__(self, message, status=None):
        super().__init__(message)
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Told("no", 403), ModelError),
        (Told("no", 500), ChatUnavailable),
        (Told("no", 429), RateLimited),
        (Told("no", 409), ChatError),
        (TimeoutError(), ChatUnavailable),
        (ConnectionResetError("gone"), ChatUnavailable),
        (KeyError("choices"), ChatError),
        (
            Told("Missing Gemini API key. Set it.\nTraceback (most recent call last)", 500),
            ModelError,
        ),
    ],
)
def test_failures_of_chat_models_are_told_apart(error, kind):
    found = chat_error("m", error)
    assert type(found) is kind
    assert "Traceback" not in str(found)
    assert is_transient(found) == (kind in (ChatUnavailable, RateLimited))


@pytest.mark.parametrize(
    "options",
    [{"api_key": 1}, {"token": 1}, {"hf_token": 1}, {"headers": {"Authorization": 1}}],
)
def test_keys_are_no_options(options):
    with pytest.raises(ConfigurationError):
        refuse_keys(options)


def test_options_that_only_sound_like_keys_are_taken():
    refuse_keys({"max_tokens": 5, "prompt_cache_key": "a", "extra_headers": {"X-Title": "t"}})
