"""What all calls of model providers share: LiteLLM's import, retries, and readable errors."""

from __future__ import annotations

import os
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from nbrag.errors import MissingDependency, ModelError

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

__all__ = [
    "NO_RETRIES",
    "is_transient",
    "load_litellm",
    "provider_error",
    "retry_after",
    "retrying",
]

#: Names of LiteLLM's errors after which the same call may succeed.
_TRANSIENT = frozenset(
    (
        "APIConnectionError",
        "BadGatewayError",
        "InternalServerError",
        "RateLimitError",
        "ServiceUnavailableError",
        "Timeout",
    )
)
_HINTS = {
    "AuthenticationError": "set the provider's key in the environment, e.g. OPENAI_API_KEY, and "
    "restart the kernel or set it through os.environ",
    "PermissionDeniedError": "this key may not use the model; see the provider's settings",
    "NotFoundError": "check the model's name and its provider prefix",
    "RateLimitError": "wait, or make fewer calls at once with concurrency=",
    "Timeout": "raise timeout=, or see whether the server answers at all",
    "APIConnectionError": "see whether the server runs and api_base= is right",
    "ContextWindowExceededError": "lower max_tokens=",
    "InternalServerError": "the provider's server failed, or could not be reached; try again",
}
#: Longest wait, in seconds, that a server's Retry-After is followed.
_LONGEST_WAIT = 120.0


class _GivenZero(int):
    """A zero that counts as given: LiteLLM's embedding reads 0 as "not said" and retries twice."""

    def __bool__(self) -> bool:
        return True


#: For ``max_retries`` of LiteLLM's calls, so that :func:`retrying` alone decides.
NO_RETRIES = _GivenZero(0)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"(?<=Bearer )\S+|(?<=://)[^/\s@]+(?=@)|\b(?:sk|pk|hf|gsk|xai|pa)[-_][\w*.-]{6,}",
    re.IGNORECASE,
)


def load_litellm() -> Any:
    """Import LiteLLM (3 to 5 seconds at first) so that it neither downloads nor prints.

    Raises
    ------
    MissingDependency
        When LiteLLM is not installed.
    """
    # Without this, the import fetches a price list from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm
    except ImportError:
        raise MissingDependency("calling a model provider", "litellm") from None
    litellm.suppress_debug_info = True
    return litellm


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed a moment later."""
    return any(kind.__name__ in _TRANSIENT for kind in type(error).__mro__)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds that the server asked to wait, None when it did not."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    more = getattr(error, "litellm_response_headers", None) or {}
    stated = headers.get("retry-after") or more.get("retry-after")
    if stated is None:
        return None
    try:
        seconds = float(stated)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(stated).timestamp() - time.time()
        except ValueError:
            return None
    return min(max(seconds, 0.0), _LONGEST_WAIT)


def retrying(attempts: int) -> AsyncRetrying:
    """Return a retry loop: transient errors only, Retry-After first, else growing random waits."""
    from tenacity import (
        AsyncRetrying,
        retry_if_exception,
        stop_after_attempt,
        wait_random_exponential,
    )

    growing = wait_random_exponential(multiplier=0.5, max=20)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        stated = retry_after(error) if error else None
        return growing(state) if stated is None else stated

    return AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=wait,
        retry=retry_if_exception(is_transient),
        reraise=True,
    )


def provider_error(model: str, error: Exception) -> ModelError:
    """Return a one-line error with the provider's own words, and with no key in it."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    hint = next((_HINTS[kind] for kind in kinds if kind in _HINTS), "")
    return ModelError(f"{model} failed: {_without_secrets(_words(error))}", hint=hint)


def _words(error: Exception) -> str:
    text = " ".join(str(getattr(error, "message", None) or error).split())
    text = re.sub(r"^litellm\.\w+: ", "", text)
    return text if len(text) <= 400 else f"{text[:400]}..."


def _without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return _SECRET_TEXT.sub("***", text)
