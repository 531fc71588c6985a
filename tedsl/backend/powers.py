"""Products with a power of two as one instruction of processors with AVX-512: `vscalef`.

Our exponentials end in p 2^n, with n far outside of the exponents of numbers. Elsewhere that is two products with halves
of the power, each of them made of integers: six instructions out of twenty. Both round once, to the same number.
"""

from __future__ import annotations

import re
import struct

from tedsl.backend.float32_math import BIASED

__all__ = ["scaled"]

_NAME = r'%(?:[\w.$-]+|"[^"]*")'
_DEFINED = re.compile(rf"^  ({_NAME}) = (fmul|bitcast|shl|and|sub) <(4|8|16) x (?:float|i32)> (.*)$")
_NAMES = re.compile(_NAME)
_BITS = {4: 128, 8: 256, 16: 512}
_EXPONENT = "splat (i32 -8388608)"


def scaled(lines: list[str]) -> list[str]:
    """The lines of a module, with one instruction for the last two products of an exponential."""
    if not any("+avx512vl" in line for line in lines):
        return lines
    made: list[str] = []
    widths: set[int] = set()
    defined: dict[str, tuple[str, str]] = {}
    for line in lines:
        if line.startswith("define "):
            defined = {}
        match = _DEFINED.match(line)
        found = None
        if match is not None:
            name, kind, width, rest = match[1], match[2], int(match[3]), match[4]
            defined[name] = kind, rest
            found = _power(rest, defined) if kind == "fmul" else None
        if match is None or found is None:
            made.append(line)
            continue
        widths.add(width)
        made += _scale(name, width, *found)
    return [*made, *map(_declaration, sorted(widths))] if widths else lines


def _power(rest: str, defined: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Of a product (p low) high with both halves of a power: p, and the sum whose low bits are the exponent."""
    for high, other in _both(rest):
        for low, value in _both(_operands(other, "fmul", defined)):
            lower = _operands(low, "bitcast", defined).partition(" to ")[0]
            upper = _operands(high, "bitcast", defined).partition(" to ")[0]
            whole, _, half = _operands(upper, "sub", defined).partition(", ")
            shifted, _, mask = _operands(lower, "and", defined).partition(", ")
            bits, _, by = _operands(shifted, "shl", defined).partition(", ")
            if half != lower or mask != _EXPONENT or by != "splat (i32 22)":
                continue
            if _operands(whole, "shl", defined) == f"{bits}, splat (i32 23)":
                source = _operands(bits, "bitcast", defined).partition(" to ")[0]
                if source:
                    return value, source
    return None


def _operands(name: str, kind: str, defined: dict[str, tuple[str, str]]) -> str:
    """What stands behind the type of an instruction of that kind; nothing where it is another one."""
    own, rest = defined.get(name, ("", ""))
    return re.sub(r"^(?:nuw |nsw )*", "", rest) if own == kind else ""


def _both(rest: str) -> list[tuple[str, str]]:
    """Two operands, either way round; none where one of them is a constant."""
    names = _NAMES.findall(rest)
    return [(names[0], names[1]), (names[1], names[0])] if len(names) == 2 else []


def _scale(name: str, width: int, value: str, source: str) -> list[str]:
    kind, mask = f"<{width} x float>", f"i{max(8, width)}"
    own = "%te.exponent." + re.sub(r"\W", "_", name[1:])
    bias = struct.unpack("Q", struct.pack("d", -BIASED))[0]
    rounding = ", i32 4" if width == 16 else ""
    return [
        f"  {own} = fadd {kind} {source}, splat (float 0x{bias:016X})",
        f"  {name} = call {kind} @llvm.x86.avx512.mask.scalef.ps.{_BITS[width]}({kind} {value}, {kind} {own}, "
        f"{kind} zeroinitializer, {mask} -1{rounding})",
    ]


def _declaration(width: int) -> str:
    kind = f"<{width} x float>"
    rounding = ", i32 immarg" if width == 16 else ""
    name = f"llvm.x86.avx512.mask.scalef.ps.{_BITS[width]}"
    return f"declare {kind} @{name}({kind}, {kind}, {kind}, i{max(8, width)}{rounding})"
