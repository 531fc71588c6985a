"""The derivative of every pointwise operation: one table, one row per operation, the row is the formula.

A row takes the adjoint `g` of the result, the result `y` and the operands, and gives what each operand receives (None
where that is nothing). Rows never recurse; `rules.sweep` walks. They are linear in `g`, so that a forward
derivative uses them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.expr import Const, Expr
from tedsl.lang.operators import Fn

__all__ = ["DERIVATIVE", "PIECEWISE_CONSTANT", "is_one", "is_zero"]

Row = Callable[..., tuple[Any, ...]]


def is_one(x: Expr) -> bool:
    """Whether `x` is the literal 1."""
    return isinstance(x, Const) and x.value == 1


def is_zero(x: Expr) -> bool:
    """Whether `x` is the literal 0."""
    return isinstance(x, Const) and x.value == 0


def times(g: Any, factor: Any) -> Any:
    """g * factor, without a multiplication by the literal 1."""
    if isinstance(g, Const) and is_one(g):
        return fn.convert(factor, g.dtype)
    return g if isinstance(factor, Const) and is_one(factor) else g * factor


def _half_at_tie(g: Any, reaches: Any, ties: Any) -> Any:
    """`g` stands here once: in a chain of maxima it is itself such an expression, and its conditions would double."""
    return fn.select(reaches, times(g, fn.select(ties, fn.const(0.5, g.dtype), fn.const(1.0, g.dtype))), 0.0)


def _power(g: Any, y: Any, x: Any, n: Any) -> tuple[Any, Any]:
    if isinstance(n, Const):
        if n.value == 0:
            return None, None
        slope = n.value if n.value == 1 else n.value * x if n.value == 2 else n.value * fn.pow(x, n.value - 1)
        return times(g, slope) if n.value != 1 else g, None
    by_base = fn.select((n == 0) & (x == 0), 0.0, times(g, n * fn.pow(x, n - 1)))
    by_exponent = fn.select((x == 0) & (n >= 0), 0.0, times(g, y * fn.log(x)))
    return by_base, None if isinstance(n, Const) else by_exponent


def _clip(g: Any, y: Any, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
    inside = fn.select((low <= x) & (x <= high), g, 0.0)
    at_low = None if isinstance(low, Const) else fn.select((x < low) & (low <= high), g, 0.0)
    at_high = None if isinstance(high, Const) else fn.select((x > high) | (low > high), g, 0.0)
    return inside, at_low, at_high


def _hypot(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    return fn.select(y == 0, 0.0, times(g, a / y)), fn.select(y == 0, 0.0, times(g, b / y))


def _atan2(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    h = fn.hypot(a, b)
    return fn.select(h == 0, 0.0, times(g, b / h / h)), fn.select(h == 0, 0.0, times(g, -a / h / h))


DERIVATIVE: dict[Fn, Row] = {
    Fn.ADD: lambda g, y, a, b: (g, g),
    Fn.SUB: lambda g, y, a, b: (g, -g),
    Fn.MUL: lambda g, y, a, b: (times(g, b), times(g, a)),
    Fn.DIV: lambda g, y, a, b: (g / b, -times(g, y) / b),
    Fn.MOD: lambda g, y, a, b: (g, -times(g, fn.floor(a / b))),
    Fn.NEG: lambda g, y, x: (-g,),
    Fn.POW: _power,
    Fn.ABS: lambda g, y, x: (times(g, fn.sign(x)),),
    Fn.MINIMUM: lambda g, y, a, b: (_half_at_tie(g, a <= b, a == b), _half_at_tie(g, b <= a, a == b)),
    Fn.MAXIMUM: lambda g, y, a, b: (_half_at_tie(g, a >= b, a == b), _half_at_tie(g, b >= a, a == b)),
    Fn.CLIP: _clip,
    Fn.RELU: lambda g, y, x: (fn.select(x > 0, g, 0.0),),
    Fn.EXP: lambda g, y, x: (times(g, y),),
    Fn.EXP2: lambda g, y, x: (times(g, y * math.log(2)),),
    Fn.EXPM1: lambda g, y, x: (times(g, y + 1),),
    Fn.LOG: lambda g, y, x: (g / x,),
    Fn.LOG1P: lambda g, y, x: (g / (1 + x),),
    Fn.LOG2: lambda g, y, x: (g / (x * math.log(2)),),
    Fn.LOG10: lambda g, y, x: (g / (x * math.log(10)),),
    Fn.SQRT: lambda g, y, x: (g / (2 * y),),
    Fn.RSQRT: lambda g, y, x: (times(g, -0.5 * y / x),),
    Fn.CBRT: lambda g, y, x: (g / (3 * y * y),),
    Fn.SIN: lambda g, y, x: (times(g, fn.cos(x)),),
    Fn.COS: lambda g, y, x: (-times(g, fn.sin(x)),),
    Fn.TAN: lambda g, y, x: (times(g, 1 + y * y),),
    Fn.ASIN: lambda g, y, x: (g / fn.sqrt((1 - x) * (1 + x)),),
    Fn.ACOS: lambda g, y, x: (-g / fn.sqrt((1 - x) * (1 + x)),),
    Fn.ATAN: lambda g, y, x: (g / (1 + x * x),),
    Fn.ATAN2: _atan2,
    Fn.SINH: lambda g, y, x: (times(g, fn.cosh(x)),),
    Fn.COSH: lambda g, y, x: (times(g, fn.sinh(x)),),
    Fn.TANH: lambda g, y, x: (times(g, 1 - y * y),),
    Fn.ASINH: lambda g, y, x: (g / fn.hypot(x, 1.0),),
    Fn.ACOSH: lambda g, y, x: (g / (fn.sqrt(x - 1) * fn.sqrt(x + 1)),),
    Fn.ATANH: lambda g, y, x: (g / ((1 - x) * (1 + x)),),
    Fn.ERF: lambda g, y, x: (times(g, (2 / math.sqrt(math.pi)) * fn.exp(-x * x)),),
    Fn.ERFC: lambda g, y, x: (times(g, (-2 / math.sqrt(math.pi)) * fn.exp(-x * x)),),
    Fn.SIGMOID: lambda g, y, x: (times(g, y * (1 - y)),),
    Fn.HYPOT: _hypot,
    Fn.COPYSIGN: lambda g, y, a, b: (times(g, fn.copysign(1.0, a) * fn.copysign(1.0, b)), None),
    Fn.SELECT: lambda g, y, c, a, b: (None, g, g),
    Fn.CAST: lambda g, y, x: (fn.convert(g, x.dtype),),
    Fn.TERM: lambda g, y, x: (g,),
    Fn.ROUNDED: lambda g, y, x: (g,),
}

# Nothing flows back: steps, conditions, operations on integers, and what says so.
PIECEWISE_CONSTANT = frozenset({
    Fn.FLOORDIV, Fn.SIGN, Fn.FLOOR, Fn.CEIL, Fn.ROUND, Fn.TRUNC, Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.AND,
    Fn.OR, Fn.NOT, Fn.BITAND, Fn.BITOR, Fn.BITXOR, Fn.INVERT, Fn.LSHIFT, Fn.RSHIFT, Fn.ISNAN, Fn.ISINF, Fn.ISFINITE,
    Fn.STOP,
})  # fmt: skip
