"""Words that a model quotes, found again in the text that they are said to come from."""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property

__all__ = ["QuotableText"]

#: What is written in several ways, besides what Unicode's compatibility form makes alike.
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\uff02", '"'),
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u2032`\u00b4", "'"),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    }
)
#: Emphasis and code marks, which come and go with the rendering.
_MARKUP = frozenset("*_'\"")
#: Marks of something left out: what stands before and after is looked for apart.
_GAP = re.compile(r"\s*(?:\[\s*(?:\.{2,}|…)\s*\]|\(\s*(?:\.{2,}|…)\s*\)|\.{3,}|…)\s*")
_FEWEST_SIGNS = 4
#: Most places of a quote's words that are looked at for one between two word borders.
_MOST_PLACES = 100


class QuotableText:
    """A text in which quotes are looked for, however they are spaced and set.

    Spaces and line breaks, upper and lower case, kinds of quotation marks, dashes and apostrophes,
    ligatures and full-width forms, emphasis marks and unseen characters make no difference; words
    do.

    Parameters
    ----------
    text
        The text.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        return _folded(self.text)

    def find(self, quote: str) -> tuple[int, int] | None:
        """Return where a quote stands: start and end offsets in the text, or None.

        A quote shorter than four letters or digits is no evidence and is not found.
        """
        wanted, _ = _folded(quote.strip().strip(".,;:!?").strip())
        if sum(sign.isalnum() for sign in wanted) < _FEWEST_SIGNS and not _dense(wanted):
            return None
        folded, places = self._folded
        start = -1
        for _ in range(_MOST_PLACES):
            start = folded.find(wanted, start + 1)
            if start < 0:
                return None
            first, last = places[start], places[start + len(wanted) - 1] + 1
            if self._border(first) and self._border(last):
                return first, last
        return None

    def find_all(self, quote: str) -> list[tuple[int, int]]:
        """Return where the parts of a quote stand that ``...`` may divide; empty if one doesn't."""
        whole = self.find(quote)
        if whole is not None:
            return [whole]
        parts = [part for part in _GAP.split(quote) if part.strip(" .")]
        found = [self.find(part) for part in parts] if len(parts) > 1 else []
        places = [place for place in found if place is not None]
        return places if len(places) == len(parts) else []

    def _border(self, place: int) -> bool:
        """Return whether a word may begin or end here."""
        around = self.text[max(place - 1, 0) : place + 1]
        if place in (0, len(self.text)) or not all(sign.isalnum() for sign in around):
            return True
        return any(_dense(sign) for sign in around)


def _dense(text: str) -> bool:
    """Return whether there is a sign of a script that sets words without blanks."""
    return any(
        "\u0e00" <= sign <= "\u0eff" or "\u3040" <= sign <= "\u9fff" or sign >= "\U00020000"
        for sign in text
    )


def _folded(text: str) -> tuple[str, list[int]]:
    """Return the text as it is compared, and the offset in the text of each of its signs."""
    signs: list[str] = []
    places: list[int] = []
    for place, sign in enumerate(text):
        if sign.isspace():
            continue
        alike = sign.translate(_ALIKE)
        if not sign.isascii():
            if unicodedata.category(sign) == "Cf":
                continue
            alike = unicodedata.normalize("NFKD", alike).translate(_ALIKE)
        for one in alike.casefold():
            if one in _MARKUP or one.isspace():
                continue
            signs.append(one)
            places.append(place)
    return "".join(signs), places
