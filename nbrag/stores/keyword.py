"""The keyword leg: BM25 over an inverted index in memory.

Scores are those of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
Beyond" (2009), with the inverse document frequency ``ln(1 + (N - n + 0.5) / (n + 0.5))``, which is
never negative. The index is a few immutable segments; an insert makes a new one, so that a text
is found right after it was added, and small ones are merged. Document counts and lengths are
those of the living rows, so that scores equal those of an index built afresh.
"""

from __future__ import annotations

import heapq
import json
import logging
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbrag.stores._segments import Segment, merge_segments
from nbrag.stores.analysis import Analyzer

__all__ = ["KeywordIndex"]

_log = logging.getLogger("nbrag.stores")
_FORMAT = 1
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
        How fast repeats of a term stop counting, and how far long texts are held back.
    """

    def __init__(self, analyzer: Analyzer, *, k1: float = 1.2, b: float = 0.75) -> None:
        self.analyzer = analyzer
        self.k1 = k1
        self.b = b
        self._vocabulary: dict[str, int] = {}
        self._segments: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        """Return how many rows are indexed."""
        return sum(segment.alive_count for segment in self._segments)

    @property
    def nbytes(self) -> int:
        """Bytes of the postings, without the vocabulary."""
        return sum(segment.nbytes for segment in self._segments)

    def add(self, rows: NDArray[np.int64], texts: Sequence[str]) -> None:
        """Index texts under new row numbers.

        Parameters
        ----------
        rows
            Shape (n,), none of them indexed already.
        texts
            n texts; one without terms is counted but never found.
        """
        if len(rows) != len(texts):
            raise ValueError(f"{len(rows)} rows for {len(texts)} texts")
        if not len(rows):
            return
        vocabulary, tokens = self._vocabulary, self.analyzer.tokens
        flat: list[int] = []
        lengths = np.empty(len(texts), np.int32)
        for index, text in enumerate(texts):
            terms = tokens(text)
            lengths[index] = len(terms)
            flat += [vocabulary.setdefault(term, len(vocabulary)) for term in terms]
        segment = Segment.build(np.asarray(rows, np.int64), np.array(flat, np.int64), lengths)
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
        segments = self._segments
        weights = Counter(self.analyzer.query_tokens(query))
        terms = sorted(
            (self._vocabulary[term], count)
            for term, count in weights.items()
            if term in self._vocabulary
        )
        total = sum(segment.alive_count for segment in segments)
        if k < 1 or not terms or not total:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        average = sum(segment.alive_length for segment in segments) / total
        postings = [[segment.postings(term) for segment in segments] for term, _ in terms]
        factors = []
        for (_, count), found in zip(terms, postings, strict=True):
            frequency = sum(
                segment.count_alive(documents)
                for segment, (documents, _) in zip(segments, found, strict=True)
            )
            idf = np.log(1 + (total - frequency + 0.5) / (frequency + 0.5))
            factors.append(count * idf * (self.k1 + 1))
        wanted = None if allowed is None else np.sort(np.asarray(allowed, np.int64))
        best = [
            self._search_segment(
                segment,
                postings=[found[i] for found in postings],
                factors=factors,
                average=average,
                k=k,
                wanted=wanted,
            )
            for i, segment in enumerate(segments)
        ]
        merged = heapq.merge(
            *(zip((-scores).tolist(), rows.tolist(), strict=True) for rows, scores in best)
        )
        top = [pair for pair, _ in zip(merged, range(k), strict=False)]
        return (
            np.array([row for _, row in top], np.int64),
            np.array([-score for score, _ in top], np.float32),
        )

    def _search_segment(
        self,
        segment: Segment,
        *,
        postings: Sequence[tuple[NDArray[np.int32], NDArray[np.float32]]],
        factors: Sequence[float],
        average: float,
        k: int,
        wanted: NDArray[np.int64] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return one segment's best rows, best first."""
        scores = np.zeros(len(segment), np.float32)
        scale = self.k1 * self.b / max(average, 1e-9)
        floor = self.k1 * (1 - self.b)
        for (documents, counts), factor in zip(postings, factors, strict=True):
            norm = counts + floor + scale * segment.lengths[documents]
            scores[documents] += (factor * counts / norm).astype(np.float32)
        mask = segment.mask(wanted)
        if mask is not None:
            scores *= mask
        hits = np.flatnonzero(scores)
        if len(hits) > k:
            values = scores[hits]
            threshold = np.partition(values, len(hits) - k)[len(hits) - k]
            hits = hits[values >= threshold]
        values = scores[hits]
        order = np.lexsort((segment.rows[hits], -values))[:k]
        return segment.rows[hits[order]], values[order]

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
        words = "\n".join(self._vocabulary)
        fresh = target.with_name(f"{target.name}.new")
        with fresh.open("wb") as file:
            np.savez(
                file,
                label=np.frombuffer(json.dumps(label).encode(), np.uint8),
                vocabulary=np.frombuffer(words.encode("utf-8", "surrogatepass"), np.uint8),
                **merged.arrays(),  # type: ignore[arg-type]  # arrays by name, no options
            )
        fresh.replace(target)

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
                segment = Segment.from_arrays(stored)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            _log.warning("a keyword index on disk is damaged and will be rebuilt: %s", error)
            return None
        terms = words.split("\n") if words else []
        index._vocabulary = {term: number for number, term in enumerate(terms)}
        if len(segment):
            if segment.highest_term >= len(terms):
                return None
            index._segments = (segment,)
        return index
