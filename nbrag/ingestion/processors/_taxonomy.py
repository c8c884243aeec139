"""Taxonomies: labels with their descriptions, from options or a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from nbrag.errors import ConfigurationError

__all__ = ["OTHER", "Taxonomy", "read_taxonomy", "taxonomy_lines"]

#: The label of what fits none of the taxonomy's.
OTHER: Final = "other"
_SEPARATOR = ": "
_MOST_LABELS = 500


class Taxonomy:
    """The labels that a chunk may get; ``other`` is always the last.

    Parameters
    ----------
    lines
        Labels, each alone or as ``label: description``.

    Attributes
    ----------
    descriptions
        Descriptions by label, empty where there is none.

    Raises
    ------
    ValueError
        When there is no label besides ``other``, more than 500, an empty one, or one twice (case
        and white space don't matter).
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.descriptions: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        for line in lines:
            label, _, description = " ".join(line.split()).partition(_SEPARATOR)
            key = _key(label)
            if not key:
                raise ValueError("a label is empty")
            if key in self._labels:
                raise ValueError(f"the label '{label}' is given twice")
            self._labels[key] = label
            self.descriptions[label] = description.strip()
        other = self._labels.setdefault(OTHER, OTHER)
        # Last, and in this spelling, whichever way it was given.
        described = self.descriptions.pop(other, "")
        self.descriptions[OTHER] = described or "none of the labels above"
        self._labels[OTHER] = OTHER
        if len(self.descriptions) < 2:
            raise ValueError("the taxonomy is empty: give labels, taxonomy=web,data,security")
        if len(self.descriptions) > _MOST_LABELS + 1:
            raise ValueError(f"the taxonomy has more than {_MOST_LABELS} labels")

    @property
    def labels(self) -> list[str]:
        """The labels, ``other`` last."""
        return list(self.descriptions)

    def label(self, name: str) -> str | None:
        """Return the label that is meant, in its own spelling; None when there is no such label.

        Case, white space, quotes and a repeated description don't matter.
        """
        return self._labels.get(_key(name)) or self._labels.get(_key(name.partition(_SEPARATOR)[0]))

    def lines(self) -> list[str]:
        """Return the labels with their descriptions, one line each."""
        return [
            f"{label}{_SEPARATOR}{text}" if text else label
            for label, text in self.descriptions.items()
        ]


def _key(label: str) -> str:
    return " ".join(label.split()).strip("\"'`").strip().casefold()


def taxonomy_lines(value: Any) -> Any:
    """Return a mapping of labels to descriptions as lines, anything else as it is.

    Raises
    ------
    ValueError
        When a label holds a colon and a blank, or a description is no text.
    """
    if not isinstance(value, Mapping):
        return value
    lines = []
    for label, description in value.items():
        if not isinstance(label, str) or not isinstance(description, str | None):
            raise ValueError(f"{label!r}: {description!r} is not a label with its description")  # noqa: TRY004 - pydantic wants it
        if _SEPARATOR in label:
            raise ValueError(f"the label '{label}' holds a colon and a blank")
        lines.append(f"{label}{_SEPARATOR}{description}" if description else label)
    return tuple(lines)


def read_taxonomy(path: str) -> Taxonomy:
    """Return the taxonomy of a JSON (``.json``) or YAML file: a list, or label to description.

    Raises
    ------
    ConfigurationError
        When the file can't be read or holds no taxonomy.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        loaded = json.loads(text) if path.lower().endswith(".json") else _yaml(text)
        return Taxonomy(_listed(taxonomy_lines(loaded)))
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
    raise ConfigurationError(
        f"stage 'topics': the taxonomy in {path} can't be used: {reason}.",
        hint="give a JSON or YAML file in UTF-8 with a list of labels, or label: description",
    )


def _listed(value: Any) -> Iterable[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError("it is neither a list of labels nor a mapping of labels to descriptions")
    return value


def _yaml(text: str) -> Any:
    import yaml

    try:
        # Builds text only, so that a label such as "on" stays a word.
        return yaml.load(text, yaml.BaseLoader)  # noqa: S506
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None
