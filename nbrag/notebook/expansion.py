"""The one expansion rule of all magics: ``{{ name }}`` and ``{{ name.attribute }}``.

Single braces and ``$`` are literal. A name that does not exist is an error, never left standing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbrag.errors import MagicUsageError, did_you_mean

__all__ = ["expand", "expand_body", "look_up"]

_FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def look_up(path: str, namespace: Mapping[str, Any]) -> Any:
    """Return the value of ``name`` or ``name.attribute``.

    Raises
    ------
    MagicUsageError
        With the nearest name, when there is no such variable or attribute.
    """
    name, *attributes = path.split(".")
    if name not in namespace:
        known = [known for known in namespace if not known.startswith("_")]
        near = did_you_mean(name, known, what="variables")
        hint = near if near.startswith("did you mean") else "set it in a cell above"
        raise MagicUsageError(f"there is no variable '{name}'.", hint=hint)
    value = namespace[name]
    for attribute in attributes:
        try:
            value = getattr(value, attribute)
        except AttributeError:
            known = [known for known in dir(value) if not known.startswith("_")]
            near = did_you_mean(attribute, known)
            hint = near if near.startswith("did you mean") else ""
            kind = type(value).__name__
            raise MagicUsageError(
                f"'{path}': a {kind} has no attribute '{attribute}'.", hint=hint
            ) from None
    return value


def _value(field: re.Match[str], namespace: Mapping[str, Any]) -> Any:
    path = field.group(1).strip()
    if not _PATH.fullmatch(path):
        raise MagicUsageError(
            f"{field.group()} is not a name or name.attribute.",
            hint="compute the value in a cell above, or switch expansion off with --raw",
        )
    return look_up(path, namespace)


def expand(text: str, namespace: Mapping[str, Any]) -> str:
    """Return the text with each ``{{ name }}`` replaced by the value as text.

    Parameters
    ----------
    text
        A line, an option's value or a question.
    namespace
        The notebook's variables.

    Raises
    ------
    MagicUsageError
        When a name does not exist or the braces hold something else.
    """
    return _FIELD.sub(lambda field: str(_value(field, namespace)), text)


def expand_body(text: str, namespace: Mapping[str, Any]) -> str:
    """Return a body of stages with each ``{{ name }}`` replaced.

    A value is quoted as the stages' grammar needs it, so that blanks, quotes and commas in it
    stay part of the value. Lists become several values. Comments are left alone.

    Raises
    ------
    MagicUsageError
        When a name does not exist or the braces hold something else.
    """
    if "{{" not in text:
        return text
    from nbrag.spec.grammar import format_value

    parts: list[str] = []
    quoted, index = False, 0
    while index < len(text):
        char = text[index]
        field = _FIELD.match(text, index) if char == "{" else None
        if field is not None:
            value = _value(field, namespace)
            if quoted:
                parts.append(format_value(f" {value}")[2:-1])
            else:
                parts.append(format_value(_plain(value)))
            index = field.end()
        elif char == "#" and not quoted:
            end = text.find("\n", index)
            end = len(text) if end < 0 else end
            parts.append(text[index:end])
            index = end
        elif quoted and char == "\\":
            parts.append(text[index : index + 2])
            index += 2
        else:
            quoted = (not quoted) if char == '"' else (quoted and char != "\n")
            parts.append(char)
            index += 1
    return "".join(parts)


def _plain(value: Any) -> Any:
    """Return numbers, truth values, None and lists as they are, all else as text."""
    if value is None or isinstance(value, bool | int | float | list | tuple | set | frozenset):
        return value
    return str(value)
