"""Divisions by one value again and again, as products with its reciprocal that are made exact.

A processor has one divider and two multipliers: a vector of quotients takes ten cycles, where three fused
multiply-adds take one and a half. Where a loop divides by what it does not change, the reciprocal r of the divisor b is
computed before it, and

    q = a r,  rest = q b - a,  quotient = q - rest r

is the quotient as the divider rounds it (Markstein; Brisebarre, Muller and Raina 2004), in float32, as long as nothing on
the way leaves the normal numbers. That the three steps round every pair of mantissas right was found by going through
all for which q could be so near to the middle between two numbers that it matters (46 million). Each vector is tested:
dividends that are tiny, infinite or NaN, and divisors out of range, are divided as before.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

__all__ = ["multiplied"]

_NAME = r'%(?:[\w.$-]+|"[^"]*")'
_DEFINED = re.compile(rf"^  ({_NAME}) = (\w+)")
_DIVISION = re.compile(rf"^  ({_NAME}) = fdiv <(4|8|16) x float> ({_NAME}|[a-z]+ \(.*\)|<.*>), ({_NAME})$")
_LABEL = re.compile(r'^([\w.$-]+|"[^"]*"):')
_TARGET = re.compile(rf"label ({_NAME})")
_SPLAT = re.compile(rf"= shufflevector <(\d+) x float> ({_NAME}), <\1 x float> \w+, <\d+ x i32> zeroinitializer$")
_METADATA = re.compile(r"^!(\d+) = ")
_REPEATED = 6  # divisions by one value in one place that are worth its reciprocal
_LEAST, _MOST = 2.0**-40, 2.0**40  # of a divisor
_LARGE = 3 << 29  # bits of the exponent, none of which is set below 2^-63: quotients or rests may not be normal there


def multiplied(lines: list[str]) -> list[str]:
    """The lines of a module, with products for divisions by what a loop, or many divisions, have in common."""
    if not any(" = fdiv <" in line for line in lines) or not any("+fma" in line for line in lines):
        return lines
    made: list[str] = []
    widths: set[int] = set()
    numbers = count()
    weights = f"!{1 + max((int(m[1]) for m in map(_METADATA.match, lines) if m), default=-1)}"
    begin = None
    for k, line in enumerate(lines):
        if line.startswith("define "):
            begin = k
        elif line == "}" and begin is not None:
            made += _Function(lines[begin:k]).multiplied(numbers, widths, weights)
            begin = None
        if begin is None:
            made.append(line)
    if not widths:
        return lines
    declared = [f"declare <{n} x float> @llvm.fma.v{n}f32(<{n} x float>, <{n} x float>, <{n} x float>)" for n in widths]
    known = {line.partition("(")[0] for line in lines if line.startswith("declare ")}
    new = [d for d in sorted(declared) if d.partition("(")[0] not in known]
    return [*made, *new, f'{weights} = !{{!"branch_weights", i32 1, i32 4000}}']


@dataclass(frozen=True)
class _Block:
    """Lines that run one after another, and where they lead."""

    label: str
    begin: int
    end: int
    leads_to: tuple[str, ...]


@dataclass(frozen=True)
class _Division:
    at: int
    name: str
    width: int
    dividend: str
    divisor: str


@dataclass
class _Function:
    lines: list[str]
    blocks: dict[str, _Block] = field(default_factory=dict)
    born: dict[str, tuple[str, int]] = field(default_factory=dict)  # the block and line of a name

    def multiplied(self, numbers: Iterator[int], widths: set[int], weights: str) -> list[str]:
        found = list(_divisions(self.lines))
        if not found:
            return self.lines
        self._read()
        chosen = list(self._chosen(found))
        if not chosen:
            return self.lines
        before: dict[int, list[str]] = defaultdict(list)  # what comes in front of a line
        instead: dict[int, list[str]] = {}
        ends: dict[str, str] = {}  # the last part of a block that was cut
        reciprocals: dict[tuple[str, int], str] = {}
        for division in chosen:
            key = division.divisor, division.width
            number = next(numbers)
            if key not in reciprocals:
                reciprocals[key] = f"%te.reciprocal.{number}"
                before[self._behind(division.divisor)] += self._reciprocal(division, number)
            block = self._block_of(division.at)
            part = ends.get(block, block)
            instead[division.at] = _quotient(division, reciprocals[key], number, part, weights)
            ends[block] = f"te.joined.{number}"
            widths.add(division.width)
        made: list[str] = []
        for at, line in enumerate(self.lines):
            made += before.get(at, [])
            made += instead.get(at) or [_from_ends(line, ends)]
        return made

    def _read(self) -> None:
        label, begin = "", 1
        marks = [(at, m[1]) for at, line in enumerate(self.lines) if at and (m := _LABEL.match(line))]
        if marks and not any(line.strip() for line in self.lines[1 : marks[0][0]]):
            label, begin = marks[0][1], marks[0][0] + 1
            marks = marks[1:]
        for at, following in [*marks, (len(self.lines), "")]:
            leads_to = tuple(t[1:] for line in self.lines[begin:at] for t in _TARGET.findall(line))
            self.blocks[label] = _Block(label, begin, at, leads_to)
            for k in range(begin, at):
                match = _DEFINED.match(self.lines[k])
                if match is not None:
                    self.born[match[1]] = label, k
            label, begin = following, at + 1

    def _chosen(self, found: Sequence[_Division]) -> Iterator[_Division]:
        """The divisions by what the innermost loop around does not change, or that are many."""
        inside = self._loops()
        alike: dict[tuple[str, str], int] = defaultdict(int)
        for d in found:
            alike[self._block_of(d.at), d.divisor] += 1
        for d in found:
            block = self._block_of(d.at)
            home = self.born.get(d.divisor)
            if home is None:
                continue
            loop = inside.get(block)
            if (loop is not None and home[0] not in loop) or alike[block, d.divisor] >= _REPEATED:
                yield d

    def _block_of(self, at: int) -> str:
        return next(b.label for b in self.blocks.values() if b.begin <= at < b.end)

    def _loops(self) -> dict[str, frozenset[str]]:
        """The blocks of the innermost loop around each block."""
        comes_from: dict[str, list[str]] = defaultdict(list)
        for block in self.blocks.values():
            for to in block.leads_to:
                comes_from[to].append(block.label)
        found: dict[str, frozenset[str]] = {}
        for source, head in self._back_edges():
            body, pending = {head}, [source]
            while pending:
                label = pending.pop()
                if label not in body:
                    body.add(label)
                    pending += comes_from[label]
            for label in body:
                if label not in found or len(body) < len(found[label]):
                    found[label] = frozenset(body)
        return found

    def _back_edges(self) -> list[tuple[str, str]]:
        """The edges that lead back to a block on the way from the entry."""
        entry = next(iter(self.blocks))
        found: list[tuple[str, str]] = []
        seen, open_ = {entry}, {entry}
        stack = [(entry, iter(self.blocks[entry].leads_to))]
        while stack:
            label, rest = stack[-1]
            to = next(rest, None)
            if to is None:
                stack.pop()
                open_.discard(label)
            elif to in open_:
                found.append((label, to))
            elif to not in seen:
                seen.add(to)
                open_.add(to)
                stack.append((to, iter(self.blocks[to].leads_to)))
        return found

    def _behind(self, name: str) -> int:
        """The line before which something that needs `name` can stand."""
        label, at = self.born[name]
        at += 1
        while at < self.blocks[label].end and " = phi " in self.lines[at]:
            at += 1
        return at

    def _reciprocal(self, division: _Division, number: int) -> list[str]:
        """Lines for the reciprocal of a divisor; NaN, which no quotient can be right with, where it is out of range."""
        n, name = division.width, f"%te.reciprocal.{number}"
        splat = _SPLAT.search(self.lines[self.born[division.divisor][1]])
        if splat is None:
            return _inverted(f"<{n} x float>", f"<{n} x i1>", division.divisor, name)
        single = f"%te.single.{number}"
        return [
            f"  {single}.of = extractelement <{splat[1]} x float> {splat[2]}, i64 0",
            *_inverted("float", "i1", f"{single}.of", single),
            f"  {name}.put = insertelement <{n} x float> poison, float {single}, i64 0",
            f"  {name} = shufflevector <{n} x float> {name}.put, <{n} x float> poison, <{n} x i32> zeroinitializer",
        ]


def _divisions(lines: Sequence[str]) -> Iterable[_Division]:
    for at, line in enumerate(lines):
        if " = fdiv <" in line and (match := _DIVISION.match(line)):
            yield _Division(at, match[1], int(match[2]), match[3], match[4])


def _inverted(kind: str, test: str, of: str, name: str) -> list[str]:
    def constant(value: str) -> str:
        return f"float {value}" if kind == "float" else f"splat (float {value})"

    one, low, high, nan = (constant(_literal(v)) for v in (1.0, _LEAST, _MOST, float("nan")))
    if kind == "float":
        one, low, high = (c.removeprefix("float ") for c in (one, low, high))
    return [
        f"  {name}.raw = fdiv {kind} {one}, {of}",
        f"  {name}.low = fcmp oge {kind} {of}, {low}",
        f"  {name}.high = fcmp ole {kind} {of}, {high}",
        f"  {name}.fits = and {test} {name}.low, {name}.high",
        f"  {name} = select {test} {name}.fits, {kind} {name}.raw, {kind} {nan.removeprefix('float ')}",
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


def _from_ends(line: str, ends: dict[str, str]) -> str:
    """A line in which what comes from a block that was cut comes from its last part."""
    if not ends or " = phi " not in line:
        return line
    return re.sub(rf", ({_NAME}) \]", lambda m: f", %{ends.get(m[1][1:], m[1][1:])} ]", line)


def _literal(value: float) -> str:
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"

