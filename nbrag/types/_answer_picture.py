"""What rounds and drafts did, as bars: HTML, and the same in signs for plain text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbrag.rendering import Rendering

if TYPE_CHECKING:
    from nbrag.types.answers import AnswerDraft, AnswerRound

__all__ = ["drafts_picture", "rounds_picture"]

#: Signs of a whole bar, and shades of its parts, darkest first: full, half, none.
_SIGNS = 20
_SHADES = ("█", "▒", "░")
#: Colours that stay apart for the colour-blind and on dark pages; words say the same beside them.
_COLOURS = ("#0072b2", "#e69f00", "#b8b8b8")
_LABEL = "display:inline-block;min-width:11em;padding-right:0.6em"
_BAR = "display:inline-block;width:14em;height:0.8em;vertical-align:middle;border:1px solid #888"
_PART = "display:inline-block;height:100%;vertical-align:top"


@dataclass(frozen=True, slots=True)
class _Bar:
    """One line: a label, parts of the whole (full, half, none), and words."""

    label: str
    parts: tuple[float, float, float]
    words: str


def rounds_picture(rounds: Sequence[AnswerRound]) -> Rendering:
    """Return a bar for each round: claims supported, partly so, and not."""
    bars = []
    for one in rounds:
        counts = [
            sum(claim.verdict == verdict for claim in one.claims)
            for verdict in ("supported", "partly", "unsupported")
        ]
        total = sum(counts)
        words = "no claims were checked"
        if total:
            words = "{} supported, {} partly, {} not".format(*counts)
        full, half, none = (count / total if total else 0.0 for count in counts)
        chosen = ", chosen" if one.note.endswith("chosen") else ""
        bars.append(_Bar(f"round {one.number}", (full, half, none), words + chosen))
    return _drawn("Claims of each round", bars)


def drafts_picture(drafts: Sequence[AnswerDraft]) -> Rendering:
    """Return a bar for each draft: its score, from 0 to 1."""
    bars = []
    for one in drafts:
        score = None if one.score is None else min(max(one.score, 0.0), 1.0)
        words = "no score" if score is None else f"{score:.2f}"
        numbers = "".join(f"[{number}]" for number in one.passages)
        parts = (score or 0.0, 0.0, 0.0)
        label = f"draft {one.number} {numbers}"
        bars.append(_Bar(label, parts, words + (", chosen" if one.chosen else "")))
    return _drawn("Scores of the drafts", bars)


def _drawn(caption: str, bars: Sequence[_Bar]) -> Rendering:
    width = max(len(bar.label) for bar in bars)
    lines = [f"{bar.label:<{width}}  {_signs(bar.parts)}  {bar.words}" for bar in bars]
    said = html.escape(f"{caption}: {'; '.join(f'{bar.label}: {bar.words}' for bar in bars)}")
    rows = [
        f'<div><span style="{_LABEL}">{html.escape(bar.label)}</span>'
        f'<span style="{_BAR}">{_coloured(bar.parts)}</span> {html.escape(bar.words)}</div>'
        for bar in bars
    ]
    text = "\n".join([caption, *lines])
    return {
        "text/plain": text,
        "text/markdown": f"```text\n{text}\n```",
        "text/html": f'<div role="img" aria-label="{said}" style="margin:0.3em 0">'
        f"<div>{html.escape(caption)}</div>{''.join(rows)}</div>",
    }


def _signs(parts: tuple[float, float, float]) -> str:
    """Return the parts in signs: as many in all as their sum says, blanks for the rest."""
    ends = [round(_SIGNS * sum(parts[: last + 1])) for last in range(len(parts))]
    starts = [0, *ends]
    drawn = "".join(
        shade * (end - start) for shade, start, end in zip(_SHADES, starts, ends, strict=False)
    )
    return drawn.ljust(_SIGNS, "·")


def _coloured(parts: tuple[float, float, float]) -> str:
    return "".join(
        f'<span style="{_PART};width:{100 * part:.1f}%;background:{colour}"></span>'
        for part, colour in zip(parts, _COLOURS, strict=True)
        if part > 0
    )
