"""Names in texts: whether one occurs."""

from __future__ import annotations

import re
import unicodedata

from nbrag.stores.names import bare_name, in_word, name_key

__all__ = ["FoldedText"]

#: Scripts without blanks between words, and Hangul, whose particles are attached.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)


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
    if in_word(left) and in_word(right):
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
    return not rest or not in_word(rest[0])


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
