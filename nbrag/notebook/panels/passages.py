"""A found passage in its document: the text around it, with the passage marked."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbrag.rendering import plain
from nbrag.types import RetrievalChunk, Span

if TYPE_CHECKING:
    from nbrag.protocols import Collection

__all__ = ["Passage", "passage_html", "read_passage"]

#: Characters shown on either side at first; "more" shows three times as many.
SURROUNDINGS = 350
_BOX = (
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:26em;overflow:auto;padding:0.5em 0.7em;"
    "border:1px solid var(--jp-border-color2,#8888);border-radius:3px"
)
_MARK = "background:#ffd54f;color:#000;padding:0 0.1em"


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a document around what was found.

    Attributes
    ----------
    chunk
        What was found.
    before, text, after
        The surroundings and the passage itself.
    more_before, more_after
        Whether the document goes on there.
    note
        Why there are no surroundings, where there are none.
    """

    chunk: RetrievalChunk
    before: str
    text: str
    after: str
    more_before: bool = False
    more_after: bool = False
    note: str = ""

    @property
    def more(self) -> bool:
        """Whether there is more of the document to be shown."""
        return self.more_before or self.more_after


async def read_passage(
    collection: Collection, chunk: RetrievalChunk, surroundings: int = SURROUNDINGS
) -> Passage:
    """Read a passage with what stands around it.

    Parameters
    ----------
    collection
        Where it was found.
    chunk
        What was found.
    surroundings
        Characters on either side.

    Raises
    ------
    DocumentNotFound
        When the document is gone.
    """
    span = chunk.span
    if span is None or not chunk.document_id:
        note = "This text was made from several passages and stands in no document."
        return Passage(chunk, "", chunk.content, "", note=note)
    start = max(span.start - surroundings, 0)
    # One character more tells whether the document goes on.
    read = await collection.document_text(
        chunk.document_id, Span(start, span.end + surroundings + 1)
    )
    inner, outer = span.start - start, span.end - start
    after = read[outer:]
    return Passage(
        chunk,
        read[:inner],
        read[inner:outer],
        after[:surroundings],
        more_before=start > 0,
        more_after=len(after) > surroundings,
    )


def passage_html(passage: Passage) -> str:
    """Return the passage for people: where it stands, and the text with the passage marked."""

    def escape(text: str) -> str:
        # Line ends are kept; other invisible characters are not.
        return "\n".join(html.escape(plain(line), quote=True) for line in text.split("\n"))

    chunk = passage.chunk
    page = "" if chunk.page is None else f", page {chunk.page}"
    place = escape(" > ".join((chunk.source, *chunk.heading_path)) + page)
    note = f'<p role="note">{escape(passage.note)}</p>' if passage.note else ""
    dots = '<span style="opacity:0.6">[…]</span>'
    return (
        f'<div style="font-weight:600;margin-bottom:0.3em">{place}</div>{note}'
        f'<div role="region" tabindex="0" aria-label="Passage in its document" dir="auto"'
        f' style="{_BOX}">{dots if passage.more_before else ""}{escape(passage.before)}'
        f'<mark style="{_MARK}">{escape(passage.text)}</mark>'
        f"{escape(passage.after)}{dots if passage.more_after else ''}</div>"
    )
