"""Fused multiply-add: where the program says so, and in the polynomials of our functions, for every schedule alike.

Halide 21 knows two kinds of float arithmetic: fast, where LLVM may assume that there is no NaN and does, and strict,
which never fuses and costs a matrix product a third of its speed (99 against 150 GFLOP/s on two cores with AVX-512). So
kernels are compiled strictly, to LLVM's assembly, and get the one liberty that is harmless here: a product that is
added to a running sum rounds once where it rounded twice. Pointwise arithmetic of users keeps every rounding, so that
a * b - c is 0 where NumPy says so.

Which products these are is said before there are loops (`Context.product`): their bits are combined by exclusive or
with an argument that is always 0. The instructions are written out: where they are left to LLVM, one product of two is
fused here and the other one there, as the loops lie, and the bits of a result hang on the schedule.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Set

from tedsl.backend.assembly.products import (
    Condition,
    Instruction,
    Lane,
    MarkedProduct,
    MarkedProducts,
    defined,
    pair,
    shape,
)
from tedsl.backend.assembly.text import declaring, each_function
from tedsl.backend.scalars import float32_math, float64_math, wide_math

__all__ = ["fused"]

_CONSTANT = re.compile(r"0x[0-9A-F]{16}")
_TOUCHED = ("xor", "fadd", "fsub")
_SUFFIX = {"float": "f32", "double": "f64"}


def fused(lines: list[str], features: Set[str]) -> list[str]:
    """Lines in which products that are marked are added, and our polynomials computed, by fused instructions.

    Where the processor has none, the marks go.
    """
    declared: dict[str, None] = {}
    has_fma = "fma" in features
    made = each_function(lines, lambda function: _Function(function, has_fma=has_fma).rewritten(declared))
    return declaring(made, declared)


class _Function:
    def __init__(self, lines: list[str], *, has_fma: bool) -> None:
        self.lines = lines
        self.has_fma = has_fma
        self.products = MarkedProducts(lines)
        self._new = 0

    def rewritten(self, declared: dict[str, None]) -> list[str]:
        """The lines of the function."""
        made: list[str] = []
        for line in self.lines:
            found = defined(line) if any(kind in line for kind in _TOUCHED) else None
            name, kind, _ = found or ("", "", "")
            own = self.products.made.get(name) if kind in _TOUCHED else None
            if own is None:
                made.append(line)
            elif kind == "xor" and (without := self.products.without_mark(name, own)) is not None:
                made.append(without)
            elif kind != "xor" and self.has_fma:
                made += self._sum(name, own, declared) or [line]
            else:
                made.append(line)
        return made

    def _sum(self, name: str, own: Instruction, declared: dict[str, None]) -> list[str] | None:
        """The lines of a sum whose product is fused; None where it has none, or two."""
        first, second = own.operands
        found = [(a, b, p) for a, b in ((first, second), (second, first)) if (p := self._term(own, a, b)) is not None]
        if len(found) != 1:
            return self._sum_by_lanes(name, own, declared) if not found else None
        (term, rest, (product, condition)), lines = found[0], list[str]()
        is_subtracted = own.kind == "fsub" and term is second
        a, b = product.factors
        if product.negative ^ is_subtracted:
            a = self._named(lines, f"fneg {product.type} {a}")
        a, b = (self._moved(lines, product, factor) for factor in (a, b))
        if own.kind == "fsub" and term is first:
            rest = self._named(lines, f"fneg {own.type} {rest}")
        call = _fma(own.type, (a, b, rest), declared)
        if condition is None:
            return [*lines, f"  {name} = {call}"]
        both = [self._named(lines, call), rest]
        if condition.adds_nothing == is_subtracted:
            zero = "zeroinitializer" if shape(own.type)[1] else "0.000000e+00"
            both[1] = self._named(lines, f"fadd {own.type} {rest}, {zero}")
        one, other = both if condition.holds else both[::-1]
        return [*lines, f"  {name} = select {condition.test}, {own.type} {one}, {own.type} {other}"]

    def _sum_by_lanes(self, name: str, own: Instruction, declared: dict[str, None]) -> list[str] | None:
        """A sum of which LLVM put some terms together lane by lane, of products that it found in several places."""
        count = shape(own.type)[1]
        numbers: list[int | None] = list(range(count)) if count else [None]
        sides = [[self.products.lane(operand, k) for k in numbers] for operand in own.operands]
        if any(map(any, sides)) == all(map(any, sides)):
            return None
        lines, is_first = list[str](), any(sides[0])
        lanes, rest = (sides[0], own.operands[1]) if is_first else (sides[1], own.operands[0])
        if own.kind == "fsub" and is_first:
            rest = self._named(lines, f"fneg {own.type} {rest}")
        is_subtracted = own.kind == "fsub" and not is_first
        factors = [self._gathered(lines, own.type, lanes, side, is_subtracted) for side in (0, 1)]
        call = _fma(own.type, (*factors, rest), declared)
        if all(lanes):
            return [*lines, f"  {name} = {call}"]
        both = [self._named(lines, call), self._named(lines, f"{own.kind} {own.type} {', '.join(own.operands)}")]
        mask = ", ".join(f"i32 {k if lane else k + count}" for k, lane in enumerate(lanes))
        vectors = ", ".join(f"{own.type} {vector}" for vector in both)
        return [*lines, f"  {name} = shufflevector {vectors}, <{count} x i32> <{mask}>"]

    def _gathered(
        self, lines: list[str], kind: str, lanes: list[Lane | None], side: int, is_subtracted: bool
    ) -> str:  # fmt: skip
        """One factor of every lane that has a product."""
        scalar, count = shape(kind)
        made = "poison"
        for k, lane in enumerate(lanes):
            if lane is None:
                continue
            factor = lane.factors[side]
            if lane.at is not None:
                factor = self._named(lines, f"extractelement {lane.type} {factor}, i64 {lane.at}")
            if side == 0 and lane.negative ^ is_subtracted:
                factor = self._named(lines, f"fneg {scalar} {factor}")
            if count == 0:
                return factor
            made = self._named(lines, f"insertelement {kind} {made}, {scalar} {factor}, i64 {k}")
        return made

    def _term(self, own: Instruction, name: str, other: str) -> tuple[MarkedProduct, Condition | None] | None:
        """A term of a sum that is a product to be fused, and under which condition it is one."""
        marked = self.products.marked(name)
        if marked is not None:
            return marked, None
        chosen = self.products.made.get(name)
        if chosen is not None and (found := self.products.under_condition(chosen)) is not None:
            return found
        if chosen is None or chosen.kind != "fmul":
            return None
        is_ours = any(map(_is_coefficient, (other, *chosen.operands))) or self._is_tail(chosen, other)
        return (MarkedProduct(own.type, pair(chosen.operands)), None) if is_ours else None

    def _is_tail(self, product: Instruction, other: str) -> bool:
        """Whether of the terms r and r r p this is the second one, with p a polynomial of ours."""
        rest = [factor for factor in product.operands if not self._is_step(factor)]
        if len(rest) != 1:
            return False
        squared = self.products.made.get(rest[0])
        return squared is not None and squared.kind == "fmul" and squared.operands == (other, other)

    def _is_step(self, name: str) -> bool:
        """Whether this is a sum with a constant of our functions."""
        own = self.products.made.get(name)
        return own is not None and own.kind in ("fadd", "fsub") and any(map(_is_coefficient, own.operands))

    def _named(self, lines: list[str], instruction: str) -> str:
        name = f"%te.sum.{self._new}"
        self._new += 1
        lines.append(f"  {name} = {instruction}")
        return name

    def _moved(self, lines: list[str], product: MarkedProduct, factor: str) -> str:
        """A factor in the lanes in which the product is added."""
        kind, scalar = product.type, shape(product.type)[0]
        for step in reversed(product.moved):
            if step.kind == "insertelement":
                kind = f"<{shape(step.type)[1]} x {scalar}>"
                factor = self._named(lines, f"insertelement {kind} poison, {scalar} {factor}, i64 0")
            else:
                lanes = step.operands[2]
                factor = self._named(lines, f"shufflevector {kind} {factor}, {kind} poison, {lanes}")
                kind = f"<{lanes[1:].partition(' ')[0]} x {scalar}>"
        return factor


def _fma(kind: str, operands: tuple[str, ...], declared: dict[str, None]) -> str:
    """The instruction, by a function that is declared."""
    scalar, lanes = shape(kind)
    intrinsic = f"@llvm.fma.{f'v{lanes}' if lanes else ''}{_SUFFIX[scalar]}"
    declared[f"declare {kind} {intrinsic}({kind}, {kind}, {kind})"] = None
    return f"call {kind} {intrinsic}({', '.join(f'{kind} {operand}' for operand in operands)})"


def _is_coefficient(operand: str) -> bool:
    return not operand.startswith("%") and not _coefficients().isdisjoint(_CONSTANT.findall(operand))


@functools.cache
def _coefficients() -> frozenset[str]:
    """The constants of our functions, as LLVM prints them; those that users might write too are left out."""
    single = _numbers(vars(float32_math).values())
    double = _numbers(vars(float64_math).values()) | _numbers(vars(wide_math).values())
    rounded = {struct.unpack("f", struct.pack("f", v))[0] for v in single}
    odd = {v for v in rounded | double if _is_odd(v)}
    return frozenset(f"0x{struct.unpack('Q', struct.pack('d', v))[0]:016X}" for v in odd | {-v for v in odd})


def _numbers(values: Iterable[object]) -> set[float]:
    found: set[float] = set()
    for value in values:
        if isinstance(value, float):
            found.add(value)
        elif isinstance(value, tuple) and all(isinstance(v, float) for v in value):
            found.update(value)
    return {v for v in found if v == v and abs(v) != float("inf")}


def _is_odd(value: float) -> bool:
    """Not a number of a few digits."""
    return float(f"{value:.4g}") != value
