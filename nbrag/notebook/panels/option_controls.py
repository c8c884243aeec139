"""The control of an option, made from its declaration: bounds, choices, lists, optional values."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from nbrag.notebook.panels.controls import choice, number, text_line
from nbrag.spec.grammar import format_value
from nbrag.spec.stages import allows_none, is_list_option, option_choices

__all__ = ["NOT_GIVEN", "OptionControl", "bounds", "bounds_text", "option_control"]

#: Read from a control that was left empty: the option has its default.
NOT_GIVEN = object()
_WIDTH = "19em"
#: Of texts: filters and lists of labels are long.
_TEXT_WIDTH = "34em"


@dataclass(frozen=True, slots=True)
class OptionControl:
    """A control, and how its value and the option's are turned into each other.

    Attributes
    ----------
    control
        The widget; its description is the option's name.
    read
        Gives the option's value from the control's, :data:`NOT_GIVEN` for the default.
    write
        Gives the control's value from the option's.
    """

    control: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def bounds(info: FieldInfo) -> tuple[float | None, float | None]:
    """Return the least and the greatest value of a numeric option; None where it is open."""
    least: float | None = None
    most: float | None = None
    for rule in info.metadata:
        least = next((v for v in _limits(rule, "ge", "gt") if v is not None), least)
        most = next((v for v in _limits(rule, "le", "lt") if v is not None), most)
    return least, most


def _limits(rule: Any, *names: str) -> Iterable[Any]:
    return (getattr(rule, name, None) for name in names)


def bounds_text(info: FieldInfo) -> str:
    """Return the bounds in words, such as ``1 to 10,000``; empty where there are none."""
    least, most = bounds(info)
    if least is None and most is None:
        return ""
    if most is None:
        return f"{least:,g} or more"
    if least is None:
        return f"at most {most:,g}"
    return f"{least:,g} to {most:,g}"


def option_control(name: str, info: FieldInfo, value: Any) -> OptionControl:
    """Return the control that fits an option, showing a value.

    Whole and other numbers are numbers within their bounds, choices a list to choose from, lists
    of text one item per line; an option that may be without a value is empty then.
    """
    made = _made(name, info)
    made.control.value = made.write(value)
    return made


def _made(name: str, info: FieldInfo) -> OptionControl:
    kind = _plain_type(info)
    help_text = info.description or ""
    if is_list_option(info):
        return _list(name, info)
    if kind is bool and not allows_none(info):
        return _truth(name, help_text)
    choices = option_choices(info)
    if choices and kind is not str:
        values: dict[str, Any] = {"true": True, "false": False} if kind is bool else {}
        shown: list[tuple[str, Any]] = [
            (text, values.get(text, text)) for text in choices if text != "none"
        ]
        if allows_none(info):
            shown.insert(0, ("none", None))
        control = choice(name, shown, shown[0][1], width=_WIDTH, help_text=help_text)
        known = [value for _, value in shown]
        return OptionControl(control, lambda v: v, lambda v: v if v in known else known[0])
    if kind in (int, float) and not allows_none(info):
        least, most = bounds(info)
        start = kind(0 if info.is_required() else info.default)
        control = number(name, start, least=least, most=most, width=_WIDTH, help_text=help_text)
        return OptionControl(control, lambda v: v, lambda v: _number(v, kind, start))
    placeholder = "none" if allows_none(info) else ""
    empty = None if allows_none(info) else NOT_GIVEN
    width = _WIDTH if kind in (int, float) else _TEXT_WIDTH
    control = text_line(
        name,
        placeholder=placeholder,
        # Choices beside which any text may stand.
        suggestions=choices or None,
        width=width,
        help_text=help_text,
    )
    return OptionControl(
        control,
        lambda v: _typed(v.strip(), kind) if v.strip() else empty,
        lambda v: "" if v is None or v is NOT_GIVEN else str(v),
    )


def _list(name: str, info: FieldInfo) -> OptionControl:
    import ipywidgets

    common = {
        "description": name,
        "tooltip": info.description or name,
        "style": {"description_width": "8.5em"},
        "layout": {"width": _TEXT_WIDTH},
    }
    choices = option_choices(info)
    if choices:
        control = ipywidgets.SelectMultiple(options=choices, rows=min(len(choices), 6), **common)
        return OptionControl(control, tuple, lambda v: tuple(x for x in v or () if x in choices))
    control = ipywidgets.Textarea(
        rows=3, placeholder="one per line", continuous_update=False, **common
    )
    return OptionControl(
        control,
        lambda v: tuple(line.strip() for line in v.splitlines() if line.strip()),
        lambda v: "\n".join(v if isinstance(v, tuple | list) else [format_value(v)] if v else []),
    )


def _truth(name: str, help_text: str) -> OptionControl:
    import ipywidgets

    control = ipywidgets.Checkbox(
        description=name,
        tooltip=help_text or name,
        indent=True,
        style={"description_width": "8.5em"},
        layout={"width": _WIDTH},
    )
    return OptionControl(control, bool, lambda v: v in (True, "true", "True"))


def _plain_type(info: FieldInfo) -> Any:
    members = typing.get_args(info.annotation) or (info.annotation,)
    named = [member for member in members if member in (bool, int, float, str)]
    return named[0] if named else None


def _typed(text: str, kind: Any) -> Any:
    """Return a typed number as one; what is none is left to the option's own check."""
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _number(value: Any, kind: Any, start: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        return start
