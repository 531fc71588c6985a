"""Integer arithmetic as NumPy does it: two's complement that wraps, Python's floor division, shifts of any count.

Halide takes signed overflow of 32 and 64 bits for impossible and simplifies on that, so these run through the unsigned
type of the same width. Division by zero gives 0 (the language's rule for kernels).
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl

from tedsl.backend.scalars.types import SIGNED, TYPES, Expr, as_float64, bits_of, const, width

__all__ = [
    "absolute", "divides_by", "floor_divide", "floor_mod", "negative", "power", "quotient_by", "reciprocal",
    "remainder_by", "shift_left", "shift_right", "sign", "wrapping",
]  # fmt: skip

ROUNDER = {"float32": 1.5 * 2.0**23, "float64": 1.5 * 2.0**52}

KEY = 0x5DEECE66D

Binary = Callable[[Expr, Expr], Expr]


def _unsigned(x: Expr, dtype: str) -> Expr:
    return hl.cast(hl.UInt(width(dtype)), x)


def _back(x: Expr, dtype: str) -> Expr:
    return hl.cast(TYPES[dtype], _hidden(x) if width(dtype) == 64 else x)


def _hidden(x: Expr) -> Expr:
    """The same uint64, of which Halide infers no range: it takes these for integers that never wrap."""
    return (x ^ hl.u64(KEY)) ^ hl.u64(KEY)


def wrapping(op: Binary, a: Expr, b: Expr, dtype: str) -> Expr:
    """`op` modulo 2^width."""
    if dtype in SIGNED:
        return _back(op(_unsigned(a, dtype), _unsigned(b, dtype)), dtype)
    return _hidden(op(a, b)) if width(dtype) == 64 else op(a, b)


def _sub(a: Expr, b: Expr, dtype: str) -> Expr:
    return wrapping(lambda p, q: p - q, a, b, dtype)


def _mul(a: Expr, b: Expr, dtype: str) -> Expr:
    return wrapping(lambda p, q: p * q, a, b, dtype)


def negative(x: Expr, dtype: str) -> Expr:
    """-x; the most negative value is its own negative."""
    return _sub(const(0, dtype), x, dtype)


def absolute(x: Expr, dtype: str) -> Expr:
    """|x|; the most negative value stays as it is, which Halide's own takes for impossible: a maximum of it and 0 is
    dropped, LLVM may make anything of it."""
    return hl.select(x < const(0, dtype), negative(x, dtype), x) if dtype in SIGNED else x


def sign(x: Expr, dtype: str) -> Expr:
    """-1, 0 or 1."""
    zero, one = const(0, dtype), const(1, dtype)
    positive = hl.select(x > zero, one, zero)
    return hl.select(x < zero, const(-1, dtype), positive) if dtype in SIGNED else positive


def _floor_quotient(a: Expr, d: Expr, dtype: str) -> Expr:
    """floor(a / d) for d other than 0 and -1.

    Up to 32 bits through floats, which divide in vectors: a quotient p/q that is no integer is at least 1/q away from
    one, more than a float32 (float64) of 16-bit (32-bit) operands can be off.
    """
    bits = width(dtype)
    if bits <= 32:
        real = "float32" if bits <= 16 else "float64"
        p, q = (hl.cast(hl.Float(32), v) if bits <= 16 else as_float64(v, dtype) for v in (a, d))
        quotient = hl.floor(p / q)
        # Adding this leaves the integer in the low bits. A conversion instead would be merged with the casts that
        # follow: Halide's simplifier reads float -> int32 -> uint32 as float -> uint32, which a negative quotient does
        # not survive.
        return _back(bits_of(quotient + const(ROUNDER[real], real), real), dtype)
    quotient = hl.div_round_to_zero(a, d)
    if dtype not in SIGNED:
        return quotient
    rest = _sub(a, _mul(quotient, d, dtype), dtype)
    zero = const(0, dtype)
    return hl.select((rest != zero) & ((rest < zero) != (d < zero)), _sub(quotient, const(1, dtype), dtype), quotient)


def _divide(a: Expr, b: Expr, dtype: str) -> tuple[Expr, Expr, Expr]:
    """A harmless divisor, the quotient by it, and whether b is 0 (then, and at -1, the divisor is 1)."""
    is_zero = b == const(0, dtype)
    special = is_zero | (b == const(-1, dtype)) if dtype in SIGNED else is_zero
    divisor = hl.select(special, const(1, dtype), b)
    return divisor, _floor_quotient(a, divisor, dtype), is_zero


def floor_divide(a: Expr, b: Expr, dtype: str) -> Expr:
    """a // b, rounded down; 0 where b is 0; the most negative value // -1 wraps."""
    _, quotient, is_zero = _divide(a, b, dtype)
    if dtype in SIGNED:
        quotient = hl.select(b == const(-1, dtype), negative(a, dtype), quotient)
    return hl.select(is_zero, const(0, dtype), quotient)


def floor_mod(a: Expr, b: Expr, dtype: str) -> Expr:
    """a % b with the sign of b; 0 where b is 0."""
    divisor, quotient, _ = _divide(a, b, dtype)
    return _sub(a, _mul(quotient, divisor, dtype), dtype)


def divides_by(divisor: float, dtype: str) -> bool:
    """Whether `quotient_by` and `remainder_by` know a constant divisor."""
    return width(dtype) <= 32 and divisor > 0


def quotient_by(a: Expr, divisor: int, dtype: str) -> Expr:
    """a // divisor, rounded down: Halide multiplies and shifts, in lanes of the type itself.

    before   floor(float32(a) / 3)      after   a / 3, which is mulhi(a, 43691) >> 1 for uint16

    Halide rounds down for positive divisors. Its simplifier moves factors across comparisons of int32, where they may
    wrap: a negative int32 is the complement of the quotient of its complement, both without a sign.
    """
    if dtype != "int32":
        return a / const(divisor, dtype)
    sign = a >> hl.u32(31)
    return hl.cast(hl.Int(32), hl.cast(hl.UInt(32), a ^ sign) / hl.u32(divisor)) ^ sign


def remainder_by(a: Expr, divisor: int, dtype: str) -> Expr:
    """a % divisor, which is not negative."""
    if dtype != "int32":
        return a % const(divisor, dtype)
    if divisor & (divisor - 1) == 0:
        return a & hl.i32(divisor - 1)
    return _sub(a, _mul(quotient_by(a, divisor, dtype), const(divisor, dtype), dtype), dtype)


def shift_left(a: Expr, b: Expr, dtype: str) -> Expr:
    """a << b; 0 for counts that are negative or reach the width."""
    count, n = _unsigned(b, dtype), width(dtype)
    limit = const(n - 1, f"uint{n}")
    shifted = _unsigned(a, dtype) << (count & limit)
    return _back(hl.select(count <= limit, shifted, const(0, f"uint{n}")), dtype)


def shift_right(a: Expr, b: Expr, dtype: str) -> Expr:
    """a >> b, arithmetic on signed types; counts that are negative or reach the width leave only the sign."""
    count, n = _unsigned(b, dtype), width(dtype)
    limit = const(n - 1, f"uint{n}")
    if dtype in SIGNED:
        return a >> hl.min(count, limit)
    return hl.select(count <= limit, a >> (count & limit), const(0, dtype))


def power(a: Expr, b: Expr, dtype: str) -> Expr:
    """a ** b by repeated squaring, wrapping; a negative exponent rounds the fraction towards zero."""
    n = width(dtype)
    zero, one = const(0, dtype), const(1, dtype)
    exponent, result, square = _unsigned(b, dtype), one, a
    last = n - 1 if dtype in SIGNED else n
    for k in range(last):
        odd = (exponent & const(1 << k, f"uint{n}")) != const(0, f"uint{n}")
        result = hl.select(odd, _mul(result, square, dtype), result)
        square = _mul(square, square, dtype)
    if dtype not in SIGNED:
        return result
    unit = hl.select((b & one) == zero, one, a)
    fraction = hl.select((a == one) | (a == const(-1, dtype)), unit, zero)
    return hl.select(b < zero, fraction, result)


def reciprocal(a: Expr, dtype: str) -> Expr:
    """1 / a rounded towards zero; 0 where a is 0."""
    unit = a == const(1, dtype)
    if dtype in SIGNED:
        unit = unit | (a == const(-1, dtype))
    return hl.select(unit, a, const(0, dtype))
