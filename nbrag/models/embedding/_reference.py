"""An embedder's name with options behind it: ``owner/name dimension=256 file=onnx/model.onnx``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nbrag.errors import ConfigurationError, did_you_mean

__all__ = ["split_reference"]

_NUMBERS = ("dimension", "max_tokens", "threads")
_TEXTS = ("file", "pooling", "query_prefix", "document_prefix")
_OTHERS = ("providers", "prepared")
#: Options of an embedder at a provider.
_PROVIDER = ("dimension", "max_tokens", "query_prefix", "document_prefix")
_OPTION = re.compile(r"""\s+(\w+)=("[^"]*"|'[^']*'|[^\s"']+)""")
_OPTIONS = re.compile(rf"(?:{_OPTION.pattern})+\s*$")


def split_reference(reference: str) -> tuple[str, dict[str, Any]]:
    """Return an embedder's name and its options.

    Parameters
    ----------
    reference
        The name, then ``key=value`` words; a value with spaces stands in quotes. A path that
        exists is taken as a whole.

    Raises
    ------
    ConfigurationError
        For an unknown option, one given twice, or a value that is not a number where one is
        needed.
    """
    found = _OPTIONS.search(reference)
    if found is None or Path(reference).expanduser().exists():
        return reference.strip(), {}
    name = reference[: found.start()].strip()
    known = _PROVIDER if name.startswith("litellm:") else (*_NUMBERS, *_TEXTS, *_OTHERS)
    options: dict[str, Any] = {}
    for key, value in _OPTION.findall(found[0]):
        if key not in known:
            raise ConfigurationError(
                f"embedder '{name}': there is no option '{key}'.",
                hint=did_you_mean(key, known, what="options"),
            )
        if key in options:
            raise ConfigurationError(f"embedder '{name}': option '{key}' is given twice.")
        text = value[1:-1] if value[0] in "\"'" else value
        options[key] = _value(name, key, text)
    return name, options


def _value(name: str, key: str, text: str) -> Any:
    if key in _NUMBERS:
        return _number(name, key, text)
    if key == "providers":
        return tuple(part.strip() for part in text.split(","))
    if key == "prepared":
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"embedder '{name}': prepared={text} is not true or false.")
        return text.lower() == "true"
    return text


def _number(name: str, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigurationError(f"embedder '{name}': {key}={text} is not a number of 1 or more.")
    return int(text)
