"""What a model is shown of a document so that it can situate one of its chunks."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from nbrag.ingestion.processors._derived import own_context
from nbrag.models.chat.passages import clip_words, word_spans
from nbrag.types import Chunk, ChunkKind

__all__ = ["Surroundings", "by_document", "surroundings"]

#: Most words of a document's outline, or of its opening where it has no headings.
_OUTLINE_WORDS = 200
_OPENING_WORDS = 60
_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A chunk among its neighbours.

    Attributes
    ----------
    outline
        The document's headings, one path per line; the document's opening where it has none.
    passages
        Texts in the document's order, each with the headings that it stands under.
    place
        Index of the chunk itself among them.
    """

    outline: str
    passages: tuple[str, ...]
    place: int


async def by_document(chunks: AsyncIterator[Chunk]) -> AsyncIterator[list[Chunk]]:
    """Yield the rows of one document after the other; a document's rows stand together."""
    rows: list[Chunk] = []
    async for chunk in chunks:
        if rows and chunk.document_id != rows[0].document_id:
            yield rows
            rows = []
        rows.append(chunk)
    if rows:
        yield rows


def surroundings(
    rows: Sequence[Chunk], *, window: int | None, words: int
) -> list[Surroundings | None]:
    """Return what is shown for each row of a document, None for derived rows.

    Parameters
    ----------
    rows
        All rows of one document, in order.
    window
        How many chunks before and after are shown, None for all.
    words
        Most words of the passages together, counted as in prompts; the chunk itself comes first,
        then its nearest neighbours, and the last of them is cut on its far side.
    """
    originals = [row for row in rows if row.kind is ChunkKind.ORIGINAL]
    texts = [_text(row) for row in originals]
    outline = _outline(originals)
    places = itertools.count()
    return [
        _around(texts, next(places), outline, window, words)
        if row.kind is ChunkKind.ORIGINAL
        else None
        for row in rows
    ]


def _text(chunk: Chunk) -> str:
    context = own_context(chunk)
    return f"{context}\n{chunk.content}" if context else chunk.content


def _around(
    texts: Sequence[str], place: int, outline: str, window: int | None, words: int
) -> Surroundings:
    reach = len(texts) if window is None else window
    own = clip_words(texts[place], words)
    left = words - len(word_spans(own))
    before: list[str] = []
    after: list[str] = []
    for distance in range(1, reach + 1):
        for index, side in ((place - distance, before), (place + distance, after)):
            # A side that was cut, or has ended, goes no further.
            if left > 0 and 0 <= index < len(texts):
                shown = _cut(texts[index], left, keep_end=side is before)
                left -= len(word_spans(shown))
                side.append(shown)
        if left <= 0 or (place - distance < 0 and place + distance >= len(texts)):
            break
    return Surroundings(outline, (*reversed(before), own, *after), len(before))


def _cut(text: str, words: int, *, keep_end: bool) -> str:
    """Return the end or the beginning of a text."""
    if not keep_end:
        return clip_words(text, words)
    spans = word_spans(text)
    return text if len(spans) <= words else text[spans[-words][0] :]


def _outline(chunks: Sequence[Chunk]) -> str:
    """Return the headings, as deep as they fit; without any, how the document begins."""
    paths = [path for path in map(_path, chunks) if path]
    if not paths:
        return clip_words(chunks[0].content, _OPENING_WORDS) if chunks else ""
    for depth in range(max(map(len, paths)), 0, -1):
        lines = dict.fromkeys(_SEPARATOR.join(path[:depth]) for path in paths)
        text = "\n".join(lines)
        if len(word_spans(text)) <= _OUTLINE_WORDS:
            return text
    return clip_words(text, _OUTLINE_WORDS)


def _path(chunk: Chunk) -> tuple[str, ...]:
    """Return the title and the headings above a chunk."""
    line = own_context(chunk).partition("\n")[0]
    return tuple(line.split(_SEPARATOR)) if line else chunk.heading_path
