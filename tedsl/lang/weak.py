"""Numbers that have no dtype of their own: Python's, axes, extents, and what is made of these alone.

Beside a float they take its dtype, as Python's numbers do in NumPy; so a dtype never depends on whether an extent is a
number or a symbol. An int is int32 beside integers and on its own: a node says of itself whether it is one (`is_weak`).
A float keeps its operation, untyped, in a `WeakFloat` until it meets something, and is then `settled`: computed in
float32 for float32 and narrower types, else in float64. Where a dtype was asked for (`te.cast`, `te.const`) the int
is strong, and marked so: a typed literal, or a cast from int32 to int32, which stands outermost or not at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang.dtypes import BOOL, BOTTOM, FLOAT32, FLOAT64, INDEX, INT32, INT64, DType, Kind, integer_bounds
from tedsl.lang.expr import TRUE, Apply, Const, Expr, Fn, WeakFloat
from tedsl.lang.intervals import Known, exact_range, range_of
from tedsl.lang.literals import literal
from tedsl.lang.traverse import topological

__all__ = ["is_number", "is_weak_kind", "kind_of", "marked", "number_of", "settled", "weak_float", "widened"]


def kind_of(value: Any) -> Kind:
    """What a scalar operand counts as in a promotion."""
    if not isinstance(value, Expr):
        return type(value)
    if isinstance(value, WeakFloat):
        return float
    if value.is_weak:
        return INDEX if value.dtype is INT32 else bool
    return value.dtype


def is_weak_kind(kind: Kind) -> bool:
    return kind is INDEX or not isinstance(kind, DType)


def marked(expr: Expr) -> Expr:
    """A weak int as a strong one."""
    if expr.dtype is not INT32 or not expr.is_weak:
        return expr
    return Const(expr.value, INT32, typed=True) if isinstance(expr, Const) else Apply(Fn.CAST, (expr,), INT32)


# --- floats -----------------------------------------------------------------------------------------------------------


# What Python computes itself of its own numbers.
_PYTHON: dict[Fn, Any] = {
    Fn.ADD: np.add, Fn.SUB: np.subtract, Fn.MUL: np.multiply, Fn.DIV: np.divide, Fn.FLOORDIV: np.floor_divide,
    Fn.MOD: np.remainder, Fn.POW: np.power, Fn.NEG: np.negative,
}  # fmt: skip


def weak_float(fn: Fn, operands: list[Any]) -> WeakFloat:
    """`fn` of weak operands, for a result that is a float; arithmetic of numbers is a number."""
    if fn is Fn.SELECT and isinstance(operands[0], Const):
        chosen = operands[1] if operands[0] is TRUE else operands[2]
        return chosen if isinstance(chosen, WeakFloat) else weak_float(Fn.MUL, [chosen, 1.0])
    args = tuple(v if isinstance(v, Expr) else _exact(v) for v in operands)
    if fn not in _PYTHON or not all(map(is_number, args)):
        return WeakFloat(fn, args)
    with np.errstate(all="ignore"):
        value = _PYTHON[fn](*(np.float64(number_of(a).value) for a in args))
    return WeakFloat(Fn.CAST, (Const(float(value), FLOAT64),))


def is_number(expr: Expr) -> bool:
    """Whether an expression is a literal, or a weak float that is one."""
    return isinstance(expr, Const) or (isinstance(expr, WeakFloat) and expr.fn is Fn.CAST)


def number_of(expr: Expr) -> Const:
    """The literal that an expression is."""
    number = expr.args[0] if isinstance(expr, WeakFloat) else expr
    assert isinstance(number, Const)
    return number


def _exact(number: bool | int | float) -> Const:
    """A Python number with all its digits, as far as 64 bits hold them."""
    if isinstance(number, bool):
        return Const(number, BOOL)
    for dtype in (INT32, INT64):
        low, high = integer_bounds(dtype)
        if isinstance(number, int) and low <= number <= high:
            return Const(number, dtype)
    return Const(literal(number, FLOAT64), FLOAT64)


# Where a rounding error of the operand is a jump of the result. A place and the weight that goes with it come of one
# floor, which is taken in float64 for both.
_JUMPS = frozenset({Fn.FLOOR, Fn.CEIL, Fn.ROUND, Fn.TRUNC, Fn.FLOORDIV, Fn.MOD})


def settled(root: WeakFloat, target: DType) -> Expr:
    """The weak float computed in the type from which it is best converted to `target`."""
    narrow = target is BOTTOM or (target.is_float and target.bits <= 32)
    exact: dict[Expr, Expr] = {}
    return _typed(root, FLOAT32, {}, exact) if narrow else _typed(root, FLOAT64, exact, exact)


def _typed(root: WeakFloat, dtype: DType, typed: dict[Expr, Expr], exact: dict[Expr, Expr]) -> Expr:
    """The weak float in a type; `typed` and `exact` are what was made already, in this type and in float64."""

    def as_float(operand: Expr) -> Expr:
        if isinstance(operand, Const):
            return Const(literal(operand.value, dtype), dtype)
        return typed[operand] if operand in typed else Apply(Fn.CAST, (widened(operand, dtype),), dtype)

    for node in topological(root):
        if not isinstance(node, WeakFloat) or node in typed:
            continue
        if is_number(node):
            typed[node] = as_float(number_of(node))
        elif node.fn in _JUMPS and dtype is not FLOAT64:
            typed[node] = Apply(Fn.CAST, (_typed(node, FLOAT64, exact, exact),), dtype)
        else:
            skipped = 1 if node.fn is Fn.SELECT else 0  # the condition has its type
            operands = (*node.args[:skipped], *map(as_float, node.args[skipped:]))
            typed[node] = Apply(node.fn, operands, dtype)
    return typed[root]


# --- integers ---------------------------------------------------------------------------------------------------------


def widened(expr: Expr, target: DType) -> Expr:
    """A weak int that is to become a `target`: computed in int64 where int32 might not hold what it is made of."""
    if expr.dtype is not INT32 or not expr.is_weak or not (target.is_float or target.bits > 32):
        return expr
    return _in_int64(expr) if _may_leave_int32(expr) else expr


def _may_leave_int32(expr: Expr) -> bool:
    known: Known = {}
    range_of(expr, known)
    low, high = integer_bounds(INT32)
    for node in topological(expr):
        if not isinstance(node, Apply) or node.dtype is not INT32 or not node.is_weak:
            continue
        found = exact_range(node, known)
        if node.fn in _GROWING if found is None else found[0] < low or found[1] > high:
            return True
    return False


# Operations that leave int32 where no range is known of them.
_GROWING = frozenset({Fn.POW, Fn.LSHIFT})


def _in_int64(root: Expr) -> Expr:
    """The same arithmetic on int64; conditions stay as they are."""
    wide: dict[Expr, Expr] = {}
    for node in topological(root):
        if node.dtype is not INT32 or not node.is_weak:
            wide[node] = node
        elif isinstance(node, Const):
            wide[node] = Const(node.value, INT64)
        elif isinstance(node, Apply):
            wide[node] = Apply(node.fn, tuple(wide[a] for a in node.args), INT64)
        else:
            wide[node] = Apply(Fn.CAST, (node,), INT64)
    return wide[root]
