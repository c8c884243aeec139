"""The picture of a map: SVG without scripts, readable without colours, of bounded size."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nbrag.rendering import clip, plain

__all__ = ["Legend", "picture"]

_WIDTH, _HEIGHT, _EDGE, _SIDE = 620, 460, 16, 210
_INK = "var(--jp-ui-font-color1,#222)"
_PAPER = "var(--jp-layout-color0,#fff)"
#: Colours that people with any colour vision tell apart (Okabe and Ito 2008), and for each a shape
#: of its own: what is drawn from a point on, and whether by its outline (width, line ends).
_MARKS: tuple[tuple[str, str, str], ...] = (
    ("#0072b2", "h0", 'fill="none" stroke-width="6" stroke-linecap="round"'),
    ("#d55e00", "m0-4l3.6 6.4h-7.2z", ""),
    ("#009e73", "h0", 'fill="none" stroke-width="5" stroke-linecap="square"'),
    ("#cc79a7", "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z", ""),
    ("#b8860b", "m-3-3l6 6m0-6l-6 6", 'fill="none" stroke-width="1.8"'),
    ("#2a9fd6", "m0 4l3.6-6.4h-7.2z", ""),
    ("#6a3d9a", "m-4 0h8m-4-4v8", 'fill="none" stroke-width="1.8"'),
    ("#808080", "m-4 0h8", 'fill="none" stroke-width="2.5"'),
)


@dataclass(frozen=True, slots=True)
class Legend:
    """One group: its name, and how many points it has."""

    name: str
    count: int


def picture(
    title: str,
    legend: Sequence[Legend],
    points: Sequence[tuple[float, float]],
    marks: Sequence[int],
    *,
    question: str = "",
    query: tuple[float, float] | None = None,
    hits: Sequence[tuple[int, float, float, str]] = (),
) -> str:
    """Return an SVG element.

    Parameters
    ----------
    title
        What the map is; its accessible name.
    legend
        The groups, at most eight.
    points
        Where the chunks are.
    marks
        Per point its group's place in the legend.
    question, query
        The question, and where it is.
    hits
        Number, place and words of each of its results.
    """
    place = _scale([*points, *([query] if query else []), *((x, y) for _, x, y, _ in hits)])
    rows = len(legend) + (1 if query else 0) + (1 if hits else 0)
    height = max(_HEIGHT, 30 + 22 * rows)
    width = _WIDTH + _SIDE
    words = ", ".join(f"{each.name} ({each.count})" for each in legend)
    told = f"{title}. Groups: {words}."
    if question:
        told += f" The question is marked Q, its {len(hits)} results by their numbers."
    name, told = (html.escape(plain(text), quote=True) for text in (title, told))
    head = (
        f'<svg role="img" aria-label="{name}" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" style="max-width:100%;height:auto;background:{_PAPER}"'
        ' font-size="12" font-family="sans-serif">'
    )
    frame = (
        f'<rect x="1" y="1" width="{_WIDTH - 2}" height="{height - 2}" fill="none"'
        ' style="stroke:var(--jp-border-color2,#bbb)"/>'
    )
    parts = [head, f"<title>{name}</title><desc>{told}</desc>", frame]
    spots: list[dict[tuple[int, int], None]] = [{} for _ in legend]
    for point, mark in zip(points, marks, strict=True):
        spots[mark][place(point)] = None
    for number, own in enumerate(spots):
        parts.append(_group(number, list(own)))
    parts += _hits(place, query, hits)
    parts += _legend(legend, query=query is not None, hits=len(hits))
    parts.append("</svg>")
    return "".join(parts)


class _Scale:
    """From a map's numbers to the picture's, the same scale in both directions."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
        self._left, self._top = min(xs), max(ys)
        wide, high = max(xs) - min(xs), max(ys) - min(ys)
        room = (_WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE)
        factors = [r / span for r, span in zip(room, (wide, high), strict=True) if span > 0]
        self._factor = min(factors) if factors else 1.0
        self._x = _EDGE + (room[0] - wide * self._factor) / 2
        self._y = _EDGE + (room[1] - high * self._factor) / 2

    def __call__(self, point: tuple[float, float]) -> tuple[int, int]:
        """Return the place in whole units."""
        x = self._x + (point[0] - self._left) * self._factor
        y = self._y + (self._top - point[1]) * self._factor
        return round(x), round(y)


def _scale(points: Sequence[tuple[float, float]]) -> _Scale:
    return _Scale(points)


def _group(number: int, spots: Sequence[tuple[int, int]]) -> str:
    """Return all points of one group as one path: a few characters per point."""
    colour, shape, look = _MARKS[number]
    data = "".join(f"M{x} {y}{shape}" for x, y in spots)
    paint = f'stroke="{colour}"' if look else f'fill="{colour}"'
    return f'<path d="{data}" {paint} {look} opacity="0.75"/>' if data else ""


def _hits(
    place: _Scale,
    query: tuple[float, float] | None,
    hits: Sequence[tuple[int, float, float, str]],
) -> list[str]:
    """Return the numbered marks, moved apart where they would cover each other, and the Q."""
    taken: list[tuple[int, int]] = []
    lines, discs = [], []
    entries = [("Q", query, "the question")] if query else []
    entries += [(str(number), (x, y), words) for number, x, y, words in hits]
    for label, point, words in entries:
        x, y = place(point)
        free = _free_spot(x, y, taken)
        taken.append(free)
        if free != (x, y):
            lines.append(
                f'<path d="M{x} {y}L{free[0]} {free[1]}" fill="none" style="stroke:{_INK}"/>'
                f'<circle cx="{x}" cy="{y}" r="3" style="fill:{_INK}"/>'
            )
        told = html.escape(plain(words), quote=True)
        discs.append(f"<g><title>{told}</title>{_disc(label, *free)}</g>")
    return lines + discs


def _disc(label: str, x: int, y: int) -> str:
    """Return a mark with a letter or a number: the question is a square, results are round."""
    if label == "Q":
        shape = (
            f'<rect x="{x - 11}" y="{y - 11}" width="22" height="22" rx="2"'
            f' style="fill:{_INK};stroke:{_PAPER};stroke-width:2"/>'
        )
        ink = _PAPER
    else:
        shape = (
            f'<circle cx="{x}" cy="{y}" r="10" style="fill:{_PAPER};stroke:{_INK};stroke-width:2"/>'
        )
        ink = _INK
    return (
        f'{shape}<text x="{x}" y="{y + 4}" text-anchor="middle" font-weight="700"'
        f' style="fill:{ink}">{label}</text>'
    )


def _free_spot(x: int, y: int, taken: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the nearest place at which a mark covers no other one."""

    def free(spot: tuple[int, int]) -> bool:
        inside = 12 <= spot[0] <= _WIDTH - 12 and 12 <= spot[1] <= _HEIGHT - 12
        return inside and all(math.dist(spot, other) >= 24 for other in taken)

    tried = [
        (round(x + radius * math.cos(turn)), round(y + radius * math.sin(turn)))
        for radius in (26, 40, 56, 74, 96)
        for turn in (step * math.pi / 8 for step in range(16))
    ]
    if all(math.dist((x, y), other) >= 24 for other in taken):
        return x, y
    return next((spot for spot in tried if free(spot)), (x, y))


def _legend(legend: Sequence[Legend], *, query: bool, hits: int) -> list[str]:
    """Return the names of the marks, at the side."""
    left, y = _WIDTH + 16, 22
    parts = []
    for number, each in enumerate(legend):
        words = html.escape(f"{clip(plain(each.name), 22)}: {each.count:,}", quote=True)
        parts.append(
            f'{_group(number, [(left, y - 4)])}<text x="{left + 14}" y="{y}" style="fill:{_INK}">'
            f"{words}</text>"
        )
        y += 22
    for label, words in (("Q", "the question" if query else ""), ("1", f"its {hits} results")):
        if (label == "Q" and query) or (label == "1" and hits):
            y += 6
            parts.append(
                f'<g transform="translate({left} {y - 4}) scale(0.7)">{_disc(label, 0, 0)}</g>'
                f'<text x="{left + 14}" y="{y}" style="fill:{_INK}">{words}</text>'
            )
            y += 22
    return parts
