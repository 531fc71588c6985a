"""Halide types, literals and bit patterns under the names of the language's dtypes.

Literals are always typed here: Halide would take a bare Python float for a float32, and warn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import halide as hl
import numpy as np

from tedsl.backend.scalars.notes import Notes

__all__ = [
    "FLOATS", "INTEGERS", "SIGNED", "TYPES", "UNSIGNED", "Expr", "as_float64", "at_most", "bits_of", "const",
    "copy_sign", "f64", "for_halves", "for_opencl", "from_bits", "has_halves", "horner", "is_for_opencl", "is_nan",
    "literal_value", "magnitude", "narrow_value", "negate", "unbounded", "width",
]  # fmt: skip

Expr: TypeAlias = Any  # hl.Expr: the wheel has no type stubs

SIGNED = {f"int{n}": n for n in (8, 16, 32, 64)}
UNSIGNED = {f"uint{n}": n for n in (8, 16, 32, 64)}
INTEGERS = SIGNED | UNSIGNED
FLOATS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}

# Set while a program is lowered for OpenCL: most devices have no floats of 16 bits, and Halide 21 rounds literals of
# float64 to float32 there.
_OPENCL: ContextVar[bool] = ContextVar("opencl", default=False)

# Set while a program is lowered for a processor with an instruction that rounds to float16.
_HALVES: ContextVar[bool] = ContextVar("halves", default=False)


class _Types(dict[str, Any]):
    """Halide's types by dtype; those of 16-bit floats are what holds their bits where the target has none."""

    def __getitem__(self, dtype: str) -> Any:
        return super().__getitem__("uint16" if is_for_opencl() and dtype in ("float16", "bfloat16") else dtype)


def is_for_opencl() -> bool:
    """Whether floats of 16 bits are held as such in what is lowered now; all arithmetic is that of float32 anyway."""
    return _OPENCL.get()


@contextmanager
def _said(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def for_opencl() -> AbstractContextManager[None]:
    """What is lowered in here is for OpenCL."""
    return _said(_OPENCL, True)


def has_halves() -> bool:
    """Whether the target is known to round to float16 by an instruction of its own."""
    return _HALVES.get()


def for_halves(known: bool) -> AbstractContextManager[None]:
    """What is lowered in here is for a target that is known, or not, to have an instruction for float16."""
    return _said(_HALVES, known)


def f64(value: float) -> Expr:
    """A literal of float64."""
    with np.errstate(over="ignore"):
        if not is_for_opencl() or float(np.float32(value)) == value:
            return hl.f64(value)
    return hl.reinterpret(hl.Float(64), hl.u64(int(np.float64(value).view(np.uint64))))


TYPES = _Types({
    "bool": hl.Bool(),
    **{name: hl.Int(n) for name, n in SIGNED.items()},
    **{name: hl.UInt(n) for name, n in UNSIGNED.items()},
    "float16": hl.Float(16),
    "bfloat16": hl.BFloat(16),
    "float32": hl.Float(32),
    "float64": hl.Float(64),
})  # fmt: skip
LITERAL: dict[str, Any] = {
    **{f"int{n}": getattr(hl, f"i{n}") for n in (8, 16, 32, 64)},
    **{f"uint{n}": getattr(hl, f"u{n}") for n in (8, 16, 32, 64)},
    "float32": hl.f32,
    "float64": f64,
}
SIGN_BIT = {n: 1 << (n - 1) for n in (16, 32, 64)}
INFINITY_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def width(dtype: str) -> int:
    """Bits of one element (a bool counts as one)."""
    return INTEGERS.get(dtype) or FLOATS.get(dtype, 1)


_LITERALS = Notes[float]()


def const(value: float, dtype: str) -> Expr:
    """A literal of exactly `dtype`."""
    if dtype in FLOATS:
        literal = LITERAL[dtype](value) if dtype in LITERAL else _narrow_literal(value, dtype)
        _LITERALS.note(literal, value)
        return literal
    if dtype in LITERAL:
        return LITERAL[dtype](value)
    return hl.cast(TYPES["bool"], hl.u8(int(value)))


def literal_value(x: Expr) -> float | None:
    """The number that a literal of floats was made of; None where it is none."""
    return _LITERALS.of(x)


def _narrow_literal(value: float, dtype: str) -> Expr:
    """As bits, because Halide warns on standard output about casts to bfloat16."""
    return hl.reinterpret(TYPES[dtype], hl.u16(_narrow_bits(value, dtype)))


def _narrow_bits(value: float, dtype: str) -> int:
    """The bit pattern of the nearest 16-bit float, ties to even."""
    with np.errstate(over="ignore"):
        if dtype == "float16":
            return int(np.float16(value).view(np.uint16))
        bits = int(np.float32(value).view(np.uint32))
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def narrow_value(value: float, dtype: str) -> float:
    """The value of a literal of 16 bits."""
    bits = _narrow_bits(value, dtype)
    if dtype == "float16":
        return float(np.uint16(bits).view(np.float16))
    return float(np.uint32(bits << 16).view(np.float32))


def bits_of(x: Expr, dtype: str) -> Expr:
    """The bit pattern of a float, as the unsigned integer of its width."""
    return hl.reinterpret(TYPES[f"uint{FLOATS[dtype]}"], x)


def from_bits(u: Expr, dtype: str) -> Expr:
    """The float with the given bit pattern."""
    return hl.reinterpret(TYPES[dtype], u)


def unbounded(x: Expr, dtype: str) -> Expr:
    """The same value, of whose range Halide knows nothing more than its dtype; no instruction comes of it.

    It takes nothing for known of what another kind of number is made of by its bits, and does not see through a tag.
    """
    if dtype in FLOATS:
        return from_bits(hl.memoize_tag(bits_of(x, dtype)), dtype)
    bits = max(width(dtype), 32)
    whole = hl.cast(hl.Int(bits), x)
    return hl.cast(TYPES[dtype], hl.reinterpret(hl.Int(bits), hl.memoize_tag(hl.reinterpret(hl.Float(bits), whole))))


def as_float64(x: Expr, dtype: str) -> Expr:
    """An integer as float64; for OpenCL from bits, since Halide would fold the cast of a constant into a literal."""
    bits = width(dtype)
    if bits <= 16 or not is_for_opencl():
        return hl.cast(hl.Float(64), x)
    if bits == 64:
        half = dtype.replace("64", "32")
        high, low = hl.cast(TYPES[half], x >> hl.u64(32)), hl.cast(hl.UInt(32), x)
        return as_float64(high, half) * f64(2.0**32) + as_float64(low, "uint32")
    offset = SIGN_BIT[32] if dtype in SIGNED else 0
    field = hl.cast(hl.UInt(64), hl.cast(hl.UInt(32), x) ^ hl.u32(offset))
    return from_bits(field | bits_of(f64(2.0**52), "float64"), "float64") - f64(2.0**52 + offset)


def magnitude(x: Expr, dtype: str) -> Expr:
    """The bits of |x|: they order as the values do, NaN above infinity."""
    return bits_of(x, dtype) & const(SIGN_BIT[FLOATS[dtype]] - 1, f"uint{FLOATS[dtype]}")


def is_nan(x: Expr, dtype: str) -> Expr:
    """A test on the bits, which no float optimisation of LLVM can assume away."""
    return magnitude(x, dtype) > const(INFINITY_BITS[dtype], f"uint{FLOATS[dtype]}")


def at_most(a: Expr, b: Expr) -> Expr:
    """a <= b, false beside NaN: Halide 21 compiles a float <= as not(b < a), even strictly."""
    return (a < b) | (a == b)


def negate(x: Expr, dtype: str) -> Expr:
    """-x by its sign bit; Halide's unary minus is 0 - x, which loses the sign of zero."""
    sign = const(SIGN_BIT[FLOATS[dtype]], f"uint{FLOATS[dtype]}")
    return from_bits(bits_of(x, dtype) ^ sign, dtype)


def copy_sign(x: Expr, sign: Expr, dtype: str) -> Expr:
    """|x| with the sign of `sign`."""
    mask = const(SIGN_BIT[FLOATS[dtype]], f"uint{FLOATS[dtype]}")
    return from_bits(magnitude(x, dtype) | (bits_of(sign, dtype) & mask), dtype)


def horner(x: Expr, coefficients: Sequence[float], dtype: str) -> Expr:
    """The polynomial with these coefficients, constant term first."""
    result = const(coefficients[-1], dtype)
    for c in reversed(coefficients[:-1]):
        result = result * x + const(c, dtype)
    return result
