"""Float arithmetic that is not a function of analysis: signs, extremes, rounding, remainders.

Written for float32 and float64; the narrow types run through float32 (see `intrinsics`). Everything is exact or rounded
once, as in NumPy, under Halide's target feature `strict_float`.
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl

from tedsl.backend.scalars.types import Expr, bits_of, const, copy_sign, f64, from_bits, literal_value

__all__ = ["clip", "floor_divide", "floor_mod", "hypot", "maximum", "minimum", "relu", "root_power", "rsqrt", "sign"]

Test = Callable[[Expr, str], Expr]


def sign(x: Expr, dtype: str) -> Expr:
    """-1, 0, 1, or NaN; the sign of -0.0 is 0.0."""
    zero, one = const(0.0, dtype), const(1.0, dtype)
    return hl.select(x > zero, one, hl.select(x < zero, const(-1.0, dtype), hl.select(x == zero, zero, x)))


def _is_unordered(x: Expr, dtype: str) -> Expr:
    """Halide's own test: one comparison, which `assembly.min_max` knows again.

    Not x != x: where x is the same for all lanes, Halide drops that from the masked end of a vectorized loop. It copies
    what it tests as a tree, so that what is nested deep is tested by its bits (`intrinsics.DEEP`).
    """
    return hl.is_nan(x)


def _or_nan(condition: Expr, x: Expr, dtype: str, is_nan: Test) -> Expr:
    """Whether a condition holds, or x is NaN, which no literal is that equals itself."""
    value = literal_value(x)
    return condition if value is not None and value == value else condition | is_nan(x, dtype)


def minimum(a: Expr, b: Expr, dtype: str, is_nan: Test = _is_unordered) -> Expr:
    """The smaller; NaN when either is NaN."""
    return hl.select(_or_nan(b < a, b, dtype, is_nan), b, a)


def maximum(a: Expr, b: Expr, dtype: str, is_nan: Test = _is_unordered) -> Expr:
    """The larger; NaN when either is NaN."""
    return hl.select(_or_nan(b > a, b, dtype, is_nan), b, a)


def relu(x: Expr, dtype: str) -> Expr:
    """max(x, 0), NaN kept."""
    zero = const(0.0, dtype)
    return hl.select(x < zero, zero, x)


def clip(x: Expr, low: Expr, high: Expr, dtype: str, is_nan: Test = _is_unordered) -> Expr:
    """min(max(x, low), high), NaN from any of the three."""
    return minimum(maximum(x, low, dtype, is_nan), high, dtype, is_nan)


def rsqrt(x: Expr, dtype: str) -> Expr:
    """1 / sqrt(x)."""
    return const(1.0, dtype) / hl.sqrt(x)


def root_power(x: Expr, dtype: str) -> Expr:
    """x^0.5 by C's rules, which differ from the square root's at -0.0 and minus infinity."""
    infinity = const(float("inf"), dtype)
    return hl.select(hl.abs(x) == infinity, infinity, hl.sqrt(x) + const(0.0, dtype))


def hypot(a: Expr, b: Expr, dtype: str) -> Expr:
    """sqrt(a * a + b * b) without overflow on the way; infinite when either is, even beside NaN."""
    if dtype == "float32":
        x, y = hl.cast(hl.Float(64), a), hl.cast(hl.Float(64), b)
        root = hl.cast(hl.Float(32), hl.sqrt(x * x + y * y))
    else:
        x, y = hl.abs(a), hl.abs(b)
        top = hl.select(x > y, x, y)
        is_big, is_small = top > f64(2.0**500), top < f64(2.0**-500)
        scale = hl.select(is_big, f64(2.0**-600), hl.select(is_small, f64(2.0**600), f64(1.0)))
        back = hl.select(is_big, f64(2.0**600), hl.select(is_small, f64(2.0**-600), f64(1.0)))
        x, y = x * scale, y * scale
        root = hl.sqrt(x * x + y * y) * back
    infinity = const(float("inf"), dtype)
    return hl.select((hl.abs(a) == infinity) | (hl.abs(b) == infinity), infinity, root)


# --- remainders -----------------------------------------------------------------------------------------------------
# fmod(a, b) for a = p 2^i, b = m 2^j (p, m integers of full mantissa width, i >= j) is (p 2^(i - j) mod m) 2^j, all in
# integers. 2^(i - j) mod m takes a handful of modular products, by squaring; there is no loop whose length depends on
# the data, as in fmod of a C library, so that it runs in vectors.

MANTISSA = 52  # stored bits of a float64, in which float32 operands are computed as well
FIELD = hl.u64((1 << MANTISSA) - 1)


def _decompose(x: Expr) -> tuple[Expr, Expr]:
    """The mantissa (as an integer in [2^52, 2^53)) and the exponent of a positive finite float64."""
    is_tiny = x < f64(2.0**-1022)
    bits = bits_of(hl.select(is_tiny, x * f64(2.0**54), x), "float64")
    exponent = hl.cast(hl.Int(32), bits >> hl.u64(MANTISSA)) - hl.i32(1075)
    return (bits & FIELD) | hl.u64(1 << MANTISSA), exponent - hl.select(is_tiny, hl.i32(54), hl.i32(0))


def _product_mod(x: Expr, y: Expr, m: Expr, inverse: Expr) -> Expr:
    """x * y mod m for integers x, y < m < 2^53.

    The quotient comes from floats and is off by a few; the difference x * y - quotient * m, computed modulo 2^64, is
    then exact and a few m wide.
    """
    as_float = hl.cast(hl.Float(64), x) * hl.cast(hl.Float(64), y) * inverse
    rest = hl.cast(hl.Int(64), x * y - hl.cast(hl.UInt(64), as_float) * m)
    turns = hl.floor(hl.cast(hl.Float(64), rest) * inverse)
    rest = hl.cast(hl.UInt(64), rest) - hl.cast(hl.UInt(64), hl.cast(hl.Int(64), turns)) * m
    rest = hl.select(hl.cast(hl.Int(64), rest) < hl.i64(0), rest + m, rest)
    return hl.select(rest >= m, rest - m, rest)


def _scale(x: Expr, exponent: Expr) -> Expr:
    """x * 2^exponent in two steps, since 2^exponent alone may not be a float64."""
    half = exponent >> hl.u32(1)
    for e in (half, exponent - half):
        field = hl.cast(hl.UInt(64), hl.cast(hl.Int(64), e + hl.i32(1023))) << hl.u64(MANTISSA)
        x = x * from_bits(field, "float64")
    return x


def _fmod64(a: Expr, b: Expr, span: int) -> Expr:
    """fmod of positive finite float64s whose exponents differ by less than 2^span."""
    p, i = _decompose(a)
    m, j = _decompose(b)
    gap = hl.max(i - j, hl.i32(0))
    inverse = f64(1.0) / hl.cast(hl.Float(64), m)
    lead = max(span - 5, 0)  # 2^(gap >> lead) < 2^32 < m is its own residue
    power = hl.u64(1) << hl.cast(hl.UInt(64), gap >> hl.u32(lead))
    for k in reversed(range(lead)):
        power = _product_mod(power, power, m, inverse)
        doubled = power << hl.cast(hl.UInt(64), (gap >> hl.u32(k)) & hl.i32(1))
        power = hl.select(doubled >= m, doubled - m, doubled)
    reduced = hl.select(p >= m, p - m, p)
    rest = _product_mod(reduced, power, m, inverse)
    return hl.select(a < b, a, _scale(hl.cast(hl.Float(64), rest), j))


def _fmod(a: Expr, b: Expr, dtype: str) -> Expr:
    """C's fmod: the exact remainder of division towards zero, with the sign of a."""
    infinity, one, zero = const(float("inf"), dtype), const(1.0, dtype), const(0.0, dtype)
    x, y = hl.abs(a), hl.abs(b)
    valid = (x < infinity) & (y > zero)  # false for NaN too
    # 1 mod 1 stands in where the answer is NaN, or a itself.
    use = valid & (y < infinity) & (x > zero)
    x, y = hl.select(use, x, one), hl.select(use, y, one)
    if dtype == "float32":
        rest = hl.cast(hl.Float(32), _fmod64(hl.cast(hl.Float(64), x), hl.cast(hl.Float(64), y), 9))
    else:
        rest = _fmod64(x, y, 12)
    not_a_number = const(float("nan"), dtype)
    kept = hl.select(valid, a, not_a_number)
    return hl.select(use, copy_sign(rest, a, dtype), kept)


def floor_mod(a: Expr, b: Expr, dtype: str) -> Expr:
    """Python's float %: the sign of b, exact where it can be; a zero remainder has the sign of b."""
    rest = _fmod(a, b, dtype)
    zero = const(0.0, dtype)
    moved = hl.select((rest < zero) != (b < zero), rest + b, rest)
    return hl.select(rest == zero, copy_sign(zero, b, dtype), moved)


def floor_divide(a: Expr, b: Expr, dtype: str) -> Expr:
    """Python's float //, by NumPy's formula: from the exact remainder, then snapped to the nearest integer."""
    zero, one = const(0.0, dtype), const(1.0, dtype)
    rest = _fmod(a, b, dtype)
    quotient = (a - rest) / b
    below = (rest != zero) & ((rest < zero) != (b < zero))
    quotient = hl.select(below, quotient - one, quotient)
    floor = hl.floor(quotient)
    floor = hl.select(quotient - floor > const(0.5, dtype), floor + one, floor)
    signed_zero = copy_sign(zero, a / b, dtype)
    result = hl.select(quotient != zero, floor, signed_zero)
    return hl.select(b == zero, a / b, result)
