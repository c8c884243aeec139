"""A map of a collection as a result: points, groups, a question and its hits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

from nbrag.maps.picture import Legend, picture
from nbrag.rendering import Cell, Rendering, clip, plain, render_table
from nbrag.types.exports import arrow_table, pandas_frame

__all__ = ["CollectionMap", "MapHit"]

#: Groups with a mark of their own; the others share one.
_GROUPS = 7
_OTHER = "other"
_COLUMNS = {"id": "string", "source": "string", "group": "string", "x": "float64", "y": "float64"}


@dataclass(frozen=True, slots=True)
class MapHit:
    """A result of the question on the map.

    Attributes
    ----------
    number
        Its rank, which stands in its mark.
    x, y
        Its place.
    source, content
        The document and the text.
    """

    number: int
    x: float
    y: float
    source: str
    content: str


@dataclass(frozen=True, slots=True)
class CollectionMap:
    """Chunks in two dimensions.

    Attributes
    ----------
    collection
        Its name.
    by
        What the marks tell: ``document`` or a field.
    method
        ``pca`` or ``umap``.
    total
        How many source passages the collection has; the map shows ``len`` of them.
    ids, sources, groups
        Per point the chunk, its document, and its value of ``by``.
    points
        (x, y) per point.
    shares
        Parts of the variance along both axes; None for UMAP.
    question, query
        The question and its place; empty and None for none.
    hits
        What it found, best first.
    notes
        What a reader must know.
    """

    collection: str
    by: str
    method: str
    total: int
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    groups: tuple[str, ...]
    points: tuple[tuple[float, float], ...]
    shares: tuple[float, float] | None = None
    question: str = ""
    query: tuple[float, float] | None = None
    hits: tuple[MapHit, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return how many chunks are shown."""
        return len(self.points)

    def legend(self) -> list[tuple[str, int]]:
        """Return the groups with a mark of their own, and how many points each has.

        The seven with the most points, in that order; all others together come last.
        """
        counts = Counter(self.groups).most_common()
        # Equal counts by name, so that a map is the same from run to run.
        counts.sort(key=lambda entry: (-entry[1], entry[0]))
        if len(counts) <= _GROUPS + 1:
            return counts
        rest = counts[_GROUPS:]
        words = f"{_OTHER} ({len(rest)} values)"
        return [*counts[:_GROUPS], (words, sum(count for _, count in rest))]

    @property
    def summary(self) -> str:
        """One line: how many are shown of how many, how, and coloured by what."""
        shown = (
            f"{len(self):,} of {self.total:,} chunks"
            if len(self) < self.total
            else (f"all {self.total:,} chunks")
        )
        sampled = ", a fixed random sample" if len(self) < self.total else ""
        how = self.method.upper()
        if self.shares is not None:
            how += f", {sum(self.shares):.0%} of the variance"
        return f"{self.collection}: {shown}{sampled}; {how}; marks by {self.by}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Rendering:  # noqa: ARG002
        """Return the picture with its legend and the hits, and the same figures as text."""
        legend = self.legend()
        known = {name: place for place, (name, _) in enumerate(legend)}
        rest = len(legend) - 1
        marks = [known.get(group, rest) for group in self.groups]
        svg = picture(
            self.summary,
            [Legend(name, count) for name, count in legend],
            self.points,
            marks,
            question=self.question,
            query=self.query,
            hits=[
                (hit.number, hit.x, hit.y, f"{hit.source}: {clip(hit.content, 160)}")
                for hit in self.hits
            ],
        )
        groups: list[list[Cell]] = [[name, count] for name, count in legend]
        tables = [render_table(self.summary, [self.by, "chunks"], groups, notes=self.notes)]
        words = escape(plain(self.summary), quote=True)
        html = f'<figure style="margin:0"><figcaption>{words}</figcaption>{svg}</figure>'
        html += _notes(self.notes)
        if self.question:
            rows: list[list[Cell]] = [[h.number, h.source, h.content] for h in self.hits]
            found = render_table(
                self.question,
                ["mark", "document", "text"],
                rows,
                details=[hit.content for hit in self.hits],
                paths=["document"],
                notes=[] if rows else ["nothing was found"],
            )
            tables.append(found)
            html += found["text/html"]
        return {
            "text/plain": "\n\n".join(table["text/plain"] for table in tables),
            "text/html": html,
        }

    def __repr__(self) -> str:
        """Show the summary."""
        return f"<CollectionMap {self.summary}>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one row per point: id, source, group, x, y."""
        return [
            {"id": chunk, "source": source, "group": group, "x": x, "y": y}
            for chunk, source, group, (x, y) in zip(
                self.ids, self.sources, self.groups, self.points, strict=True
            )
        ]

    def to_arrow(self) -> Any:
        """Return the rows of :meth:`to_dicts` as a ``pyarrow.Table``."""
        return arrow_table(self.to_dicts(), _COLUMNS)

    def to_pandas(self) -> Any:
        """Return the rows of :meth:`to_dicts` as a pandas DataFrame.

        Raises
        ------
        MissingDependency
            When pandas is not installed.
        """
        return pandas_frame(self.to_arrow())


def _notes(notes: tuple[str, ...]) -> str:
    """Return the notes alone, as tables have them."""
    return render_table("", [], [], notes=notes)["text/html"] if notes else ""
