"""How candidates moved from stage to stage: a still picture, and the same as a table."""

from __future__ import annotations

import html
from collections.abc import Sequence

from nbrag.rendering import Rendering, clip_start, plain
from nbrag.tracing import StageRecord, Trace

__all__ = ["rank_flow"]

#: Ranks per stage that the picture has.
SHOWN = 10
_ROW, _COLUMN, _LEFT, _TOP = 24, 92, 30, 40
_LABEL = 250
_SIGNS = {"up": "▲", "down": "▼", "new": "+", "gone": "\u00d7"}
_LEGEND = "▲ lifted  ▼ lower  + added  \u00d7 dropped"


def rank_flow(trace: Trace | None, name: str) -> Rendering | None:
    """Return the picture of a run: a column per stage, a line per candidate.

    Parameters
    ----------
    trace
        The run; None, or a run that ranked nothing, has no picture.
    name
        What the run is called.

    Returns
    -------
    Rendering or None
        ``text/html``: an SVG with title and description, and the table below it, folded;
        ``text/plain``: the table.
    """
    columns = [record for record in trace.stages if record.ranks] if trace is not None else []
    if trace is None or not any(record.rows for record in columns):
        return None
    table = trace._repr_mimebundle_()
    picture = _svg(columns, trace, name)
    words = html.escape(f"Ranks of {name} as a table", quote=True)
    folded = f"<details><summary>{words}</summary>{table['text/html']}</details>"
    return {"text/plain": table["text/plain"], "text/html": picture + folded}


def _svg(columns: Sequence[StageRecord], trace: Trace, name: str) -> str:
    first = _first_step(columns)
    ranks = [{row.chunk_id: row.rank for row in record.rows} for record in columns]
    for place in range(first):
        # Of a leg only what the search took over: the rest was never a candidate.
        ranks[place] = {chunk: r for chunk, r in ranks[place].items() if chunk in ranks[first]}
    depth = min(max((rank for known in ranks for rank in known.values()), default=1), SHOWN)
    width = _LEFT + _COLUMN * (len(columns) - 1) + 24 + _LABEL
    height = _TOP + _ROW * depth + 46
    title = html.escape(f"Rank flow of {name}", quote=True)
    head = (
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" style="max-width:100%;height:auto" fill="currentColor"'
        ' font-size="11" font-family="sans-serif">'
    )
    told = html.escape(_description(trace), quote=True)
    parts = [head, f"<title>{title}</title><desc>{told}</desc>"]
    for place, record in enumerate(columns):
        x = _LEFT + _COLUMN * place
        words = html.escape(plain(record.stage), quote=True)
        parts.append(f'<text x="{x}" y="16" text-anchor="middle" font-weight="600">{words}</text>')
        parts.append(
            f'<text x="{x}" y="29" text-anchor="middle" opacity="0.7">{len(record.rows)}</text>'
        )
    for place in range(first):
        parts += _origins(place, first, ranks[place], ranks[first])
    for place in range(first, len(columns) - 1):
        parts += _lines(place, ranks[place], ranks[place + 1])
    for place, known in enumerate(ranks):
        before = ranks[place - 1] if place > first else None
        after = ranks[place + 1] if first <= place < len(ranks) - 1 else None
        for chunk, rank in known.items():
            if rank <= SHOWN:
                label = trace.labels.get(chunk, chunk)
                sign = _sign(rank, None if before is None else before.get(chunk, 0))
                gone = after is not None and chunk not in after
                parts.append(_node(_at(place, rank), f"{rank}: {label}", sign, gone=gone))
    parts += _labels(len(columns) - 1, ranks[-1], trace)
    parts.append(
        f'<text x="{_LEFT - 10}" y="{height - 8}" opacity="0.75">{_LEGEND};'
        f" the number below a stage is how many candidates it left</text></svg>"
    )
    return "".join(parts)


def _first_step(columns: Sequence[StageRecord]) -> int:
    """Return where one ranking begins: the legs before the search are beside each other."""
    names = [record.stage for record in columns]
    return names.index("search") if "search" in names else 0


def _at(place: int, rank: int) -> tuple[int, int]:
    return _LEFT + _COLUMN * place, _TOP + _ROW * (rank - 1) + 10


def _origins(place: int, search: int, leg: dict[str, int], found: dict[str, int]) -> list[str]:
    """Return a faint line from each candidate in a leg to its place in the search."""
    lines = []
    for chunk, rank in leg.items():
        if rank <= SHOWN and found[chunk] <= SHOWN:
            (x1, y1), (x2, y2) = _at(place, rank), _at(search, found[chunk])
            lines.append(
                f'<path d="M{x1 + 9} {y1}C{x1 + 50} {y1} {x2 - 50} {y2} {x2 - 9} {y2}" fill="none"'
                ' stroke="currentColor" stroke-opacity="0.2"/>'
            )
    return lines


def _lines(place: int, before: dict[str, int], after: dict[str, int]) -> list[str]:
    found = []
    for chunk, rank in after.items():
        old = before.get(chunk)
        if old is None or rank > SHOWN:
            continue
        x1, y1 = _at(place, min(old, SHOWN + 1))
        x2, y2 = _at(place + 1, rank)
        look = 'stroke="currentColor" stroke-opacity="0.35"'
        if rank < old:
            look = 'stroke="var(--jp-brand-color1,#1976d2)" stroke-width="2"'
        elif rank > old:
            look = 'stroke="currentColor" stroke-opacity="0.5" stroke-dasharray="4 3"'
        bend = _COLUMN // 2
        found.append(
            f'<path d="M{x1 + 9} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 9} {y2}"'
            f' fill="none" {look}/>'
        )
    return found


def _sign(rank: int, before: int | None) -> str:
    """Return what became of a candidate; ``before`` is 0 where it was not there, None at first."""
    if before is None or before == rank:
        return ""
    if before == 0:
        return "new"
    return "up" if rank < before else "down"


def _node(at: tuple[int, int], label: str, sign: str, *, gone: bool) -> str:
    x, y = at
    faint = 0.35 if gone else 0.8
    rank = label.partition(":")[0]
    box = f'<rect x="{x - 9}" y="{y - 9}" width="18" height="18" rx="3" fill="none"'
    parts = [
        f"<g><title>{html.escape(plain(label), quote=True)}</title>",
        f'{box} stroke="currentColor" stroke-opacity="{faint}"/>',
        f'<text x="{x}" y="{y + 4}" text-anchor="middle">{rank}</text>',
    ]
    if sign:
        parts.append(f'<text x="{x - 20}" y="{y + 4}" text-anchor="middle">{_SIGNS[sign]}</text>')
    if gone:
        parts.append(f'<text x="{x + 17}" y="{y + 4}" text-anchor="middle">{_SIGNS["gone"]}</text>')
    return "".join([*parts, "</g>"])


def _labels(place: int, ranks: dict[str, int], trace: Trace) -> list[str]:
    found = []
    for chunk, rank in ranks.items():
        if rank <= SHOWN:
            x, y = _at(place, rank)
            words = html.escape(clip_start(plain(trace.labels.get(chunk, chunk)), 40), quote=True)
            found.append(f'<text x="{x + 26}" y="{y + 4}">{words}</text>')
    return found


def _description(trace: Trace) -> str:
    """Return what the picture shows, in words."""
    names = " then ".join(record.stage for record in trace.stages if record.ranks)
    parts = [f"Stages: {names}."]
    for change in trace.changes():
        counts = [(change.lifted, "lifted"), (change.added, "added"), (change.dropped, "dropped")]
        told = ", ".join(f"{len(chunks)} {what}" for chunks, what in counts if chunks)
        parts.append(f"{change.stage}: {told or 'nothing changed'}.")
    return plain(" ".join(parts))
