"""What all calls of model providers share: LiteLLM's import, retries, and readable errors."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from nbrag.errors import (
    ChatError,
    ChatUnavailable,
    ConfigurationError,
    MissingDependency,
    ModelError,
    RateLimited,
)

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

__all__ = [
    "NO_RETRIES",
    "chat_error",
    "is_transient",
    "load_litellm",
    "provider_error",
    "refuse_keys",
    "retry_after",
    "retrying",
    "without_secrets",
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
    "PaymentRequiredError": "see the provider's billing page",
    "InternalServerError": "the provider's server failed, or could not be reached; try again",
    "UnprocessableEntityError": "the provider does not take one of the options",
}
#: Of each status that stands for something to mend: what LiteLLM calls it elsewhere.
_TO_MEND = {
    401: "AuthenticationError",
    402: "PaymentRequiredError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
}
#: LiteLLM has no common error for a missing key: OpenAI's is a "server error", Gemini's "no
#: connection".
_KEY_MISSING = re.compile(
    r"missing credentials|missing (?:\w+ )?api[ _]key|api_key client option must be set",
    re.IGNORECASE,
)
_TYPE_REMARK = r"Items? '.*on TypedDict class .*`ReadOnly` qualifier"
_PROVIDER_MISSING = "LLM Provider NOT provided"
#: Longest wait, in seconds, that a server's Retry-After is followed.
_LONGEST_WAIT = 120.0


class _GivenZero(int):
    """A zero that counts as given: LiteLLM's embedding reads 0 as "not said" and retries twice."""

    def __bool__(self) -> bool:
        return True


#: For ``max_retries`` of LiteLLM's calls, so that :func:`retrying` alone decides.
NO_RETRIES = _GivenZero(0)
#: Names of options that carry a secret; ``prompt_cache_key`` and ``max_tokens`` do not.
_SECRET_OPTION = re.compile(
    r"^(?!prompt_cache_key$).*(?:key|secret|password|authorization|credential)"
    r"|^(?:\w+_)?token$",
    re.IGNORECASE,
)
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
    _silence_type_remarks()
    return litellm


def _silence_type_remarks() -> None:
    """Keep what pydantic remarks about LiteLLM's own types, at first use of each, off the page."""
    shown = (getattr(message, "pattern", message) for _, message, *_ in warnings.filters)
    if _TYPE_REMARK not in shown:
        warnings.filterwarnings("ignore", message=_TYPE_REMARK, category=UserWarning)


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed a moment later."""
    if isinstance(error, ChatUnavailable | RateLimited):
        return True
    return any(kind.__name__ in _TRANSIENT for kind in type(error).__mro__)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds that the server asked to wait, None when it did not."""
    if isinstance(error, RateLimited):
        return error.retry_after
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
    return ModelError(f"{model} failed: {_words(error)}", hint=hint)


def chat_error(model: str, error: Exception) -> ModelError:
    """Return what a failed call of a chat model is to nbrag, in one line with no key in it.

    Returns
    -------
    ModelError
        For what the person has to mend: a key that is missing, refused or has no money left,
        or a model that does not exist.
    RateLimited
        When the provider takes no more requests for now, with the wait that it asks for.
    ChatUnavailable
        Without a connection, after a failure of the server, or when the time is up.
    ChatError
        For everything else: a request that is too long, filtered or not understood, or an
        answer that can't be read.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    words = _words(error)
    status = getattr(error, "status_code", None)
    if _KEY_MISSING.search(words):
        return ModelError(f"{model} has no key: {words}", hint=_HINTS["AuthenticationError"])
    if _PROVIDER_MISSING in words:
        return ModelError(
            f"'{model}' does not say which provider has the model.",
            hint="write provider/model, e.g. openai/gpt-4o-mini or ollama/llama3.2",
        )
    known = next((name for name in (*_TO_MEND.values(), *_HINTS) if name in kinds), "")
    known = _TO_MEND.get(status, known) if isinstance(status, int) else known
    hint = _HINTS.get(known, "")
    if known in _TO_MEND.values():
        return ModelError(f"{model} failed: {words}", hint=hint)
    if status == 429 or "RateLimitError" in kinds:
        return RateLimited(
            f"{model} takes no more requests for now: {words}",
            hint=_HINTS["RateLimitError"],
            retry_after=retry_after(error),
        )
    if is_transient(error) or (isinstance(status, int) and status >= 500):
        return ChatUnavailable(f"{model} failed: {words}", hint=hint)
    if isinstance(error, OSError | TimeoutError) or "ClientError" in kinds:
        return ChatUnavailable(f"{model} can't be reached: {words or type(error).__name__}")
    if status is None:
        return ChatError(f"{model} gave no usable answer ({type(error).__name__}: {words}).")
    return ChatError(f"{model} refused the request: {words}", hint=hint)


def refuse_keys(options: Mapping[str, Any]) -> None:
    """Refuse options of a call that hold a secret, also one level down (headers).

    Raises
    ------
    ConfigurationError
        When there is one; its value is not told.
    """
    for name, value in options.items():
        names = [name, *(value if isinstance(value, Mapping) and "header" in name else ())]
        if any(_SECRET_OPTION.search(str(inner)) for inner in names):
            raise ConfigurationError(
                "a key can't be an option: it could end up in a saved notebook.",
                hint="set it in the environment, e.g. OPENAI_API_KEY",
            )


def _words(error: Exception) -> str:
    """Return the provider's own words on one line; cleaned first, so that no key is cut in two."""
    text = without_secrets(str(getattr(error, "message", None) or error))
    text = " ".join(text.partition("Traceback (most recent call last)")[0].split())
    text = re.sub(r"^litellm\.\w+: ", "", text)
    return text if len(text) <= 400 else f"{text[:400]}..."


def without_secrets(text: str) -> str:
    """Return the text with stars in place of what is, or looks like, a key or a password."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return _SECRET_TEXT.sub("***", text)
