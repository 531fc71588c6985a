"""Divisions by one value again and again, as products with its reciprocal that are made exact.

A processor has one divider and two multipliers: a vector of quotients takes ten cycles, where three fused
multiply-adds take one and a half. Where a loop divides by what it does not change, the reciprocal r of the divisor b is
computed before it, and

    q = a r,  rest = q b - a,  quotient = q - rest r

is the quotient as the divider rounds it (Markstein; Brisebarre, Muller and Raina 2004), in float32, as long as nothing
on the way leaves the normal numbers. That the three steps round every pair of mantissas right was found by going
through all whose quotient is so near to the middle between two numbers that it matters (46 million). Each vector is
tested: dividends that are tiny, infinite or NaN, and divisors out of range, are divided as before.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import count

from tedsl.backend.assembly.text import NAME, FunctionBody, declaring, each_function, free_metadata, joined
from tedsl.lang.dataclass import dataclass

__all__ = ["multiplied"]

_DIVISION = re.compile(rf"^  ({NAME}) = fdiv <(4|8|16) x float> ({NAME}|[a-z]+ \(.*\)|<.*>), ({NAME})$")
_SPLAT = re.compile(rf"= shufflevector <(\d+) x float> ({NAME}), <\1 x float> \w+, <\d+ x i32> zeroinitializer$")
_REPEATED = 4  # divisions by one value in one place that are worth its reciprocal
_LEAST, _MOST = 2.0**-40, 2.0**40  # of a divisor
_LARGE = 3 << 29  # bits of the exponent, none of which is set below 2^-63: quotients or rests may not be normal there


def multiplied(lines: list[str], features: Set[str]) -> list[str]:
    """The lines of a module, with products for divisions by what a loop, or many divisions, have in common."""
    if "fma" not in features or not any(" = fdiv <" in line for line in lines):
        return lines
    widths: set[int] = set()
    numbers, weights = count(), free_metadata(lines)
    made = each_function(lines, lambda function: _multiplied(function, numbers, widths, weights))
    if not widths:
        return lines
    declared = [f"declare <{n} x float> @llvm.fma.v{n}f32(<{n} x float>, <{n} x float>, <{n} x float>)" for n in widths]
    return [*declaring(made, sorted(declared)), f'{weights} = !{{!"branch_weights", i32 1, i32 4000}}']


@dataclass(frozen=True)
class _Division:
    at: int
    name: str
    width: int
    dividend: str
    divisor: str


def _multiplied(lines: list[str], numbers: Iterator[int], widths: set[int], weights: str) -> list[str]:
    """The lines of a function."""
    found = list(_divisions(lines))
    flow = FunctionBody(lines) if found else None
    chosen = list(_chosen(flow, found)) if flow is not None else []
    if flow is None or not chosen:
        return lines
    before: dict[int, list[str]] = defaultdict(list)  # what comes in front of a line
    instead: dict[int, list[str]] = {}
    ends: dict[str, str] = {}  # the last part of a block that was cut
    reciprocals: dict[tuple[str, int], str] = {}
    for division in chosen:
        key, number = (division.divisor, division.width), next(numbers)
        if key not in reciprocals:
            reciprocals[key] = f"%te.reciprocal.{number}"
            before[flow.behind(division.divisor)] += _reciprocal(flow, division, reciprocals[key])
        block = flow.block_at(division.at)
        instead[division.at] = _quotient(division, reciprocals[key], number, ends.get(block, block), weights)
        ends[block] = f"te.joined.{number}"
        widths.add(division.width)
    made: list[str] = []
    for at, line in enumerate(lines):
        made += before.get(at, [])
        made += instead.get(at) or [joined(line, ends)]
    return made


def _chosen(flow: FunctionBody, found: Sequence[_Division]) -> Iterator[_Division]:
    """The divisions by what the innermost loop around does not change, or that are many."""
    homes = [flow.block_at(d.at) for d in found]
    alike = Counter((home, d.divisor) for home, d in zip(homes, found, strict=True))
    for home, d in zip(homes, found, strict=True):
        if d.divisor not in flow.born or not home:  # an argument; a block that no label names
            continue
        around = flow.around(home)
        is_outside = bool(around) and flow.born[d.divisor][0] not in flow.loops[around[0]]
        if is_outside or alike[home, d.divisor] >= _REPEATED:
            yield d


def _reciprocal(flow: FunctionBody, division: _Division, name: str) -> list[str]:
    """Lines for the reciprocal of a divisor; NaN, which no quotient can be right with, where it is out of range."""
    n = division.width
    splat = _SPLAT.search(flow.lines[flow.born[division.divisor][1]])
    if splat is None:
        return _inverted(f"<{n} x float>", f"<{n} x i1>", division.divisor, name)
    return [
        f"  {name}.of = extractelement <{splat[1]} x float> {splat[2]}, i64 0",
        *_inverted("float", "i1", f"{name}.of", f"{name}.single"),
        f"  {name}.put = insertelement <{n} x float> poison, float {name}.single, i64 0",
        f"  {name} = shufflevector <{n} x float> {name}.put, <{n} x float> poison, <{n} x i32> zeroinitializer",
    ]


def _divisions(lines: Sequence[str]) -> Iterable[_Division]:
    for at, line in enumerate(lines):
        if " = fdiv <" in line and (match := _DIVISION.match(line)):
            yield _Division(at, match[1], int(match[2]), match[3], match[4])


def _inverted(kind: str, test: str, of: str, name: str) -> list[str]:
    literals = [_literal(v) for v in (1.0, _LEAST, _MOST, float("nan"))]
    one, low, high, nan = literals if kind == "float" else [f"splat (float {v})" for v in literals]
    return [
        f"  {name}.raw = fdiv {kind} {one}, {of}",
        f"  {name}.low = fcmp oge {kind} {of}, {low}",
        f"  {name}.high = fcmp ole {kind} {of}, {high}",
        f"  {name}.fits = and {test} {name}.low, {name}.high",
        f"  {name} = select {test} {name}.fits, {kind} {name}.raw, {kind} {nan}",
    ]


def _quotient(d: _Division, reciprocal: str, number: int, part: str, weights: str) -> list[str]:
    """A block cut in two behind the exact product; between them, the division where that does not hold."""
    n, kind = d.width, f"<{d.width} x float>"
    bits, tests, own = f"<{n} x i32>", f"<{n} x i1>", f"%te.quotient.{number}"
    fma = f"call {kind} @llvm.fma.v{n}f32"
    return [
        f"  {own}.near = fmul {kind} {d.dividend}, {reciprocal}",
        f"  {own}.less = fneg {kind} {d.dividend}",
        f"  {own}.rest = {fma}({kind} {own}.near, {kind} {d.divisor}, {kind} {own}.less)",
        f"  {own}.back = fneg {kind} {own}.rest",
        f"  {own} = {fma}({kind} {own}.back, {kind} {reciprocal}, {kind} {own}.near)",
        f"  {own}.bits = bitcast {kind} {d.dividend} to {bits}",
        f"  {own}.large = and {bits} {own}.bits, splat (i32 {_LARGE})",
        f"  {own}.size = and {bits} {own}.bits, splat (i32 {(1 << 31) - 1})",
        f"  {own}.small = icmp eq {bits} {own}.large, zeroinitializer",
        f"  {own}.more = icmp ne {bits} {own}.size, zeroinitializer",
        f"  {own}.tiny = and {tests} {own}.small, {own}.more",
        f"  {own}.nan = fcmp uno {kind} {own}, zeroinitializer",
        f"  {own}.odd = or {tests} {own}.tiny, {own}.nan",
        f"  {own}.some = bitcast {tests} {own}.odd to i{n}",
        f"  {own}.any = icmp ne i{n} {own}.some, 0",
        f"  br i1 {own}.any, label %te.divided.{number}, label %te.joined.{number}, !prof {weights}",
        "",
        f"te.divided.{number}:",
        f"  {own}.slow = fdiv {kind} {d.dividend}, {d.divisor}",
        f"  br label %te.joined.{number}",
        "",
        f"te.joined.{number}:",
        f"  {d.name} = phi {kind} [ {own}, %{part} ], [ {own}.slow, %te.divided.{number} ]",
    ]


def _literal(value: float) -> str:
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
