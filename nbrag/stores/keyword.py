"""The keyword leg: BM25 over an inverted index in memory.

Scores are those of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
Beyond" (2009), with the inverse document frequency ``ln(1 + (N - n + 0.5) / (n + 0.5))``, which is
never negative. The index is a few immutable segments; an insert makes a new one, so that a text
is found right after it was added, and small ones are merged. Document counts and lengths are
those of the living rows, so that scores equal those of an index built afresh. Rows derived from
others (questions, summaries) are left out of them: a passage's score must not depend on whether
somebody wrote questions for it.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbrag.stores._keyword_query import KeywordQuery
from nbrag.stores._segments import Segment, merge_segments
from nbrag.stores._vocabulary import Vocabulary
from nbrag.stores.analysis import Analyzer

__all__ = ["KeywordIndex"]

_log = logging.getLogger("nbrag.stores")
_FORMAT = 2
#: The segments that norms were computed for, and the norms.
_Norms = tuple[tuple[Segment, ...], list[NDArray[np.float32]]]
#: Segments that may stand side by side before the smallest are merged.
_MOST_SEGMENTS = 8


class KeywordIndex:
    """An inverted index of texts by row number.

    Changes replace the tuple of segments as a whole, so a search that runs meanwhile sees the
    index as it was; changes themselves must come one at a time.

    Parameters
    ----------
    analyzer
        Cuts texts and questions into terms.
    k1, b
        How fast repeats of a term stop counting, and how far long texts are held back. 1.2 and
        0.75 were the best of 30 pairs by mean nDCG@10 over seven English and three other
        collections (0.767; the other pairs reach 0.759 to 0.767), SciFact left out; they give
        SciFact 0.689, and XQuAD in Chinese, Arabic, German 0.963, 0.887, 0.929.
    """

    def __init__(self, analyzer: Analyzer, *, k1: float = 1.2, b: float = 0.75) -> None:
        self.analyzer = analyzer
        self.k1 = k1
        self.b = b
        self._vocabulary = Vocabulary(analyzer)
        self._segments: tuple[Segment, ...] = ()
        self._norms: _Norms = ((), [])

    def __len__(self) -> int:
        """Return how many rows are indexed."""
        return sum(segment.alive_count for segment in self._segments)

    @property
    def nbytes(self) -> int:
        """Bytes of the postings, without the vocabulary."""
        return sum(segment.nbytes for segment in self._segments)

    def add(
        self,
        rows: NDArray[np.int64],
        texts: Sequence[str],
        derived: NDArray[np.bool_] | None = None,
    ) -> None:
        """Index texts under new row numbers.

        Parameters
        ----------
        rows
            Shape (n,), none of them indexed already.
        texts
            n texts; one without terms is counted but never found.
        derived
            Which rows don't count in the statistics, shape (n,); None when all do.
        """
        if len(rows) != len(texts):
            raise ValueError(f"{len(rows)} rows for {len(texts)} texts")
        if not len(rows):
            return
        terms, lengths = self._vocabulary.numbered(texts)
        segment = Segment.build(np.asarray(rows, np.int64), terms, lengths, derived)
        self._segments = self._merged((*self._segments, segment))

    def _merged(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Merge neighbours of like size, so that their number grows with the logarithm."""
        current = [segment for segment in segments if segment.alive_count]
        while len(current) > 1 and (
            len(current) > _MOST_SEGMENTS or len(current[-2]) <= 2 * len(current[-1])
        ):
            current[-2:] = [merge_segments(current[-2], current[-1])]
        return tuple(current)

    def remove(self, rows: NDArray[np.int64]) -> None:
        """Take rows out; numbers that are not indexed are passed over."""
        gone = np.unique(np.asarray(rows, np.int64))
        if len(gone):
            kept = tuple(segment.without(gone) for segment in self._segments)
            self._segments = tuple(segment for segment in kept if segment.alive_count)

    def search(
        self, query: str, k: int, allowed: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the best rows for a question.

        Parameters
        ----------
        query
            The question's words.
        k
            Most rows.
        allowed
            Rows that may be found, in any order; None for all.

        Returns
        -------
        tuple
            Row numbers and scores, both of shape (m,), m <= k, best first; only rows that share
            a term with the question; equal scores in the order of the row numbers.
        """
        return self.query(query).best(k, allowed)

    def query(self, text: str) -> KeywordQuery:
        """Return a question made ready for the index as it is now; later changes leave it alone.

        Parameters
        ----------
        text
            The question's words.
        """
        segments = self._segments
        numbers = self._vocabulary.numbers
        weights = Counter(self.analyzer.query_tokens(text))
        # By the terms themselves: sums come out the same however the index has grown.
        terms = sorted(term for term in weights if term in numbers)
        if not terms or not segments:
            return KeywordQuery((), (), (), ())
        total = sum(segment.counted for segment in segments)
        postings = [[segment.postings(numbers[term]) for segment in segments] for term in terms]
        factors = []
        for term, found in zip(terms, postings, strict=True):
            frequency = sum(
                segment.count_of(documents)
                for segment, (documents, _) in zip(segments, found, strict=True)
            )
            idf = math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))
            factors.append(weights[term] * idf * (self.k1 + 1))
        by_segment = tuple(tuple(found[i] for found in postings) for i in range(len(segments)))
        return KeywordQuery(segments, by_segment, tuple(factors), tuple(self._norms_of(segments)))

    def _norms_of(self, segments: tuple[Segment, ...]) -> list[NDArray[np.float32]]:
        """Return ``k1 * (1 - b + b * length / average)`` of each segment's documents."""
        of, norms = self._norms
        if of is not segments:
            total = sum(segment.counted for segment in segments)
            length = sum(segment.counted_length for segment in segments)
            # Where nothing counts, or nothing has a term, any average keeps the order.
            average = length / total if total and length else 1.0
            floor, scale = self.k1 * (1 - self.b), self.k1 * self.b / average
            norms = [(floor + scale * segment.lengths).astype(np.float32) for segment in segments]
            self._norms = (segments, norms)
        return norms

    # On disk -----------------------------------------------------------------------------

    def save(self, path: str | Path, generation: int) -> None:
        """Write the index to a file, replacing it in one step.

        Parameters
        ----------
        path
            The file.
        generation
            State of the collection that the index shows.
        """
        target = Path(path)
        segments = self._segments
        merged = segments[0] if segments else Segment.empty()
        for segment in segments[1:]:
            merged = merge_segments(merged, segment)
        merged = merged.compacted()
        label = {
            "format": _FORMAT,
            "generation": generation,
            "analyzer": self.analyzer.signature,
            "k1": self.k1,
            "b": self.b,
        }
        # Terms of removed rows stay behind.
        every = list(self._vocabulary.numbers)
        words = "\n".join(every[number] for number in merged.terms)
        merged = merged.renumbered()
        fresh = target.with_name(f"{target.name}.new")
        try:
            with fresh.open("wb") as file:
                np.savez(
                    file,
                    label=np.frombuffer(json.dumps(label).encode(), np.uint8),
                    vocabulary=np.frombuffer(words.encode("utf-8", "surrogatepass"), np.uint8),
                    **merged.arrays(),  # type: ignore[arg-type]  # arrays by name, no options
                )
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    @classmethod
    def load(
        cls,
        path: str | Path,
        generation: int,
        analyzer: Analyzer,
        *,
        k1: float = 1.2,
        b: float = 0.75,
    ) -> KeywordIndex | None:
        """Read an index from a file.

        Returns
        -------
        KeywordIndex or None
            None when there is none, when it shows another state or was made with other
            settings, and when it is damaged: it is then to be built afresh.
        """
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                label: dict[str, Any] = json.loads(stored["label"].tobytes())
                index = cls(analyzer, k1=k1, b=b)
                expected = {
                    "format": _FORMAT,
                    "generation": generation,
                    "analyzer": analyzer.signature,
                    "k1": k1,
                    "b": b,
                }
                if label != expected:
                    return None
                words = stored["vocabulary"].tobytes().decode("utf-8", "surrogatepass")
                terms = words.split("\n") if words else []
                segment = Segment.from_arrays(stored, terms=len(terms))
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - damage shows in more ways than can be listed
            _log.warning("a keyword index on disk is damaged and will be rebuilt: %s", error)
            return None
        index._vocabulary = Vocabulary(analyzer, terms)
        if len(segment):
            index._segments = (segment,)
        return index
