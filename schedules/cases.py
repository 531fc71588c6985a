"""Conditions on sizes, under which a stage has loops of its own, and positions in loops: read from text, written as it.

Both are made of sizes alone, so that each is one value for a whole call.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tedsl.analysis.sizes import vars_of
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Const, Expr, Read, Var
from tedsl.lang.extents import simplify_extent
from tedsl.lang.scalar_text import Style, expression_text
from tedsl.lang.traverse import free_axes, topological

__all__ = ["condition_of", "condition_text", "position_of", "position_text"]

_TWO: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_ONE: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Invert: operator.invert}
_CALLS: dict[str, Callable[[Any, Any], Any]] = {"maximum": fn.maximum, "minimum": fn.minimum}
_FIX = "give a condition made of sizes and whole numbers, such as n % 16 == 0 or (n >= 64) & (m < 8)"


def condition_text(condition: Any, sizes: Mapping[str, Var]) -> str:
    """The text of a condition, an expression or text already; ScheduleError where it is none of sizes."""
    if isinstance(condition, str):
        return condition_text(condition_of(condition, sizes), sizes)
    if isinstance(condition, bool) or not isinstance(condition, Expr) or not condition.dtype.is_bool:
        raise ScheduleError(f"expected a condition, found {condition!r:.60}; {_FIX}")
    if free_axes(condition) or any(isinstance(n, Read) for n in topological(condition)):
        raise ScheduleError(f"{condition} is not one value for a whole call: it has loops or elements in it; {_FIX}")
    foreign = [v.name for v in vars_of(condition) if sizes.get(v.name) is not v]
    if foreign or isinstance(condition, Const):
        known = ", ".join(sizes) or "none"
        asked = ", ".join(foreign) or "nothing"
        raise ScheduleError(f"{condition} asks for {asked}; sizes of the program: {known}; {_FIX}")
    text = expression_text(condition, Style(prefix=""))
    if condition_of(text, sizes) is not condition:
        raise ScheduleError(f"{text} has more in it than sums, products, quotients, extremes and comparisons; {_FIX}")
    return text


def position_text(position: Any, sizes: Mapping[str, Var]) -> str:
    """The text of a position in a loop: a whole number or an expression of sizes, or text already."""
    if isinstance(position, str):
        return position_text(position_of(position, sizes), sizes)
    found = fn.as_expr(position)
    if isinstance(position, bool) or found.dtype is not INT32:
        raise ScheduleError(f"expected a position, a whole number or made of sizes, found {position!r:.60}")
    found = simplify_extent(found)
    text = expression_text(found, Style(prefix=""))
    if position_of(text, sizes) is not found:
        raise ScheduleError(f"{text} is no position made of sizes, sums, products, quotients and extremes")
    return text


def position_of(text: str, sizes: Mapping[str, Var]) -> Expr:
    """The position that a text says."""
    return simplify_extent(condition_of(text, sizes))


def condition_of(text: str, sizes: Mapping[str, Var]) -> Expr:
    """The condition that a text says."""
    try:
        found = _value(ast.parse(text, mode="eval").body, sizes)
    except ScheduleError:
        raise
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError):
        raise ScheduleError(f"{text!r:.60} is no condition; {_FIX}") from None
    return fn.as_expr(found)


def _value(node: ast.AST, sizes: Mapping[str, Var]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise ScheduleError(f"there is no size {node.id!r}; sizes of the program: {', '.join(sizes) or 'none'}")
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _TWO:
        return _TWO[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _TWO:
        return _TWO[type(node.ops[0])](_value(node.left, sizes), _value(node.comparators[0], sizes))
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _CALLS and len(node.args) == 2 and not node.keywords:
        first, second = node.args
        return _CALLS[ast.unparse(node.func)](_value(first, sizes), _value(second, sizes))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _ONE:
        return _ONE[type(node.op)](_value(node.operand, sizes))
    raise ScheduleError(f"{ast.unparse(node)!r:.60} is no part of a condition on sizes; {_FIX}")
