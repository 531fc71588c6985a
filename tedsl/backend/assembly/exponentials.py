"""The last steps of our exponentials in fewer instructions, where the processor has these.

An exponential ends in p 2^n, with n far outside of the exponents of numbers. That is two products with halves of the
power, each of them made of integers, six instructions out of twenty; `vscalef` of AVX-512 is one. Both round once, to
the same number. And (r + r r h) + 1, which does not depend on a fused multiply-add, is two of these where there are
any, with a smaller error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Set

from tedsl.backend.assembly.text import declaring
from tedsl.backend.scalars.float32_math import BIASED, EXP

__all__ = ["scaled"]

_NAME = r'%(?:[\w.$-]+|"[^"]*")'
_DEFINED = re.compile(
    rf"^  ({_NAME}) = (fmul|fadd|bitcast|shl|and|sub) (?:nuw |nsw )*(?:<(\d+) x (?:float|i32)>|float|i32) (.*)$"
)
_VALUES = re.compile(r"float ([-+.\dxA-Fe]+)")
_NAMES = re.compile(_NAME)
_LEAST = -150.0  # p 2^n rounds to 0 below
_BITS = {4: 128, 8: 256, 16: 512}


def _constant(value: float) -> str:
    """A constant as LLVM prints it."""
    single = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('Q', struct.pack('d', single))[0]:016X}"


_ONE, _LAST, _BIAS = "1.000000e+00", _constant(EXP[0]), f"splat (float {_constant(-BIASED)})"


def _adds(operands: str, constant: str) -> bool:
    """Whether the last operand is that number in every lane that counts; ends of rows have lanes of any value."""
    last = operands.partition(", ")[2]
    return last == constant or (last[:1] in "s<" and set(_VALUES.findall(last)) == {constant})


def scaled(lines: list[str], features: Set[str]) -> list[str]:
    """The lines of a module, with fewer instructions for the ends of exponentials."""
    if "fma" not in features or not any(_LAST in line for line in lines):
        return lines
    can_scale = "avx512_skylake" in features
    made: list[str] = []
    declared: dict[str, None] = {}
    function = _Function({})
    for line in lines:
        if line.startswith("define "):
            function = _Function({})
        match = _DEFINED.match(line)
        if match is None:
            made.append(line)
            continue
        name, kind, width, rest = match[1], match[2], int(match[3] or 0), match[4]
        function.defined[name] = kind, rest
        shorter: list[str] | None = None
        if kind == "fadd" and _adds(rest, _ONE):
            shorter = function.end_of_polynomial(name, width, rest, declared)
        elif kind == "fmul" and can_scale and width in _BITS:
            shorter = function.scale(name, width, rest, declared)
        made += shorter or [line]
    return declaring(made, declared)


class _Function:
    def __init__(self, defined: dict[str, tuple[str, str]]) -> None:
        self.defined = defined  # the operation of a name, and its operands

    def end_of_polynomial(self, name: str, width: int, rest: str, declared: dict[str, None]) -> list[str] | None:
        """(h r + 1) r + 1 for (r + r r h) + 1."""
        for r, tail in self._both(self._operands(rest.partition(",")[0], "fadd")):
            for square, h in self._both(self._operands(tail, "fmul")):
                if self._operands(square, "fmul") != f"{r}, {r}" or not _adds(self._operands(h, "fadd"), _LAST):
                    continue
                kind = f"<{width} x float>" if width else "float"
                intrinsic = f"@llvm.fma.{f'v{width}' if width else ''}f32"
                own, one = f"%te.polynomial.{len(self.defined)}", f"splat (float {_ONE})" if width else _ONE
                declared[f"declare {kind} {intrinsic}({kind}, {kind}, {kind})"] = None
                return [
                    f"  {own} = call {kind} {intrinsic}({kind} {h}, {kind} {r}, {kind} {one})",
                    f"  {name} = call {kind} {intrinsic}({kind} {own}, {kind} {r}, {kind} {one})",
                ]
        return None

    def scale(self, name: str, width: int, rest: str, declared: dict[str, None]) -> list[str] | None:
        """p 2^n for (p low) high with both halves of the power; n is in the low bits of a sum with a large constant."""
        for high, product in self._both(rest):
            for low, value in self._both(self._operands(product, "fmul")):
                lower, upper = self._operands(low, "bitcast"), self._operands(high, "bitcast")
                source = self._sum_of(lower.partition(" ")[0], upper.partition(" ")[0])
                if source:
                    return _scale(name, f"%te.exponent.{len(self.defined)}", width, value, source, declared)
        return None

    def _sum_of(self, lower: str, upper: str) -> str:
        """The sum whose low bits are n + 254, where these are the integers of the two halves."""
        shifted, _, mask = self._operands(lower, "and").partition(", ")
        bits, _, by = self._operands(shifted, "shl").partition(", ")
        whole, _, half = self._operands(upper, "sub").partition(", ")
        if mask != "splat (i32 -8388608)" or by != "splat (i32 22)" or half != lower:
            return ""
        if self._operands(whole, "shl") != f"{bits}, splat (i32 23)":
            return ""
        return self._operands(bits, "bitcast").partition(" ")[0]

    def _operands(self, name: str, kind: str) -> str:
        """What stands behind the type of an instruction of that kind; nothing where it is another one."""
        own, rest = self.defined.get(name, ("", ""))
        return rest if own == kind else ""

    def _both(self, rest: str) -> Iterator[tuple[str, str]]:
        """Two operands, either way round; none where one of them is a constant."""
        names = _NAMES.findall(rest)
        if len(names) == 2:
            yield names[0], names[1]
            yield names[1], names[0]


def _scale(name: str, own: str, width: int, value: str, source: str, declared: dict[str, None]) -> list[str]:
    kind, mask = f"<{width} x float>", f"i{max(8, width)}"
    intrinsic = f"@llvm.x86.avx512.mask.scalef.ps.{_BITS[width]}"
    rounding, given = (", i32 immarg", ", i32 4") if width == 16 else ("", "")
    declared[f"declare {kind} {intrinsic}({kind}, {kind}, {kind}, {mask}{rounding})"] = None
    kept = f"{own}.kept"
    lines = [
        f"  {own} = fadd {kind} {source}, {_BIAS}",
        f"  {kept} = fcmp uge {kind} {own}, splat (float {_constant(_LEAST)})",
    ]
    if width < 8:
        lanes = ", ".join(f"i32 {lane}" for lane in range(8))
        lines.append(f"  {kept}8 = shufflevector <4 x i1> {kept}, <4 x i1> zeroinitializer, <8 x i32> <{lanes}>")
        kept = f"{kept}8"
    given = f"{mask} {own}.mask{given}"
    return [
        *lines,
        f"  {own}.mask = bitcast <{max(8, width)} x i1> {kept} to {mask}",
        f"  {name} = call {kind} {intrinsic}({kind} {value}, {kind} {own}, {kind} zeroinitializer, {given})",
    ]
