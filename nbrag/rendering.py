"""Static renderings of result objects: plain text, Markdown and HTML.

Everything that is shown may be hostile (a retrieved chunk is somebody else's text), so all of
it is escaped here and nowhere else. Plain text carries no times, paths or addresses, so that
executed notebooks stay the same from run to run.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Collection, Sequence

__all__ = ["Cell", "Rendering", "clip", "clip_start", "format_number", "plain", "render_table"]

Cell = str | int | float | bool | None
Rendering = dict[str, str]

_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
#: Halves of a surrogate pair: text that holds one can't be written to a notebook or a terminal.
_SURROGATES = re.compile("[\ud800-\udfff]")
_CELL_STYLE = "text-align:left;vertical-align:top;padding:0.25em 0.6em;white-space:normal"
_NUMBER_STYLE = "text-align:right;vertical-align:top;padding:0.25em 0.6em"
_NOTE_STYLE = "border-left:3px solid #c77700;padding:0.2em 0.6em;margin:0.3em 0"
#: Characters of one folded-away text, and of one HTML cell: a notebook must stay loadable.
_LONGEST_DETAIL = 20_000
_LONGEST_CELL = 2_000


def clip(text: str, width: int) -> str:
    """Return the text on one line, cut to ``width`` characters with an ellipsis."""
    start = text.lstrip()
    looked_at = start[: width * 4]
    line = " ".join(looked_at.split())
    if len(line) <= width and not start[width * 4 :].strip():
        return line
    return line[: max(width - 1, 0)].rstrip() + "…"


def clip_start(text: str, width: int) -> str:
    """Return the text on one line, its beginning cut: of a path, the file name matters most."""
    line = " ".join(text[-width * 4 :].split())
    if len(line) <= width and len(text) <= width * 4:
        return line
    return "…" + line[len(line) - max(width - 1, 0) :].lstrip()


def plain(value: Cell) -> str:
    """Return a cell as text, without control or direction-changing characters.

    Lone surrogates become U+FFFD, so that the text can be encoded.
    """
    return _SURROGATES.sub("\ufffd", _INVISIBLE.sub("", format_number(value)))


def _line(text: str) -> str:
    """Return a caption or a note on one line."""
    return clip(plain(text), _LONGEST_CELL)


def format_number(value: Cell) -> str:
    """Return a cell as text: numbers to four places, truth values as yes or no, None as empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def _display_width(text: str) -> int:
    """Return the columns that a terminal gives the text."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _pad(text: str, width: int, *, right: bool) -> str:
    """Pad the text with spaces to a display width."""
    filler = " " * max(width - _display_width(text), 0)
    return filler + text if right else text + filler


def render_table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    details: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    width: int = 60,
    paths: Collection[str] = (),
) -> Rendering:
    """Return one table in ``text/plain``, ``text/markdown`` and ``text/html``.

    Parameters
    ----------
    caption
        What the table shows.
    columns
        Column headings.
    rows
        Cells, one sequence per row, as long as ``columns``.
    details
        A long text per row, folded away under the last column in HTML (its first 20,000
        characters) and left out of the other two forms.
    notes
        Warnings and remarks below the table.
    width
        Most characters of one cell in plain text and Markdown.
    paths
        Columns that hold paths: these are cut at the beginning.
    """
    numeric = [
        bool(rows)
        and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        and any(row[i] is not None for row in rows)
        for i in range(len(columns))
    ]
    clips = [clip_start if name in paths else clip for name in columns]
    cells = [
        [cut(plain(cell), width) for cut, cell in zip(clips, row, strict=True)] for row in rows
    ]
    return {
        "text/plain": _text(caption, columns, cells, numeric, notes),
        "text/markdown": _markdown(caption, columns, cells, notes),
        "text/html": _html(caption, columns, rows, numeric, details=details, notes=notes),
    }


def _shortened(text: str, longest: int) -> str:
    """Return the text, its end replaced by how much is left out where it is too long."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def _text(
    caption: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    notes: Sequence[str],
) -> str:
    widths = [
        max([_display_width(name), *(_display_width(row[i]) for row in cells)])
        for i, name in enumerate(columns)
    ]
    lines = [_line(caption)]
    if cells:
        grid = [list(columns), ["-" * size for size in widths], *cells]
        lines += [
            "  ".join(
                _pad(cell, size, right=right)
                for cell, size, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in grid
        ]
    lines += [f"! {_line(note)}" for note in notes]
    return "\n".join(lines)


def _markdown(
    caption: str, columns: Sequence[str], cells: Sequence[Sequence[str]], notes: Sequence[str]
) -> str:
    def escape(text: str) -> str:
        return re.sub(r"([\\`*_{}\[\]<>#|$&~])", r"\\\1", text)

    lines = [f"**{escape(_line(caption))}**", ""]
    if cells:
        lines.append("| " + " | ".join(escape(name) for name in columns) + " |")
        lines.append("|" + "---|" * len(columns))
        lines += ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in cells]
    lines += [f"\n> {escape(_line(note))}" for note in notes]
    return "\n".join(lines)


def _html(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numeric: Sequence[bool],
    *,
    details: Sequence[str] | None,
    notes: Sequence[str],
) -> str:
    def escape(value: Cell) -> str:
        return html.escape(_shortened(plain(value), _LONGEST_CELL), quote=True)

    parts = [
        '<table style="border-collapse:collapse">',
        f'<caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>',
    ]
    if rows:
        heads = "".join(
            f'<th scope="col" style="{_NUMBER_STYLE if right else _CELL_STYLE}">{escape(name)}</th>'
            for name, right in zip(columns, numeric, strict=True)
        )
        parts.append(f"<thead><tr>{heads}</tr></thead><tbody>")
        for index, row in enumerate(rows):
            data = [
                f'<td style="{_NUMBER_STYLE if right else _CELL_STYLE}">{escape(cell)}</td>'
                for cell, right in zip(row, numeric, strict=True)
            ]
            if details is not None:
                body = html.escape(_shortened(plain(details[index]), _LONGEST_DETAIL), quote=True)
                data[-1] = (
                    f'<td style="{_CELL_STYLE}"><details>'
                    f'<summary dir="auto">{escape(clip(plain(row[-1]), 160))}</summary>'
                    f'<div dir="auto" style="white-space:pre-wrap">{body}</div>'
                    "</details></td>"
                )
            parts.append(f"<tr>{''.join(data)}</tr>")
        parts.append("</tbody>")
    parts.append("</table>")
    parts += [f'<div role="note" style="{_NOTE_STYLE}">{escape(note)}</div>' for note in notes]
    return "".join(parts)
