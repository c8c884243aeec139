"""Names of persons and things: one spelling for all the ways to write one.

What a collection holds in its ``entities_`` fields is written in one spelling each. A filter may
name any other: it is read as the one that is stored.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from nbrag.stores.filters import AllOf, AnyOf, Contains, Filter, Not
from nbrag.types import MetadataKeys

__all__ = [
    "MOST_NAMES",
    "NAMES_PREFIX",
    "NameTable",
    "bare_name",
    "in_stored_spelling",
    "in_word",
    "name_key",
]

#: Fields that hold names begin so.
NAMES_PREFIX = "entities_"
#: Names of one field that are looked at, the most frequent ones.
MOST_NAMES = 50_000
_POSSESSIVE = re.compile(r"['\u2019]s$", re.IGNORECASE)
_QUOTES = "\"'`\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a\u300c\u300d\u300e\u300f"
#: What may lead a version, and is no part of it: v4.2, version 4.2.
_VERSION_SIGN = re.compile(r"^(?:version|ver|v)[\s.]*(?=\d)", re.IGNORECASE)
#: Classes of characters that are signs: symbols other than mathematical ones, raised digits, and
#: what is not seen.
_SIGNS = frozenset({"So", "Sk", "Sc", "Cf", "Cc", "No"})


def name_key(name: str, *, version: bool = False) -> str:
    """Return what all spellings of a name have in common; empty when it holds no letter or digit.

    Case, punctuation, spacing, the width of letters and a possessive ending don't count. The
    border between two digits does (1.2 is not 12), and so do ``+`` and ``#`` (C, C++, C#).

    Parameters
    ----------
    name
        Any text.
    version
        Whether it is a version, of which a leading ``v`` or ``version`` is no part.

    Examples
    --------
    >>> name_key("Node.js's") == name_key("NodeJS")
    True
    """
    text = _core(name)
    # Signs such as (tm) fall away before they could become letters.
    text = "".join(" " if unicodedata.category(sign) in _SIGNS else sign for sign in text)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()
    if version:
        text = _VERSION_SIGN.sub("", text)
    parts: list[str] = []
    gap = False
    for sign in text:
        if not (in_word(sign) or sign in "+#") or sign == "_":
            gap = True
            continue
        if gap and parts and parts[-1].isdigit() and sign.isdigit():
            parts.append(".")
        parts.append(sign)
        gap = False
    key = "".join(parts)
    return key if any(map(in_word, key)) else ""


def bare_name(name: str) -> str:
    """Return a name in one line, without quotes around it."""
    return " ".join(name.split()).strip(_QUOTES).strip()


def _core(name: str) -> str:
    """Return a name without quotes and a possessive ending."""
    return _POSSESSIVE.sub("", bare_name(_POSSESSIVE.sub("", name.strip())))


def in_word(sign: str) -> bool:
    """Return whether a character is part of a word: letters, marks, digits, underscores.

    Small raised digits are none: they number notes.
    """
    category = unicodedata.category(sign)
    return category[0] in "LM" or category in {"Nd", "Nl"} or sign == "_"


class NameTable:
    """One spelling for each name of a field: the first that was seen.

    Parameters
    ----------
    known
        Spellings that were chosen before.
    aliases
        Other names by what they stand for.
    version
        Whether the names are versions.
    """

    def __init__(
        self,
        known: Iterable[str] = (),
        *,
        aliases: Mapping[str, str] | None = None,
        version: bool = False,
    ) -> None:
        self._version = version
        self._spellings: dict[str, str] = {}
        self._aliases = {self._key(alias): name for alias, name in (aliases or {}).items()}
        self.learn(known)

    @classmethod
    def of_field(
        cls, field: str, names: Iterable[Any], aliases: Mapping[str, str] | None = None
    ) -> Self:
        """Return the table of a field ``entities_...``.

        Parameters
        ----------
        field
            Its name; that of the versions has rules of its own.
        names
            The spellings that it holds.
        aliases
            Other names by what they stand for.
        """
        version = field == MetadataKeys.ENTITIES_VERSIONS
        return cls(map(str, names), aliases=aliases, version=version)

    def _key(self, name: str) -> str:
        return name_key(name, version=self._version)

    def learn(self, names: Iterable[str]) -> None:
        """Take up spellings in their order; names that have one keep it."""
        for name in names:
            self.spelling(name)

    def copy(self) -> NameTable:
        """Return a table that knows the same, and learns on its own."""
        table = NameTable(version=self._version)
        table._aliases = self._aliases
        table._spellings = dict(self._spellings)
        return table

    def spelling(self, name: str) -> str:
        """Return the one spelling of a name; its own when it is new, without a possessive ending.

        A name without a letter or digit gives an empty text.
        """
        key = self._key(name)
        alias = self._aliases.get(key)
        if alias is not None:
            name, key = alias, self._key(alias)
        if not key:
            return ""
        return self._spellings.setdefault(key, _core(name))

    def known(self, name: str) -> str:
        """Return the one spelling of a name where it has one; else the name as it is."""
        key = self._key(name)
        alias = self._aliases.get(key)
        return self._spellings.get(key if alias is None else self._key(alias), alias or name)

    def distinct(self, names: Iterable[str]) -> list[str]:
        """Return the spellings of names, each once, in their order."""
        return [name for name in dict.fromkeys(map(self.spelling, names)) if name]


def in_stored_spelling(condition: Filter, table_of: Callable[[str], NameTable]) -> Filter:
    """Return a filter in which names are written as the collection stores them.

    Parameters
    ----------
    condition
        Any filter; only ``"name" in entities_...`` is changed.
    table_of
        Returns what a collection knows of a field's names; asked for the fields that are looked
        into.
    """
    match condition:
        case AllOf(parts) | AnyOf(parts):
            return type(condition)(tuple(in_stored_spelling(part, table_of) for part in parts))
        case Not(part):
            return Not(in_stored_spelling(part, table_of))
        case Contains(field, value) if field.startswith(NAMES_PREFIX):
            return replace(condition, value=table_of(field).known(value))
        case _:
            return condition
