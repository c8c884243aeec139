"""Numbers for terms, and texts as runs of those numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.analysis import Analyzer

__all__ = ["Vocabulary"]

#: Characters of remembered pieces, beyond which they are forgotten: a few ten megabytes.
_MOST_REMEMBERED = 4_000_000


class Vocabulary:
    """Every term's number, in the order of first sight.

    Texts are split at blanks, and the terms of each piece (a word with the punctuation around it)
    are looked up rather than found again, which is what makes indexing fast.

    Parameters
    ----------
    analyzer
        Cuts texts into terms.
    terms
        Terms that have their numbers already: 0, 1, 2, ...
    """

    def __init__(self, analyzer: Analyzer, terms: Iterable[str] = ()) -> None:
        self.numbers: dict[str, int] = {term: number for number, term in enumerate(terms)}
        self._analyzer = analyzer
        self._pieces = _Pieces(analyzer, self.numbers)

    def numbered(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the texts' terms by number; new terms get theirs.

        Returns
        -------
        tuple
            All texts' term numbers, one text after the other, and how many each text has.
        """
        if self._pieces.characters > _MOST_REMEMBERED:
            self._pieces = _Pieces(self._analyzer, self.numbers)
        known = self._pieces
        number_of = known.__getitem__
        found = array("i")
        ends = np.empty(len(texts) + 1, np.int64)
        ends[0] = 0
        for index, text in enumerate(texts, start=1):
            found.extend(map(number_of, text.split()))
            ends[index] = len(found)
        pieces = np.array(found, np.int32)
        starts, flat = np.array(known.starts, np.int32), np.array(known.flat, np.int32)
        sizes = np.diff(starts)[pieces]
        before = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(sizes, out=before[1:])
        places = np.repeat(starts[pieces] - before[:-1], sizes)
        places += np.arange(len(places))
        return flat[places], np.diff(before[ends]).astype(np.int32)


class _Pieces(dict[str, int]):
    """Numbers pieces; the terms of piece i are ``flat[starts[i]:starts[i + 1]]``."""

    def __init__(self, analyzer: Analyzer, numbers: dict[str, int]) -> None:
        super().__init__()
        self._tokens = analyzer.tokens
        self._numbers = numbers
        self.starts = array("i", [0])
        self.flat = array("i")
        self.characters = 0

    def __missing__(self, piece: str) -> int:
        numbers, flat = self._numbers, self.flat
        for term in self._tokens(piece):
            flat.append(numbers.setdefault(term, len(numbers)))
        number = self[piece] = len(self)
        self.starts.append(len(flat))
        self.characters += len(piece)
        return number
