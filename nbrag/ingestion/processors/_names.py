"""Names in texts: whether one occurs, and one spelling for all the ways to write it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from nbrag.protocols import Collection

__all__ = ["FoldedText", "NameTable", "bare_name", "name_key"]

#: Values of one field that are looked at, the most frequent ones.
_MOST_VALUES = 50_000
_POSSESSIVE = re.compile(r"['\u2019]s$", re.IGNORECASE)
_QUOTES = "\"'`\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a\u300c\u300d\u300e\u300f"
#: What may lead a version, and is no part of it: v4.2, version 4.2.
_VERSION_SIGN = re.compile(r"^(?:version|ver|v)[\s.]*(?=\d)", re.IGNORECASE)
#: Classes of characters that are signs: symbols other than mathematical ones, raised digits, and
#: what is not seen.
_SIGNS = frozenset({"So", "Sk", "Sc", "Cf", "Cc", "No"})
#: Scripts without blanks between words, and Hangul, whose particles are attached.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)


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
        if not (_in_word(sign) or sign in "+#") or sign == "_":
            gap = True
            continue
        if gap and parts and parts[-1].isdigit() and sign.isdigit():
            parts.append(".")
        parts.append(sign)
        gap = False
    key = "".join(parts)
    return key if any(map(_in_word, key)) else ""


def bare_name(name: str) -> str:
    """Return a name in one line, without quotes around it."""
    return " ".join(name.split()).strip(_QUOTES).strip()


def _core(name: str) -> str:
    """Return a name without quotes and a possessive ending."""
    return _POSSESSIVE.sub("", bare_name(_POSSESSIVE.sub("", name.strip())))


def _in_word(sign: str) -> bool:
    """Return whether a character is part of a word: letters, marks, digits, underscores.

    Small raised digits are none: they number notes.
    """
    category = unicodedata.category(sign)
    return category[0] in "LM" or category in {"Nd", "Nl"} or sign == "_"


class FoldedText:
    """A text in which names are looked for without regard to case and white space.

    Parameters
    ----------
    text
        Any text.
    """

    def __init__(self, text: str) -> None:
        self._text = unicodedata.normalize("NFC", text)
        self._folded, self._offsets = _folded(self._text)

    def find(self, name: str, *, version: bool = False) -> str | None:
        """Return a name as the text writes it where it occurs first, None where it doesn't.

        It must begin and end at the borders of words. Dots between digits, and ``+`` and ``#``
        behind a letter, belong to the word: 4.2 is not in 4.2.1, nor C in C++. Where a script has
        no blanks between words, there are borders everywhere.

        Parameters
        ----------
        name
            What is looked for, of any length.
        version
            Whether it is a version, which may stand behind a ``v``.
        """
        if not name_key(name):
            return None
        wanted = _folded(unicodedata.normalize("NFC", bare_name(name)))[0]
        start = self._folded.find(wanted)
        while start >= 0:
            end = start + len(wanted)
            if self._bordered(start, end, version=version):
                found = self._text[self._offsets[start] : self._offsets[end - 1] + 1]
                return " ".join(found.split())
            start = self._folded.find(wanted, start + 1)
        return None

    def _bordered(self, start: int, end: int, *, version: bool) -> bool:
        text = self._folded
        if version and text[start].isdigit() and start and text[start - 1] == "v":
            before = _is_border(text, start - 1)
        else:
            before = _is_border(text, start)
        return before and _is_border(text, end) and not _goes_on(text, end)


def _is_border(text: str, place: int) -> bool:
    """Return whether a word may end before, and another begin at, a place."""
    if not 0 < place < len(text):
        return True
    left, right = text[place - 1], text[place]
    if unicodedata.category(right)[0] == "M":
        return False
    if _UNSPACED.match(left) or _UNSPACED.match(right):
        return True
    if _in_word(left) and _in_word(right):
        return False
    # A dot between digits.
    around = text[max(place - 2, 0) : place + 2]
    if left == "." and right.isdigit():
        return not (place > 1 and around[0].isdigit())
    return not (left.isdigit() and right == "." and text[place + 1 : place + 2].isdigit())


def _goes_on(text: str, end: int) -> bool:
    """Return whether + or # behind a letter belong to a word that ends there, as in C++."""
    if not text[end - 1].isalpha() or text[end : end + 1] not in {"+", "#"}:
        return False
    rest = text[end:].lstrip("+#")
    return not rest or not _in_word(rest[0])


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text without case and with single blanks, and where each character comes from."""
    signs: list[str] = []
    offsets: list[int] = []
    blank = False
    for offset, sign in enumerate(text):
        if sign.isspace():
            blank = True
            continue
        if blank and signs:
            signs.append(" ")
            offsets.append(offset - 1)
        blank = False
        plain = unicodedata.normalize("NFKC", sign) if sign.isalpha() or sign.isdecimal() else sign
        for part in plain.casefold():
            signs.append(part)
            offsets.append(offset)
    return "".join(signs), offsets


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

    async def learn_field(self, collection: Collection, field: str) -> None:
        """Take up what a collection holds in a field: its 50,000 most frequent values."""
        if field in await collection.fields():
            self.learn(map(str, await collection.field_values(field, limit=_MOST_VALUES)))

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

    def distinct(self, names: Iterable[str]) -> list[str]:
        """Return the spellings of names, each once, in their order."""
        return [name for name in dict.fromkeys(map(self.spelling, names)) if name]
