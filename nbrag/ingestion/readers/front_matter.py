"""Front matter: the fields between fences at the top of a Markdown file."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FrontMatter", "split_front_matter"]

_YAML = re.compile(r"---[ \t]*\n(?P<body>.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\+\+\+[ \t]*\n(?P<body>.*?\n)?\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_LARGEST = 100_000
#: The parser's time grows with the square of the depth; nobody nests fields this deep.
_DEEPEST = 50
_DEEP_LINE = re.compile(r"(?:[-?:] +){50}")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What stood at the top of a file.

    Attributes
    ----------
    fields
        The values as YAML or TOML types them.
    end
        Offset at which the body begins; 0 when there is no front matter.
    note
        Why it could not be read; empty when all is well.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    end: int = 0
    note: str = ""


def split_front_matter(text: str) -> FrontMatter:
    """Find YAML (``---``) or TOML (``+++``) front matter at the start of the text.

    A first line of dashes that no mapping follows is an ordinary rule. Front matter that does
    not parse is left in the body, with a note.
    """
    if match := _YAML.match(text):
        parsed = _parse_yaml(match["body"] or "")
    elif match := _TOML.match(text):
        parsed = _parse_toml(match["body"] or "")
    else:
        return FrontMatter()
    if isinstance(parsed, str):
        return FrontMatter(note=f"front matter not read: {parsed}")
    return FrontMatter() if parsed is None else FrontMatter(parsed, match.end())


def _parse_yaml(body: str) -> dict[str, Any] | str | None:
    """Return the mapping, None when it is no mapping, or why it can't be read."""
    import yaml

    # The C parser is there with all wheels, and fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(body) > _LARGEST:
        return None
    if _DEEP_LINE.search(body) or _bracket_depth(body) > _DEEPEST:
        return "it is nested too deeply"
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, loader)):
            # Aliases can make a few lines grow without bound.
            return "it uses YAML aliases"
        try:
            loaded = yaml.load(body, loader)  # noqa: S506 - a safe loader
        except ValueError:
            # An impossible date, say: take all values as text.
            loaded = yaml.load(body, yaml.BaseLoader)  # noqa: S506 - builds text only
    except (yaml.YAMLError, RecursionError) as error:
        first = str(getattr(error, "problem", "") or error).partition("\n")[0]
        return first if re.search(r"(?m)^[\w-]+[ \t]*:", body) else None
    if loaded is None:
        return {}
    return {str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else None


def _bracket_depth(body: str) -> int:
    steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", body))
    return max(itertools.accumulate(steps), default=0)


def _parse_toml(body: str) -> dict[str, Any] | str:
    import tomllib

    try:
        return tomllib.loads(body)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return str(error)
