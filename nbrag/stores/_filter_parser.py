"""From filter text to the tree: Python's own parser reads it, this module picks what is allowed."""

from __future__ import annotations

import ast
from typing import Any

from nbrag.errors import FilterError
from nbrag.stores.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsMissing,
    Membership,
    Not,
    Operator,
    TextMatch,
)

__all__ = ["parse"]

_HINT = 'e.g. topic == "security" and page >= 3 and "Azure" in technologies'
_LONGEST = 20_000
_OPERATORS: dict[type[ast.cmpop], Operator] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_MIRRORED: dict[Operator, Operator] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def parse(text: str) -> Filter:
    """Return the tree for the text; see :func:`nbrag.stores.filters.parse_filter`."""
    if not text.strip():
        raise FilterError("The filter is empty.", hint=_HINT)
    if len(text) > _LONGEST:
        raise FilterError(f"The filter is longer than {_LONGEST:,} characters.")
    try:
        return _condition(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        problem = (
            "'=' compares nothing here; write '=='" if _assigns(text) else error.msg or "bad syntax"
        )
        raise FilterError(f"The filter can't be read: {problem}: {text!r}.", hint=_HINT) from None
    except (ValueError, UnicodeError) as error:
        raise FilterError(f"The filter can't be read: {error}.", hint=_HINT) from None
    except (RecursionError, MemoryError):
        raise FilterError("The filter is nested too deeply.") from None


def _assigns(text: str) -> bool:
    try:
        return isinstance(ast.parse(text.strip()).body[0], ast.Assign)
    except (SyntaxError, ValueError, IndexError):
        return False


def _refuse(node: ast.AST) -> FilterError:
    return FilterError(f"A filter can't say: {ast.unparse(node)}.", hint=_HINT)


def _condition(node: ast.expr) -> Filter:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return AllOf(tuple(map(_condition, values)))
        case ast.BoolOp(op=ast.Or(), values=values):
            return AnyOf(tuple(map(_condition, values)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Not(_condition(operand))
        case ast.Compare():
            return _comparison(node)
        case ast.Call(func=ast.Attribute(value=target, attr=method), args=[argument], keywords=[]):
            return _method(node, target, method, argument)
    field = _field(node)
    if field is not None:
        return Comparison(field, "==", True)
    raise _refuse(node)


def _method(node: ast.expr, target: ast.expr, method: str, argument: ast.expr) -> Filter:
    field, value = _field(target), _constant(argument)
    if field is None or not isinstance(value, str):
        raise _refuse(node)
    match method:
        case "startswith" | "endswith":
            return TextMatch(field, method, value)
        case "contains":
            return Contains(field, value)
    raise FilterError(
        f"A filter has no method '{method}'.",
        hint='use startswith("..."), endswith("...") or contains("...")',
    )


def _comparison(node: ast.Compare) -> Filter:
    terms = [node.left, *node.comparators]
    parts = tuple(
        _pair(node, left, operator, right)
        for left, operator, right in zip(terms, node.ops, terms[1:], strict=False)
    )
    return parts[0] if len(parts) == 1 else AllOf(parts)


def _pair(node: ast.expr, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Filter:
    if isinstance(operator, ast.In | ast.NotIn):
        found = _inside(node, left, right)
        return Not(found) if isinstance(operator, ast.NotIn) else found
    field, mirrored, other = _field(left), False, right
    if field is None:
        field, mirrored, other = _field(right), True, left
    if field is None:
        raise _refuse(node)
    if _is_none(other):
        if isinstance(operator, ast.Is | ast.Eq):
            return IsMissing(field)
        if isinstance(operator, ast.IsNot | ast.NotEq):
            return Not(IsMissing(field))
    sign = _OPERATORS.get(type(operator))
    value = _constant(other)
    if sign is None or value is None:
        raise _refuse(node)
    return Comparison(field, _MIRRORED[sign] if mirrored else sign, value)


def _inside(node: ast.expr, left: ast.expr, right: ast.expr) -> Filter:
    field = _field(left)
    if field is not None and isinstance(right, ast.List | ast.Tuple | ast.Set):
        values = [_constant(element) for element in right.elts]
        if None in values:
            raise _refuse(node)
        return Membership(field, tuple(value for value in values if value is not None))
    container, value = _field(right), _constant(left)
    if container is None or not isinstance(value, str):
        raise _refuse(node)
    return Contains(container, value)


def _field(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(
            func=ast.Name(id="field"), args=[ast.Constant(value=str() as name)], keywords=[]
        ):
            return name
    return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _constant(node: ast.expr) -> Any:
    """Return a text, number or truth value, or None when the node is no such constant."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(
            op=ast.USub() | ast.UAdd() as sign,
            operand=ast.Constant(value=int() | float() as number),
        ) if not isinstance(number, bool):
            return -number if isinstance(sign, ast.USub) else number
    return None
