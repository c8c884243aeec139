"""Turns text into the terms of the keyword leg.

The default patterns of search engines drop what technical questions hang on: digits, versions,
error codes, ``C#``, words of other scripts. Here a written word gives itself and its parts, so
that ``NB-4031``, ``nb-4031`` and ``4031`` find each other, in texts and in questions alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["Analyzer"]

#: Marks (vowel signs, accents) belong to the letter before them, and are no word on their own.
_LETTERS: Final = r"[\p{L}\p{N}_][\p{L}\p{M}\p{N}_]*"
#: A word with its inner joints; C#, C++ and .NET keep their signs.
_ASCII_WORD: Final = re.compile(r"\.?[a-z0-9_]+(?:[-./:'@+&][a-z0-9_]+)*(?:\+\+|#)?")
_ANY_WORD: Final = rf"\.?{_LETTERS}(?:[-./:'@+&]{_LETTERS})*(?:\+\+|#)?|\p{{So}}"
#: Scripts that are written without blanks between words: two neighbours make a term.
_UNSPACED: Final = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々]+"
)
_PART: Final = re.compile(r"[^\W_]+", re.UNICODE)
_CLITICS: Final = frozenset({"s", "t", "d", "m", "ll", "re", "ve"})
#: Longest written word that is kept whole; beyond it stand paths and encoded data.
_LONGEST: Final = 64
#: Distinct words whose terms are remembered.
_REMEMBERED: Final = 200_000
#: Words with more terms are long and rare (a sentence without blanks): not worth remembering.
_MOST_TERMS_REMEMBERED: Final = 6

#: Characters that are written in several ways, or in or out, without another meaning.
_ONE_WAY: Final[dict[int, str | None]] = {
    **dict.fromkeys([0x2019, 0x02BC], "'"),
    **dict.fromkeys([0x2010, 0x2011], "-"),
    # Soft hyphens, emoji's variation selectors and key caps.
    **dict.fromkeys([0x00AD, 0xFE0E, 0xFE0F, 0x20E3], None),
    # Arabic: short vowels and the lengthening stroke are ornament.
    **dict.fromkeys([*range(0x064B, 0x0653), 0x0670, 0x0640], None),
    # Digits of other scripts are those of ASCII.
    **{
        code: str(unicodedata.decimal(chr(code)))
        for code in range(0x0660, 0x1000)
        if unicodedata.category(chr(code)) == "Nd"
    },
}

_ENGLISH_STOP_WORDS: Final = frozenset(
    """
    a about after all an and any are as at be been before but by can could did do does for
    from had has have how i if in into is it its may more most no not of on or our s should so
    some such than that the their them then there these they this those to us was we were what
    when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905 - a word list reads better than 80 lines of quotes
)


class Analyzer:
    """Cuts text into terms; the same for texts and questions.

    Compatibility forms are folded (NFKC) and case is dropped. Each written word gives one term
    for itself and one for each of its parts; runs of Han, Kana, Hangul, Thai and their like give
    their pairs of characters; a symbol such as an emoji is a term.

    Parameters
    ----------
    language
        ``english`` reduces words of a-z to their stems (Snowball's English stemmer, Porter 2) and
        leaves common words out of questions that have others; None does neither. Words in other
        scripts are never stemmed.
    """

    def __init__(self, language: str | None = "english") -> None:
        if language not in ("english", None):
            raise ValueError(f"no stemmer for {language!r}")
        self.language = language
        self._terms: dict[str, tuple[str, ...]] = {}
        self._stem: Callable[[str], str] | None = None
        self._any_word: Any = None
        self._unspaced: Any = None

    @property
    def signature(self) -> str:
        """What an index must have been made with to be understood by this analyzer."""
        return f"2-{self.language or 'plain'}"

    def tokens(self, text: str) -> list[str]:
        """Return the text's terms, in order, repeats included.

        No term reaches over a blank: a text's terms are those of ``text.split()``, joined.
        """
        terms = self._terms
        if len(terms) > _REMEMBERED:
            terms.clear()
        if text.isascii():
            # Most often an index asks for one word with the punctuation around it.
            bare = text if text.isalpha() else text.lstrip("([\"'").rstrip(".,;:!?)]\"'")
            if bare.isalpha():
                word = bare.lower()
                known = terms.get(word)
                if known is None:
                    known = terms[word] = (self._stemmed(word),)
                return list(known)
        found: list[str] = []
        for word in self._words(text):
            known = terms.get(word)
            if known is None:
                if word.isascii() and word.isalpha():
                    known = (self._stemmed(word),)
                else:
                    known = tuple(self._expand(word))
                if len(known) <= _MOST_TERMS_REMEMBERED:
                    terms[word] = known
            found += known
        return found

    def query_tokens(self, text: str) -> list[str]:
        """Return a question's terms; common words are left out when others remain."""
        found = self.tokens(text)
        if self.language is None:
            return found
        telling = [term for term in found if term not in _ENGLISH_STOP_WORDS]
        return telling or found

    def _words(self, text: str) -> list[str]:
        if text.isascii():
            return _ASCII_WORD.findall(text.lower())
        if self._any_word is None:
            import regex

            # Other threads go by the one that is set last.
            self._unspaced = regex.compile(_UNSPACED)
            self._any_word = regex.compile(_ANY_WORD)
        folded = unicodedata.normalize("NFKC", text).casefold().translate(_ONE_WAY)
        words: list[str] = self._any_word.findall(unicodedata.normalize("NFKC", folded))
        return words

    def _expand(self, word: str) -> Iterable[str]:
        """Yield the terms of one written word."""
        if not word.isascii() and self._unspaced is not None and self._unspaced.search(word):
            yield from self._pairs(word)
            return
        parts = self._parts(word)
        if len(word) <= _LONGEST and parts != [word]:
            joined = word.strip("_")
            if "'" not in joined and any(not char.isalnum() for char in joined):
                yield joined
            # v3.0 is found by 3.0, too.
            if re.fullmatch(r"v\d+(\.\d+)+", joined):
                yield joined[1:]
        for part in parts:
            yield self._stemmed(part)
            if re.fullmatch(r"v\d+", part):
                yield part[1:]

    def _parts(self, word: str) -> list[str]:
        if word.isascii():
            parts = _PART.findall(word)
            if "'" in word and len(parts) > 1:
                parts = [part for part in parts if part not in _CLITICS]
            return parts or [word]
        parts = [part for part in re.split(r"[-./:'@+&_#]+", word) if part]
        return parts or [word]

    def _pairs(self, word: str) -> Iterable[str]:
        position = 0
        for run in self._unspaced.finditer(word):
            if run.start() > position:
                yield from self._expand(word[position : run.start()])
            text = run.group()
            if len(text) == 1:
                yield text
            for index in range(len(text) - 1):
                yield text[index : index + 2]
            position = run.end()
        if position < len(word):
            yield from self._expand(word[position:])

    def _stemmed(self, word: str) -> str:
        if self._stem is None:
            self._stem = _stemmer(self.language)
        stemmed: str = self._stem(word) if word.isascii() and word.isalpha() else word
        return stemmed


def _stemmer(language: str | None) -> Callable[[str], str]:
    """Return what reduces a word of a-z to its stem."""
    if language is None:
        return str
    import Stemmer

    # Without its own cache, which isn't safe between threads; the analyzer remembers words.
    stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
    return stem
