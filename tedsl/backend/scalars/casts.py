"""Conversions between dtypes, with a defined result for every value.

Floats become integers by truncation that saturates, NaN becomes 0 (Halide and LLVM leave both undefined). Narrow floats
round once, to nearest even, and keep NaN (Halide's own bfloat16 rounding turns some NaNs into zeros).
"""

from __future__ import annotations

import halide as hl

from tedsl.backend.scalars.notes import Notes
from tedsl.backend.scalars.types import (
    FLOATS,
    INTEGERS,
    SIGNED,
    TYPES,
    Expr,
    as_float64,
    at_most,
    bits_of,
    const,
    f64,
    from_bits,
    has_halves,
    is_for_opencl,
    is_nan,
    literal_value,
    narrow_value,
    width,
)

__all__ = ["cast", "narrow", "truncate", "widen"]

NARROW = frozenset({"float16", "bfloat16"})
_WIDE = Notes[Expr]()  # the float32 of narrow floats


def widen(x: Expr, dtype: str) -> Expr:
    """A 16-bit float as the float32 of the same value, one object for all that asks."""
    found = _WIDE.of(x)
    if found is None:
        value = literal_value(x)
        if value is None or value != value:
            found = _widened(x, dtype)
        else:
            found = const(narrow_value(value, dtype), "float32")
        _WIDE.note(x, found)
    return found


def _widened(x: Expr, dtype: str) -> Expr:
    if dtype == "bfloat16":
        return from_bits(hl.cast(hl.UInt(32), bits_of(x, dtype)) << hl.u32(16), "float32")
    if is_for_opencl():
        return _half_widened(hl.cast(hl.UInt(32), x))
    return hl.cast(hl.Float(32), x)


def narrow(x: Expr, dtype: str, *, converted: bool = True) -> Expr:
    """A float32 rounded to a 16-bit float; `converted`: it may be what another dtype was converted to."""
    if dtype == "float16" and is_for_opencl():
        return hl.cast(hl.UInt(16), _half_narrowed(bits_of(x, "float32")))
    if dtype == "float16":
        # The product keeps Halide from merging float64 -> float32 -> float16: few machines can do that in one.
        half = hl.cast(hl.Float(16), x * hl.f32(1.0) if converted else x)
        if has_halves():
            return half
        # Where there is no instruction at all, Halide's emulation makes NaN infinite.
        native = hl.target_has_feature(hl.TargetFeature.F16C) | hl.target_has_feature(hl.TargetFeature.ARMFp16)
        return hl.select(native | hl.logical_not(is_nan(x, "float32")), half, const(float("nan"), "float16"))
    bits = bits_of(x, "float32")
    tie_to_even = hl.u32(0x7FFF) + ((bits >> hl.u32(16)) & hl.u32(1))
    quiet = bits | hl.u32(0x400000)  # adding could carry a NaN into the sign
    rounded = hl.select(is_nan(x, "float32"), quiet, bits + tie_to_even)
    result = from_bits(hl.cast(hl.UInt(16), rounded >> hl.u32(16)), dtype)
    # Made of the same bits, not of the result: half as much code where operations follow each other.
    _WIDE.note(result, from_bits(rounded & hl.u32(0xFFFF0000), "float32"))
    return result


def _half_widened(bits: Expr) -> Expr:
    """The float32 of the float16 with these bits, in 32 of them."""
    magnitude = bits & hl.u32(0x7FFF)
    tiny = bits_of(hl.cast(hl.Float(32), magnitude) * hl.f32(2.0**-24), "float32")
    large = hl.select(magnitude < hl.u32(0x7C00), hl.u32(0x38000000), hl.u32(0x70000000))  # inf and NaN stay so
    wide = hl.select(magnitude < hl.u32(0x400), tiny, (magnitude << hl.u32(13)) + large)
    return from_bits(wide | ((bits & hl.u32(0x8000)) << hl.u32(16)), "float32")


def _half_narrowed(bits: Expr) -> Expr:
    """The bits of the float16 nearest to the float32 with these bits, ties to even."""
    magnitude = bits & hl.u32(0x7FFFFFFF)
    tie_to_even = hl.u32(0xFFF) + ((magnitude >> hl.u32(13)) & hl.u32(1))
    usual = (magnitude - hl.u32(0x38000000) + tie_to_even) >> hl.u32(13)
    # Beside 1/2 the last place of a float32 is that of the subnormal float16.
    tiny = bits_of(from_bits(magnitude, "float32") + hl.f32(0.5), "float32") - hl.u32(0x3F000000)
    nan = hl.u32(0x7E00) | ((magnitude >> hl.u32(13)) & hl.u32(0x3FF))
    infinite = hl.select(magnitude > hl.u32(0x7F800000), nan, hl.u32(0x7C00))
    finite = hl.select(magnitude < hl.u32(0x38800000), tiny, usual)
    sign = (bits >> hl.u32(16)) & hl.u32(0x8000)
    return sign | hl.select(magnitude < hl.u32(0x477FF000), finite, infinite)


def _odd_float32(x: Expr) -> Expr:
    """A float64 as the float32 that is equal, or the neighbour with an odd last bit: rounding it again is harmless."""
    near = hl.cast(hl.Float(32), x)
    back = hl.cast(hl.Float(64), near)
    bits = bits_of(near, "float32")
    zero = f64(0.0)
    inwards = hl.select(x < zero, back < x, back > x)
    neighbour = hl.select(inwards, bits - hl.u32(1), bits + hl.u32(1))
    even = (bits & hl.u32(1)) == hl.u32(0)
    inexact = (back != x) & hl.logical_not(is_nan(x, "float64"))
    return from_bits(hl.select(inexact & even, neighbour, bits), "float32")


def _float_to_float(x: Expr, source: str, target: str) -> Expr:
    if source in NARROW:
        x, source = widen(x, source), "float32"
    if target in NARROW:
        return narrow(_odd_float32(x) if source == "float64" else x, target)
    return hl.cast(TYPES[target], x)


def truncate(x: Expr, source: str, target: str, high: int, of_nan: int = 0) -> Expr:
    """A float that the target holds and that is below high + 1, where it is not NaN, as an integer."""
    if source in NARROW:
        x, source = widen(x, source), "float32"
    # One comparison, which only NaN makes false; not x == x, which Halide may drop.
    safe = hl.select(x < const(float(high + 1), source), x, const(float(of_nan), source))
    return _integer(safe, target)


def _integer(x: Expr, target: str) -> Expr:
    """A float that the target holds as an integer, through int32 where that holds it: the conversion that every
    instruction set has.

    Halide would merge the conversion with one to another integer that follows: uint32(int32(-3.0)) is uint32(-3.0),
    which no processor wraps. It leaves a bitwise operation as it is, of which LLVM makes nothing.
    """
    made = hl.cast(TYPES[target], hl.cast(hl.Int(32), x) if INTEGERS[target] < 32 else x)
    return made ^ const(0, target)


def _float_to_int(x: Expr, source: str, target: str) -> Expr:
    if source in NARROW:
        x, source = widen(x, source), "float32"
    bits = INTEGERS[target]
    low = -(1 << (bits - 1)) if target in SIGNED else 0
    high = low + (1 << bits) - 1
    below, above = x < const(low, source), at_most(const(float(high + 1), source), x)
    inside = at_most(const(low, source), x) & (x < const(float(high + 1), source))  # false beside NaN
    safe = hl.select(inside, x, const(0.0, source))
    exact = _integer(safe, target)
    outside = hl.select(above, const(high, target), hl.select(below, const(low, target), const(0, target)))
    return hl.select(inside, exact, outside)


def _int_to_narrow(x: Expr, source: str, target: str) -> Expr:
    """Exact in float32 wherever float16 is finite; for bfloat16 through a float64 whose last bit is sticky."""
    if target == "float16":
        # Bounded beyond every float16: Halide would merge int -> float32 -> float16, emulate that and warn.
        return narrow(hl.min(hl.cast(hl.Float(32), x), hl.f32(131072.0)), target)
    if width(source) <= 16:
        return narrow(hl.cast(hl.Float(32), x), target)
    if width(source) == 64:
        kept = x >> hl.u64(11)
        dropped = (x & const(0x7FF, source)) != const(0, source)
        sticky = kept | hl.select(dropped, const(1, source), const(0, source))
        limit = const(1 << 52, source)
        small = (x < limit) & (x > const(-(1 << 52), source)) if source in SIGNED else x < limit
        wide = hl.select(
            small,
            as_float64(hl.select(small, x, const(0, source)), source),
            as_float64(sticky, source) * f64(2048.0),
        )
    else:
        wide = as_float64(x, source)
    return narrow(_odd_float32(wide), target)


def cast(x: Expr, source: str, target: str) -> Expr:
    """x of dtype `source` as `target`."""
    if source == target:
        return x
    if target == "bool":
        return x != const(0, source) if source not in NARROW else widen(x, source) != hl.f32(0.0)
    if source == "bool":
        return hl.select(x, const(1, target), const(0, target))
    if source in FLOATS:
        convert = _float_to_float if target in FLOATS else _float_to_int
        return convert(x, source, target)
    if target in NARROW:
        return _int_to_narrow(x, source, target)
    return as_float64(x, source) if target == "float64" else hl.cast(TYPES[target], x)
