"""Labelled controls in one look; each has a description, which is its accessible name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "button",
    "choice",
    "column",
    "listing",
    "markup",
    "number",
    "row",
    "several",
    "text_area",
    "text_line",
    "title",
]

_LABEL = "8.5em"
_WIDE = "28em"


def _common(label: str, width: str, help_text: str, label_width: str) -> dict[str, Any]:
    return {
        "description": label,
        "tooltip": help_text or label,
        "style": {"description_width": label_width},
        "layout": {"width": width},
    }


def text_line(
    label: str,
    value: str = "",
    *,
    placeholder: str = "",
    suggestions: Sequence[str] | None = None,
    width: str = _WIDE,
    help_text: str = "",
    label_width: str = _LABEL,
    as_typed: bool = False,
) -> Any:
    """Return a line of text, with suggestions where they are given.

    Parameters
    ----------
    label
        Its name, shown before it.
    value, placeholder, suggestions, help_text
        What is in it, and what helps to fill it.
    width, label_width
        CSS lengths.
    as_typed
        Whether each key tells; otherwise leaving the field or Enter does.
    """
    import ipywidgets

    common = _common(label, width, help_text, label_width)
    common |= {"value": value, "placeholder": placeholder, "continuous_update": as_typed}
    if suggestions is None:
        return ipywidgets.Text(**common)
    return ipywidgets.Combobox(options=tuple(suggestions), ensure_option=False, **common)


def text_area(
    label: str, value: str = "", *, rows: int = 6, width: str = "100%", placeholder: str = ""
) -> Any:
    """Return a text of several lines in a fixed-width font."""
    import ipywidgets

    area = ipywidgets.Textarea(
        value=value,
        rows=rows,
        placeholder=placeholder,
        continuous_update=False,
        **_common(label, width, "", _LABEL),
    )
    area.style.font_family = "var(--jp-code-font-family, monospace)"
    return area


def number(
    label: str,
    value: float,
    *,
    least: float | None = None,
    most: float | None = None,
    width: str = "16em",
    help_text: str = "",
    label_width: str = _LABEL,
) -> Any:
    """Return a number within its bounds; whole where ``value`` is an ``int``."""
    import ipywidgets

    common = _common(label, width, help_text, label_width) | {"continuous_update": False}
    whole = isinstance(value, int)
    if not whole:
        common["step"] = 0.05
    if least is None and most is None:
        return (ipywidgets.IntText if whole else ipywidgets.FloatText)(value=value, **common)
    kind = ipywidgets.BoundedIntText if whole else ipywidgets.BoundedFloatText
    limit = 2**53 - 1 if whole else 1e300
    return kind(
        value=value,
        min=-limit if least is None else least,
        max=limit if most is None else most,
        **common,
    )


def choice(
    label: str,
    options: Sequence[Any],
    value: Any = None,
    *,
    width: str = _WIDE,
    help_text: str = "",
    label_width: str = _LABEL,
) -> Any:
    """Return a choice of one; ``options`` are values or (text, value) pairs."""
    import ipywidgets

    return ipywidgets.Dropdown(
        options=list(options), value=value, **_common(label, width, help_text, label_width)
    )


def listing(
    label: str,
    options: Sequence[Any] = (),
    *,
    rows: int = 8,
    width: str = "100%",
    label_width: str = _LABEL,
) -> Any:
    """Return a list in which one entry is chosen; arrow keys go through it."""
    import ipywidgets

    common = _common(label, width, "", label_width)
    return ipywidgets.Select(options=list(options), rows=rows, value=None, **common)


def several(
    label: str,
    options: Sequence[Any] = (),
    *,
    rows: int = 5,
    width: str = _WIDE,
    help_text: str = "",
) -> Any:
    """Return a list in which any number of entries can be chosen."""
    import ipywidgets

    common = _common(label, width, help_text, _LABEL)
    return ipywidgets.SelectMultiple(options=list(options), rows=rows, **common)


def button(words: str, *, help_text: str = "", kind: str = "", width: str = "auto") -> Any:
    """Return a button with words on it; ``kind`` is ``primary`` for the one that matters."""
    import ipywidgets

    return ipywidgets.Button(
        description=words, tooltip=help_text, button_style=kind, layout={"width": width}
    )


def markup(value: str = "") -> Any:
    """Return a piece of HTML; whoever makes it escapes what it holds."""
    import ipywidgets

    return ipywidgets.HTML(value=value, layout={"width": "100%", "overflow": "auto"})


def title(words: str, level: int = 3) -> Any:
    """Return a heading."""
    size = {3: "1.15em", 4: "1em"}.get(level, "1em")
    return markup(
        f'<div role="heading" aria-level="{level}" style="font-weight:600;font-size:{size};'
        f'margin:0.2em 0">{words}</div>'
    )


def row(*children: Any) -> Any:
    """Return controls beside each other, which go to a new line where there is no room."""
    import ipywidgets

    return ipywidgets.HBox(
        children, layout={"flex_flow": "row wrap", "align_items": "center", "width": "100%"}
    )


def column(*children: Any, width: str = "100%", grow: bool = False) -> Any:
    """Return controls below each other; ``grow`` columns share a row."""
    import ipywidgets

    layout = {"width": width, "overflow": "visible"}
    if grow:
        layout |= {"flex": "1 1 24em", "width": "auto", "min_width": "0"}
    return ipywidgets.VBox(children, layout=layout)
