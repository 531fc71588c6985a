"""Intervals of floats, as far as places that are made of floats need them: `cast(clip(x, 0.0, 1.0) * 7.0, "int32")`.

Each result is taken a few last bits wider than it is, which covers how it is rounded in its dtype, alone or fused with
the sum around it. NaN lies in every interval. What nothing is known of has infinite ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tedsl.lang.dtypes import DType, integer_bounds
from tedsl.lang.expr import Apply, Fn

__all__ = ["ALL", "FloatRange", "float_range", "float_sum", "truncated"]

FloatRange = tuple[float, float]
ALL: FloatRange = (-math.inf, math.inf)
ULPS = 4
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
FEW_UNITS = 2.0**-7  # that as many roundings as a sum has may come to
TINY = 2.0**-24  # of float16, the coarsest numbers beside 0


def float_range(node: Apply, ends: tuple[FloatRange, ...]) -> FloatRange:
    """The interval of an operation on operands, not all of them integers, that lie within `ends`."""
    rule = _RULES.get(node.fn)
    low, high = rule(*ends) if rule is not None else ALL
    if math.isnan(low) or math.isnan(high):
        return ALL
    if node.fn in _EXACT:
        return low, high
    return _wider(low, -1, node.dtype), _wider(high, 1, node.dtype)


def float_sum(begin: FloatRange, values: FloatRange, most: int, dtype: DType) -> FloatRange:
    """What a number and up to so many others come to, added in any order, also in parts that are subtracted."""
    unit = most * 2.0 ** -_DIGITS[dtype.name]
    size = most * max(map(abs, values)) + max(map(abs, begin))
    if unit > FEW_UNITS or not math.isfinite(size):
        return ALL
    lost = 2 * ULPS * unit * size + TINY
    return begin[0] + min(most * values[0], 0.0) - lost, begin[1] + max(most * values[1], 0.0) + lost


def truncated(ends: FloatRange, dtype: DType) -> tuple[int, int]:
    """What a cast makes of them: cut at the ends of the dtype; of NaN it makes 0."""
    least, greatest = integer_bounds(dtype)
    low, high = (
        (least if end < least else greatest) if not least <= end <= greatest else math.trunc(end) for end in ends
    )
    return min(low, 0), max(high, 0)


def _wider(end: float, side: int, dtype: DType) -> float:
    if math.isinf(end) or end == 0.0:
        return end
    return end + side * (abs(end) * ULPS * 2.0 ** -_DIGITS[dtype.name] + TINY)


def _plus(a: FloatRange, b: FloatRange) -> FloatRange:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: FloatRange, b: FloatRange) -> FloatRange:
    return a[0] - b[1], a[1] - b[0]


def _product(a: FloatRange, b: FloatRange) -> FloatRange:
    corners = [x * y for x in a for y in b]
    return (math.nan, math.nan) if any(map(math.isnan, corners)) else (min(corners), max(corners))


def _quotient(a: FloatRange, b: FloatRange) -> FloatRange:
    if b[0] <= 0.0 <= b[1] or any(map(math.isinf, (*a, *b))):
        return ALL
    corners = [x / y for x in a for y in b]
    return min(corners), max(corners)


def _minimum(a: FloatRange, b: FloatRange) -> FloatRange:
    return min(a[0], b[0]), min(a[1], b[1])


def _maximum(a: FloatRange, b: FloatRange) -> FloatRange:
    return max(a[0], b[0]), max(a[1], b[1])


def _absolute(a: FloatRange) -> FloatRange:
    return max(a[0], -a[1], 0.0), max(-a[0], a[1])


def _stepped(step: Callable[[float], int]) -> Callable[[FloatRange], FloatRange]:
    return lambda a: (_step(step, a[0]), _step(step, a[1]))


def _step(step: Callable[[float], int], end: float) -> float:
    return end if math.isinf(end) else float(step(end))


_EXACT = {
    Fn.NEG, Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.ABS, Fn.RELU, Fn.SELECT, Fn.FLOOR, Fn.CEIL, Fn.ROUND, Fn.TRUNC,
    Fn.TERM, Fn.STOP,
}  # fmt: skip
_RULES: Mapping[Fn, Callable[..., FloatRange]] = {
    Fn.ADD: _plus, Fn.SUB: _minus, Fn.NEG: lambda a: (-a[1], -a[0]), Fn.MUL: _product, Fn.DIV: _quotient,
    Fn.MINIMUM: _minimum, Fn.MAXIMUM: _maximum, Fn.CLIP: lambda x, low, high: _minimum(_maximum(x, low), high),
    Fn.ABS: _absolute, Fn.RELU: lambda a: _maximum(a, (0.0, 0.0)), Fn.CAST: lambda a: a,
    Fn.TERM: lambda a: a, Fn.STOP: lambda a: a,
    Fn.SELECT: lambda c, a, b: (min(a[0], b[0]), max(a[1], b[1])), Fn.FLOOR: _stepped(math.floor),
    Fn.CEIL: _stepped(math.ceil), Fn.ROUND: _stepped(round), Fn.TRUNC: _stepped(math.trunc),
    Fn.SIGMOID: lambda a: (0.0, 1.0), Fn.TANH: lambda a: (-1.0, 1.0), Fn.SIN: lambda a: (-1.0, 1.0),
    Fn.COS: lambda a: (-1.0, 1.0),
}  # fmt: skip
