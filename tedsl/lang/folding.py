"""Operations that are something simpler: of integer constants, of conditions, with a neutral operand.

Floats are left alone: NaN and -0.0 have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tedsl.lang.dtypes import BOOL, DType, integer_bounds
from tedsl.lang.errors import ZeroDivisorError, user_location
from tedsl.lang.expr import FALSE, TRUE, Apply, Const, Expr, Fn
from tedsl.lang.operand_types import LOGIC, ROUNDING

__all__ = ["folded", "select_node"]


def select_node(condition: Expr, a: Expr, b: Expr) -> Expr:
    """select of promoted operands; a constant condition or equal branches fold."""
    if condition is TRUE or a is b:
        return a
    return b if condition is FALSE else Apply(Fn.SELECT, (condition, a, b), a.dtype)


_FOLD: dict[Fn, Callable[..., Any]] = {
    Fn.ADD: lambda a, b: a + b, Fn.SUB: lambda a, b: a - b, Fn.MUL: lambda a, b: a * b, Fn.NEG: lambda a: -a,
    Fn.FLOORDIV: lambda a, b: a // b, Fn.MOD: lambda a, b: a % b, Fn.MINIMUM: min, Fn.MAXIMUM: max, Fn.ABS: abs,
    Fn.EQ: lambda a, b: a == b, Fn.NE: lambda a, b: a != b, Fn.LT: lambda a, b: a < b, Fn.LE: lambda a, b: a <= b,
    Fn.GT: lambda a, b: a > b, Fn.GE: lambda a, b: a >= b, Fn.CLIP: lambda x, low, high: min(max(x, low), high),
}  # fmt: skip


def folded(fn: Fn, args: tuple[Expr, ...], dtype: DType) -> Expr:
    """The node, or something simpler that is equal for every value (floats are left alone: NaN, -0.0)."""
    if dtype.is_bool and fn in LOGIC:
        return _fold_logic(fn, args)
    if fn in ROUNDING and not args[0].dtype.is_float:
        return args[0]
    if not args[0].dtype.is_integer or not any(isinstance(a, Const) for a in args):
        return Apply(fn, args, dtype)
    last = args[-1]
    if fn in (Fn.FLOORDIV, Fn.MOD) and isinstance(last, Const) and last.value == 0:
        raise ZeroDivisorError(f"integer {fn.value} by the constant 0 at {user_location()}: `{args[0]}`")
    if fn in _FOLD and all(isinstance(a, Const) for a in args):
        value = _FOLD[fn](*(a.value for a in args))  # type: ignore[attr-defined]
        low, high = integer_bounds(dtype)
        if low <= value <= high:
            return Const(value, dtype)
    return _identity(fn, args, dtype)


# fn -> (value neutral on the left, value neutral on the right)
_NEUTRAL: dict[Fn, tuple[int | None, int | None]] = {
    Fn.ADD: (0, 0), Fn.SUB: (None, 0), Fn.MUL: (1, 1), Fn.FLOORDIV: (None, 1),
}  # fmt: skip


def _identity(fn: Fn, args: tuple[Expr, ...], dtype: DType) -> Expr:
    """x + 0, x * 1, x // 1, x * 0, x % 1 of integers."""
    left, right = _NEUTRAL.get(fn, (None, None))
    values = [a.value if isinstance(a, Const) else None for a in args]
    if right is not None and values[-1] == right:
        return args[0]
    if left is not None and values[0] == left:
        return args[1]
    if (fn is Fn.MUL and 0 in values) or (fn is Fn.MOD and values[-1] == 1):
        return Const(0, dtype)
    return Apply(fn, args, dtype)


def _fold_logic(fn: Fn, args: tuple[Expr, ...]) -> Expr:
    if fn is Fn.NOT:
        inner = args[0]
        if isinstance(inner, Const):
            return FALSE if inner is TRUE else TRUE
        return inner.args[0] if isinstance(inner, Apply) and inner.fn is Fn.NOT else Apply(fn, args, BOOL)
    neutral, absorbing = (TRUE, FALSE) if fn is Fn.AND else (FALSE, TRUE)
    a, b = args
    if a is absorbing or b is absorbing:
        return absorbing
    if a is folded(Fn.NOT, (b,), BOOL):
        return absorbing
    if a is neutral or a is b:
        return b
    return a if b is neutral else Apply(fn, args, BOOL)
