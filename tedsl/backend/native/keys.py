"""Numbers as keys: whole numbers without sign whose order is that of the numbers, NaN last, -0 and 0 equal."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tedsl.backend.native.builder import RoutineCode

__all__ = ["KINDS", "Kind", "element_type", "key_of", "key_type"]

Kind = str  # the name of a dtype
FRACTION = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
BITS = {"bool": 8, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64,
        "uint64": 64, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}  # fmt: skip
KINDS = tuple(BITS)


def element_type(kind: Kind) -> Any:
    """The bits of an element."""
    return ir.IntType(BITS[kind])


def key_type(kind: Kind) -> Any:
    """Keys have 32 or 64 bits."""
    return ir.IntType(64 if BITS[kind] == 64 else 32)


def key_of(code: RoutineCode, bits: Any, kind: Kind, *, descending: bool = False) -> Any:
    """The key of an element; `descending` keys go the other way, with NaN last all the same."""
    width = BITS[kind]
    own, b = element_type(kind), code.builder
    ones = ir.Constant(own, (1 << width) - 1)
    sign = ir.Constant(own, 1 << (width - 1))
    if kind in FRACTION:
        size = b.and_(bits, ir.Constant(own, (1 << (width - 1)) - 1))
        infinity = ir.Constant(own, (1 << (width - 1)) - (1 << FRACTION[kind]))
        plain = b.select(b.icmp_unsigned("==", size, ir.Constant(own, 0)), ir.Constant(own, 0), bits)
        negative = b.icmp_signed("<", plain, ir.Constant(own, 0))
        key = b.xor(plain, b.select(negative, ones, sign))
        key = b.xor(key, ones) if descending else key
        key = b.select(b.icmp_unsigned(">", size, infinity), ones, key)
    else:
        key = b.xor(bits, sign) if kind.startswith("int") else bits
        key = b.xor(key, ones) if descending else key
    kept = key_type(kind)
    return key if kept == own else b.zext(key, kept)
