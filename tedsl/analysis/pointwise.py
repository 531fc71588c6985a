"""What each pointwise operation computes, in NumPy: one table, one row per operation.

The reference evaluator runs on it, and analyses that decide something by enumeration do too. Values are held in the
NumPy type of their dtype; bfloat16, which NumPy lacks, is held as float32 values that bfloat16 can represent. Floats of
16 bits are computed in float32 and rounded after each operation; functions of float32 that no machine rounds exactly,
in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedsl.lang.dtypes import DType, integer_bounds
from tedsl.lang.operand_types import FLOAT_BINARY, FLOAT_UNARY
from tedsl.lang.operators import Fn

__all__ = ["NUMPY", "Array", "apply_numpy", "held_type", "rounded"]

Array = NDArray[Any]


@cache
def held_type(dtype: DType) -> np.dtype[Any]:
    """The NumPy type in which values of `dtype` are held."""
    return np.dtype("float32" if dtype == "bfloat16" else str(dtype))


def rounded(value: Array, dtype: DType) -> Array:
    """`value` converted to `dtype`: integers wrap, floats round; floats saturate into integers, and NaN becomes 0."""
    if dtype == "bfloat16":
        return _round_bfloat16(_as_float32(value))
    target = held_type(dtype)
    if value.dtype == target:
        return value
    if value.dtype.kind == "f" and dtype.is_integer:
        return _saturated(value, dtype)
    return value.astype(target)


def _as_float32(value: Array) -> Array:
    """As float32, whose last bit is 1 where the value lies beside it: rounded again, it is rounded once."""
    if value.dtype.kind not in "iu" and value.dtype != np.float64:
        return value.astype(np.float32, copy=False)
    wide = value.astype(np.longdouble)
    near = wide.astype(np.float32)
    beside = np.isfinite(near) & (near.astype(np.longdouble) != wide)
    near = np.where(beside & (np.abs(near) > np.abs(wide)), np.nextafter(near, np.float32(0)), near)
    odd: Array = (np.ascontiguousarray(near).view(np.uint32) | beside).view(np.float32)
    return odd.reshape(value.shape)


def _round_bfloat16(value: Array) -> Array:
    """To the nearest float32 whose low 16 bits are zero, ties to even."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(value), value, nearest.view(np.float32).reshape(value.shape))


def _saturated(value: Array, dtype: DType) -> Array:
    low, high = integer_bounds(dtype)
    wide = np.trunc(value.astype(np.float64))
    inside = (wide >= float(low)) & (wide < float(high + 1))
    whole = np.where(inside, wide, 0.0).astype(held_type(dtype))
    limits = np.where(wide >= float(high + 1), high, np.where(wide < float(low), low, 0))
    return np.where(inside, whole, limits.astype(held_type(dtype)))


def _scalar_function(function: Callable[[float], float]) -> Callable[[Array], Array]:
    each = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(each(x)).astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    """x to the power y by C's rules; by strides NumPy may take those of the square root for a single 0.5."""
    if x.dtype.kind != "f":
        return np.asarray(np.power(x, np.maximum(y, y.dtype.type(0))))
    return np.asarray(np.power(x, np.array(np.broadcast_to(y, np.broadcast_shapes(x.shape, y.shape)))))


def _minimum(a: Array, b: Array) -> Array:
    """The smaller, `a` on a tie: which of 0.0 and -0.0 NumPy's ufunc gives depends on the dtype."""
    return np.where((b < a) | np.isnan(b), b, a) if a.dtype.kind == "f" else np.asarray(np.minimum(a, b))


def _maximum(a: Array, b: Array) -> Array:
    """The larger, `a` on a tie."""
    return np.where((b > a) | np.isnan(b), b, a) if a.dtype.kind == "f" else np.asarray(np.maximum(a, b))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


# CAST and every other row leave the conversion to the node's dtype to `rounded`.
NUMPY: dict[Fn, Callable[..., Any]] = {
    Fn.ADD: np.add, Fn.SUB: np.subtract, Fn.MUL: np.multiply, Fn.DIV: np.true_divide, Fn.NEG: np.negative,
    Fn.FLOORDIV: np.floor_divide, Fn.MOD: np.remainder, Fn.POW: _power, Fn.ABS: np.abs, Fn.SIGN: np.sign,
    Fn.MINIMUM: _minimum, Fn.MAXIMUM: _maximum, Fn.CLIP: lambda x, low, high: _minimum(_maximum(x, low), high),
    Fn.RELU: lambda x: _maximum(x, x.dtype.type(0)),
    Fn.EQ: np.equal, Fn.NE: np.not_equal, Fn.LT: np.less, Fn.LE: np.less_equal,
    Fn.GT: np.greater, Fn.GE: np.greater_equal,
    Fn.AND: np.logical_and, Fn.OR: np.logical_or, Fn.NOT: np.logical_not,
    Fn.BITAND: np.bitwise_and, Fn.BITOR: np.bitwise_or, Fn.BITXOR: np.bitwise_xor, Fn.INVERT: np.invert,
    Fn.LSHIFT: np.left_shift, Fn.RSHIFT: np.right_shift, Fn.SELECT: np.where, Fn.CAST: lambda x: x,
    Fn.TERM: lambda x: x, Fn.ROUNDED: lambda x: x, Fn.STOP: lambda x: x,
    Fn.EXP: np.exp, Fn.EXP2: np.exp2, Fn.EXPM1: np.expm1, Fn.LOG: np.log, Fn.LOG1P: np.log1p, Fn.LOG2: np.log2,
    Fn.LOG10: np.log10, Fn.SQRT: np.sqrt, Fn.RSQRT: lambda x: 1 / np.sqrt(x), Fn.CBRT: np.cbrt,
    Fn.SIN: np.sin, Fn.COS: np.cos, Fn.TAN: np.tan, Fn.ASIN: np.arcsin, Fn.ACOS: np.arccos, Fn.ATAN: np.arctan,
    Fn.ATAN2: np.arctan2, Fn.SINH: np.sinh, Fn.COSH: np.cosh, Fn.TANH: np.tanh, Fn.ASINH: np.arcsinh,
    Fn.ACOSH: np.arccosh, Fn.ATANH: np.arctanh,
    Fn.ERF: _scalar_function(math.erf), Fn.ERFC: _scalar_function(math.erfc),
    Fn.SIGMOID: _sigmoid, Fn.HYPOT: np.hypot, Fn.COPYSIGN: np.copysign,
    Fn.FLOOR: np.floor, Fn.CEIL: np.ceil, Fn.ROUND: np.rint, Fn.TRUNC: np.trunc,
    Fn.ISNAN: np.isnan, Fn.ISINF: np.isinf, Fn.ISFINITE: np.isfinite,
}  # fmt: skip

_INEXACT = FLOAT_UNARY | FLOAT_BINARY | {Fn.POW}


def apply_numpy(fn: Fn, args: Sequence[Array], dtype: DType) -> Array:
    """`fn` of promoted operands as a value of `dtype`; a zero divisor of integers gives 0 here, callers report it."""
    if fn is Fn.SELECT:
        return np.where(*args)
    with np.errstate(all="ignore"):
        if args[0].dtype == np.float16:
            args = [a.astype(np.float32) for a in args]
        elif fn in _INEXACT and args[0].dtype == np.float32 and dtype != "bfloat16":
            args = [a.astype(np.float64) for a in args]
        return rounded(np.asarray(NUMPY[fn](*args)), dtype)
