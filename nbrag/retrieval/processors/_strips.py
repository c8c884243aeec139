"""Passages cut into strips of a few sentences, and put together again from some of them."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nbrag.models.chat.passages import word_spans
from nbrag.types import RetrievalChunk, Span

__all__ = ["recomposed", "split_strips"]

#: Between two strips that don't stand next to each other.
GAP = " [...] "
#: Where a unit of text ends: a blank line, or a sentence's end (a full stop that isn't followed
#: by a small letter and stands after no single capital and no title; the stops of scripts
#: without blanks).
_BORDER = re.compile(
    r"\n[^\S\n]*\n\s*"
    r"|(?:(?<!\b[A-Z])(?<!\b[DM]r)(?<!\bM[rs]s)(?<!\bProf)(?<!\bFig)\.|[!?\u2026])"
    r"[\"'\u201d\u2019)\]]*\s+(?![a-z])"
    r"|[\u3002\uff01\uff1f][\u300d\u300f\uff09\u201d]*\s*"
)


def split_strips(
    text: str, *, sentences: int = 3, words: int = 50, fewest: int = 4
) -> list[tuple[int, int]]:
    """Return the strips of a text, as stretches (start, end) without white space at their ends.

    A strip has at most three sentences and 50 words; it does not reach over a blank line, and a
    longer sentence is cut. Together the strips hold all words of the text, but for strips of less
    than four words (headings, leftovers), which are left out, unless there are no others.

    Parameters
    ----------
    text
        A passage.
    sentences, words
        Most of them in a strip.
    fewest
        Fewest words of a strip.
    """
    places = word_spans(text)
    starts = [start for start, _ in places]
    strips: list[tuple[int, int, int]] = []  # first word, end word, sentences
    open_end = False
    for start, end, closed in _units(text):
        first, last = bisect.bisect_left(starts, start), bisect.bisect_left(starts, end)
        while first < last:
            stop = min(last, first + words)
            before = strips[-1] if strips else (0, 0, sentences)
            if open_end and before[2] < sentences and stop - before[0] <= words:
                strips[-1] = (before[0], stop, before[2] + 1)
            else:
                strips.append((first, stop, 1))
            first, open_end = stop, True
        open_end = open_end and not closed
    long = [strip for strip in strips if strip[1] - strip[0] >= fewest] or strips
    return [(places[first][0], places[last - 1][1]) for first, last, _ in long]


def _units(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the sentences, and whether a blank line follows."""
    start = 0
    for border in _BORDER.finditer(text):
        yield start, border.end(), border.group().count("\n") > 1
        start = border.end()
    yield start, len(text), True


def recomposed(chunk: RetrievalChunk, strips: Sequence[tuple[int, int]]) -> RetrievalChunk:
    """Return a chunk that holds only some strips of its text, in the order of the text.

    Where the chunk's text is its document's, its span shrinks to the strips' stretch, and the
    record's ``strip_spans`` say where each strip stands in the document.

    Parameters
    ----------
    chunk
        A chunk with its whole text.
    strips
        Stretches of the text, at least one.
    """
    text = chunk.content
    runs: list[list[int]] = []
    for start, end in sorted(strips):
        if runs and not text[runs[-1][1] : start].strip():
            runs[-1][1] = end
        else:
            runs.append([start, end])
    content = GAP.join(text[start:end] for start, end in runs)
    span = chunk.span
    if (
        span is None
        or span.end - span.start != len(text)
        # Put together before: lengths that agree are chance.
        or "strip_spans" in chunk.record
    ):
        return replace(chunk, content=content)
    places = [(span.start + start, span.start + end) for start, end in sorted(strips)]
    record = {**chunk.record, "strip_spans": places}
    return replace(
        chunk, content=content, record=record, span=Span(places[0][0], places[-1][1], span.page)
    )
