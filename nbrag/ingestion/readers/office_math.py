"""Office Math (OMML) equations as a line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["MATH_NAMESPACE", "equation_text"]

MATH_NAMESPACE = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
#: Invisible operators: function application, times, separator, plus.
_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064")


def equation_text(element: _Element) -> str:
    """Return an equation (``m:oMath`` or a part of it) as text, e.g. ``sin θ=(mλ)/(a)``."""
    return " ".join(_render(element).translate(_INVISIBLE).split())


def _render(element: _Element) -> str:
    name = str(element.tag).removeprefix(MATH_NAMESPACE)

    def part(child: str) -> str:
        found = element.find(MATH_NAMESPACE + child)
        return "" if found is None else _render(found)

    if name == "t":
        return element.text or ""
    if name == "f":
        return f"({part('num')})/({part('den')})"
    if name == "rad":
        return f"{part('deg')}√({part('e')})"
    if name in {"sSup", "sSub", "sSubSup", "sPre"}:
        lower = f"_{part('sub')}" if element.find(MATH_NAMESPACE + "sub") is not None else ""
        upper = f"^{part('sup')}" if element.find(MATH_NAMESPACE + "sup") is not None else ""
        return f"{part('e')}{lower}{upper}"
    if name == "nary":
        sign = element.find(f"{MATH_NAMESPACE}naryPr/{MATH_NAMESPACE}chr")
        symbol = "∫" if sign is None else sign.get(f"{MATH_NAMESPACE}val", "∫")
        return f"{symbol}_{part('sub')}^{part('sup')} {part('e')}"
    if name == "d":
        inner = ", ".join(_render(e) for e in element.findall(f"{MATH_NAMESPACE}e"))
        return f"({inner})"
    if name == "func":
        return f"{part('fName')} {part('e')}"
    return "".join(_render(child) for child in element)
