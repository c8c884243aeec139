"""The still picture of a panel: HTML and text that need no kernel, no network and no script."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from nbrag.notebook.panels.messages import without_private
from nbrag.rendering import Cell, Rendering, plain, render_table

__all__ = ["alert_html", "facts", "part", "rendered", "snapshot"]

_ALERT_STYLE = (
    "border-left:3px solid #c62828;padding:0.3em 0.6em;margin:0.3em 0;white-space:pre-wrap"
)
_FRAME = "border:1px solid #8888;border-radius:4px;padding:0.6em 0.9em;max-width:70em"


def alert_html(lines: Sequence[str]) -> str:
    """Return an error's lines for people and screen readers; nothing for none."""
    if not lines:
        return ""
    words = "\n".join(html.escape(plain(line), quote=True) for line in lines)
    return f'<div role="alert" style="{_ALERT_STYLE}">{words}</div>'


def part(text: str, markup: str | None = None) -> Rendering:
    """Return a piece of a snapshot: its text, and its HTML where that is more than the text."""
    shown = markup or f'<p style="white-space:pre-wrap">{html.escape(plain(text), quote=True)}</p>'
    return {"text/plain": _plain_lines(text), "text/html": shown}


def _plain_lines(text: str) -> str:
    """Return text of several lines without control characters."""
    return "\n".join(plain(line) for line in text.splitlines())


def rendered(made: Any) -> Rendering:
    """Return a result's own picture, or a made one, without folders of this machine."""
    bundle = made if isinstance(made, dict) else made._repr_mimebundle_()
    return {kind: without_private(text) for kind, text in bundle.items()}


def facts(caption: str, rows: Sequence[tuple[str, Cell]]) -> Rendering:
    """Return a table of names and values; empty values are left out."""
    kept = [[name, value] for name, value in rows if value not in (None, "")]
    return render_table(caption, ["what", "value"], kept)


def snapshot(
    heading: str, parts: Sequence[Rendering], alert: Sequence[str], status: str
) -> Rendering:
    """Return the whole picture as ``text/plain`` and ``text/html``."""
    texts = [heading, *(piece["text/plain"] for piece in parts)]
    texts += [f"! {line}" for line in alert]
    if status:
        texts.append(plain(status))
    words = html.escape(heading, quote=True)
    note = "A still picture of the panel: run its cell to use it."
    body = "".join(piece["text/html"] for piece in parts)
    tail = f"<p>{html.escape(plain(status), quote=True)}</p>" if status else ""
    return {
        "text/plain": "\n".join(text for text in texts if text),
        "text/html": (
            f'<section aria-label="{words}" style="{_FRAME}">'
            f'<div role="heading" aria-level="3" style="font-weight:600">{words}</div>'
            f"{alert_html(alert)}{body}{tail}"
            f'<p style="opacity:0.75"><small>{note}</small></p></section>'
        ),
    }
