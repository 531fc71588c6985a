"""Rows of the table for what is computed element by element."""

from __future__ import annotations

import math
from typing import Any

from tedsl.bridges.fx.rows.arrays import Row, apply, broadcast, copied, dtype_of, fresh, kind_of
from tedsl.bridges.fx.rows.promotion import in_dtype, promoted
from tedsl.lang.operators import Fn
from tedsl.mutation.array import Array


def _unary(f: Fn) -> Row:
    return lambda x: apply(f, x)


def _binary(f: Fn) -> Row:
    return lambda a, b: apply(f, a, b)


def _add(a: Any, b: Any, *, alpha: Any = 1) -> Array:
    return apply(Fn.ADD, a, _scaled(b, alpha))


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Array:
    return apply(Fn.SUB, a, _scaled(b, alpha))


def _scaled(x: Any, alpha: Any) -> Any:
    return x if isinstance(alpha, (int, float)) and alpha == 1 else apply(Fn.MUL, x, alpha)


def _is_float(x: Any) -> bool:
    return bool(dtype_of(x).is_float) if not isinstance(x, (int, float)) else isinstance(x, float)


def _differ_in_sign(a: Any, b: Any) -> Array:
    return apply(Fn.NE, apply(Fn.LT, a, 0), apply(Fn.LT, b, 0))


def _truncated(a: Any, b: Any) -> Array:
    """The quotient without its fraction, of integers in all their digits."""
    if _is_float(a) or _is_float(b):
        return apply(Fn.TRUNC, apply(Fn.DIV, a, b))
    floor = apply(Fn.FLOORDIV, a, b)
    is_below = apply(Fn.AND, apply(Fn.NE, apply(Fn.MOD, a, b), 0), _differ_in_sign(a, b))
    return apply(Fn.SELECT, is_below, apply(Fn.ADD, floor, 1), floor)


_QUOTIENTS = {
    None: promoted(lambda a, b: apply(Fn.DIV, a, b), "INT_TO_FLOAT"),
    "floor": promoted(lambda a, b: apply(Fn.FLOORDIV, a, b), "DEFAULT"),
    "trunc": promoted(_truncated, "NO_OPMATH"),  # of half precision it is the rounded quotient that loses its fraction
}


def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    return _QUOTIENTS[rounding_mode](a, b)


def _fmod(a: Any, b: Any) -> Array:
    """The remainder with the sign of a; MOD has that of b."""
    if _is_float(a) or _is_float(b):
        return apply(Fn.COPYSIGN, apply(Fn.MOD, apply(Fn.ABS, a), apply(Fn.ABS, b)), a)
    r = apply(Fn.MOD, a, b)
    is_turned = apply(Fn.AND, apply(Fn.NE, r, 0), _differ_in_sign(a, b))
    return apply(Fn.SELECT, is_turned, apply(Fn.SUB, r, b), r)


def _pow(a: Any, b: Any) -> Array:
    """A power; an integer to a negative one is 0 but for 1 and -1."""
    if _is_float(a) or _is_float(b) or (isinstance(b, int) and b >= 0):
        return apply(Fn.POW, a, b)
    is_odd = apply(Fn.NE, apply(Fn.BITAND, b, 1), 0)
    of_minus_one = apply(Fn.SELECT, is_odd, -1, apply(Fn.SELECT, is_odd, 0, 1))
    inverse = apply(Fn.SELECT, apply(Fn.EQ, a, 1), 1, apply(Fn.SELECT, apply(Fn.EQ, a, -1), of_minus_one, 0))
    return apply(Fn.SELECT, apply(Fn.LT, b, 0), inverse, apply(Fn.POW, a, apply(Fn.MAXIMUM, b, 0)))


def _round(x: Any, *, decimals: int = 0) -> Array:
    if not decimals:
        return apply(Fn.ROUND, x)
    ten = 10.0 ** abs(decimals)
    there, back = (Fn.MUL, Fn.DIV) if decimals > 0 else (Fn.DIV, Fn.MUL)
    return apply(back, apply(Fn.ROUND, apply(there, x, ten)), ten)


def _skipping(f: Fn) -> Row:
    """An extreme of two that is the other one where one is NaN."""

    def row(a: Any, b: Any) -> Any:
        return apply(Fn.SELECT, apply(Fn.ISNAN, a), b, apply(Fn.SELECT, apply(Fn.ISNAN, b), a, apply(f, a, b)))

    return row


def _clamp(x: Any, low: Any = None, high: Any = None) -> Array:
    below = x if low is None else apply(Fn.MAXIMUM, x, low)
    return below if high is None else apply(Fn.MINIMUM, below, high)


def _where(cond: Any, a: Any, b: Any) -> Array:
    return apply(Fn.SELECT, _truth(cond), a, b)


def _masked_fill(x: Any, mask: Any, value: Any) -> Array:
    return _where(mask, in_dtype(value, dtype_of(x)), x)


def _truth(x: Any) -> Any:
    return x if not isinstance(x, Array) or x.storage.dtype.is_bool else apply(Fn.NE, x, 0)


def _sign_bit(x: Any) -> Array:
    return apply(Fn.LT, apply(Fn.COPYSIGN, 1.0, x) if _is_float(x) else x, 0)


def _as_type(x: Any, dtype: Any = None) -> Array:
    return copied(x) if dtype is None else apply(Fn.CAST, x, kind_of(dtype))


# By what decides the dtype in which they are computed, in PyTorch's words.
PROMOTED: dict[str, dict[str, Row]] = {
    "DEFAULT": {
        **{f.value: _unary(f) for f in (
            Fn.NEG, Fn.ABS, Fn.SIGN, Fn.RELU, Fn.FLOOR, Fn.CEIL, Fn.TRUNC,
        )},
        **{f.value: _binary(f) for f in (Fn.MUL, Fn.MAXIMUM, Fn.MINIMUM, Fn.HYPOT)},
        "add": _add, "sub": _sub, "rsub": lambda a, b, *, alpha=1: _sub(b, a, alpha=alpha), "pow": _pow,
        "floor_divide": _binary(Fn.FLOORDIV), "remainder": _binary(Fn.MOD), "fmod": _fmod, "round": _round,
        "bitwise_and": _binary(Fn.BITAND), "bitwise_or": _binary(Fn.BITOR), "bitwise_xor": _binary(Fn.BITXOR),
        "bitwise_not": _unary(Fn.INVERT), "__lshift__": _binary(Fn.LSHIFT), "__rshift__": _binary(Fn.RSHIFT),
        "bitwise_left_shift": _binary(Fn.LSHIFT), "bitwise_right_shift": _binary(Fn.RSHIFT),
        "fmax": _skipping(Fn.MAXIMUM), "fmin": _skipping(Fn.MINIMUM), "clamp": _clamp,
        "clamp_min": _binary(Fn.MAXIMUM), "clamp_max": _binary(Fn.MINIMUM), "square": lambda x: apply(Fn.MUL, x, x),
        "fma": lambda a, b, c: apply(Fn.ADD, apply(Fn.MUL, a, b), c),
    },
    "INT_TO_FLOAT": {
        **{f.value: _unary(f) for f in (
            Fn.EXP, Fn.EXP2, Fn.EXPM1, Fn.LOG, Fn.LOG1P, Fn.LOG2, Fn.LOG10, Fn.SQRT, Fn.RSQRT, Fn.SIN, Fn.COS, Fn.TAN,
            Fn.ASIN, Fn.ACOS, Fn.ATAN, Fn.SINH, Fn.COSH, Fn.TANH, Fn.ASINH, Fn.ACOSH, Fn.ATANH, Fn.ERF, Fn.ERFC,
            Fn.SIGMOID,
        )},
        **{f.value: _binary(f) for f in (Fn.ATAN2, Fn.COPYSIGN)},
        "reciprocal": lambda x: apply(Fn.DIV, 1.0, x),
    },
    "ALWAYS_BOOL": {
        **{f.value: _unary(f) for f in (Fn.ISNAN, Fn.ISINF)},
        **{f.value: _binary(f) for f in (Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE)},
        "isposinf": lambda x: apply(Fn.EQ, x, math.inf), "isneginf": lambda x: apply(Fn.EQ, x, -math.inf),
        "signbit": _sign_bit, "logical_and": lambda a, b: apply(Fn.AND, _truth(a), _truth(b)),
        "logical_or": lambda a, b: apply(Fn.OR, _truth(a), _truth(b)),
        "logical_not": lambda x: apply(Fn.NOT, _truth(x)),
    },
}  # fmt: skip

ELEMENTS: dict[str, Row] = {
    **{name: promoted(row, kind) for kind, rows in PROMOTED.items() for name, row in rows.items()},
    "div": _div, "true_divide": lambda a, b: _div(a, b), "where": promoted(_where, "NO_OPMATH", first=1),
    "masked_fill": _masked_fill, "_to_copy": lambda x, *, dtype=None: _as_type(x, dtype),
    "convert_element_type": _as_type, "clone": copied, "lift_fresh_copy": copied, "contiguous": copied,
    "copy": lambda x, source: fresh(broadcast(source, x.shape)),
}  # fmt: skip
