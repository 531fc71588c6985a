"""Fused multiply-add in strict kernels: LLVM's `contract` flag on sums of products and on our own polynomials.

Halide 21 knows two kinds of float arithmetic: fast, where LLVM may assume that there is no NaN and does, and strict,
which never fuses and costs a matrix product a third of its speed (99 against 150 GFLOP/s on two cores with AVX-512). So
kernels are compiled strictly, to LLVM's assembly, and get the one liberty that is harmless here: an accumulation over a
loop may round once where it rounded twice. Pointwise arithmetic of users keeps every rounding, so that a * b - c is 0
where NumPy says so.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Sequence

from tedsl.backend.assembly.text import NAME, functions_of
from tedsl.backend.scalars import float32_math, float64_math, wide_math

__all__ = ["fused"]

_NAME = f"({NAME})"
_FLOAT = r"(?:<\d+ x (?:float|double)>|float|double)"
_RESULT = re.compile(rf"^\s+{_NAME} = (?:tail )?(phi|fmul|fadd|fsub) ({_FLOAT}) (.*)$")
_OPERAND = re.compile(_NAME)
_READ = re.compile(
    rf"^\s+{_NAME} = (?:load {_FLOAT}, |(?:tail )?call {_FLOAT} @llvm\.masked\.load\.[^(]*\()ptr {_NAME},"
)
_WRITTEN = re.compile(
    rf"^\s+(?:store {_FLOAT} {_NAME}, |(?:tail )?call void @llvm\.masked\.store\.[^(]*\({_FLOAT} {_NAME}, )ptr {_NAME},"
)
_PASSED_ON = re.compile(rf"^\s+{_NAME} = (?:select|shufflevector) (.*)$")  # one of two, parts put side by side
_CONSTANT = re.compile(r"0x[0-9A-F]{16}")
_CONTRACTED = re.compile(r"= (fmul|fadd|fsub) ")


def fused(lines: list[str]) -> list[str]:
    """Lines in which additions to a running sum, and steps of our polynomials, may fuse with their product."""
    made = list(lines)
    for begin, end in functions_of(lines):
        for at in _fusible(made, begin, end):
            made[at] = _CONTRACTED.sub(r"= \1 contract ", made[at], count=1)
    return made


def _fusible(lines: list[str], begin: int, end: int) -> set[int]:
    """The lines of one function that are such an addition, or its product."""
    products: dict[str, int] = {}
    factors_of: dict[str, list[str]] = {}
    steps: set[str] = set()  # sums with a constant of our functions
    ours: set[str] = set()  # products with such a constant, and with a polynomial of them that ends in r + r r p
    sums: set[str] = set()  # what loops carry round, and what was added to it
    totals = _Totals()
    found: set[int] = set()
    for at in range(begin, end):
        match = _RESULT.match(lines[at])
        if match is None:
            totals.see(lines[at])
            continue
        name, kind, _, operands = match.groups()
        if kind == "phi":
            sums.add(name)
            continue
        is_ours = not _coefficients().isdisjoint(_CONSTANT.findall(operands))
        names = _OPERAND.findall(operands)
        if kind == "fmul":
            products[name] = at
            factors_of[name] = names
            if is_ours:
                ours.add(name)
            continue
        if is_ours:
            steps.add(name)
        ours.update(n for n in names if _is_tail(n, names, factors_of, steps))
        accumulates = not sums.isdisjoint(names)
        if accumulates:
            sums.add(name)
        terms = [products[n] for n in names if n in products]
        totals.add(name, names, [at, *terms] if terms else [])
        factors = [n for n in names if n in products and (accumulates or is_ours or n in ours)]
        if factors:
            found.update([at, *(products[n] for n in factors)])
    return found | totals.kept


class _Totals:
    """Sums that loops carry round in memory: what is read at an address, added to, and written there again."""

    def __init__(self) -> None:
        self.kept: set[int] = set()  # the lines of such additions, and of their products
        self._begun: dict[str, tuple[frozenset[str], frozenset[int]]] = {}  # where it was read, what was added since

    def see(self, line: str) -> None:
        """A line that is no arithmetic."""
        if (read := _READ.match(line)) is not None:
            self._begun[read[1]] = frozenset([read[2]]), frozenset()
        elif (written := _WRITTEN.match(line)) is not None:
            places, added = self._begun.get(written[1] or written[2], (frozenset(), frozenset()))
            if written[3] in places:
                self.kept |= added
        elif (passed := _PASSED_ON.match(line)) is not None:
            self._follow(passed[1], _OPERAND.findall(passed[2]), ())

    def add(self, name: str, terms: Sequence[str], lines: Sequence[int]) -> None:
        """A sum of two terms, and the lines that may fuse in it."""
        self._follow(name, terms, lines)

    def _follow(self, name: str, sources: Iterable[str], lines: Iterable[int]) -> None:
        begun = [self._begun[n] for n in sources if n in self._begun]
        if begun:
            places = frozenset[str]().union(*(p for p, _ in begun))
            self._begun[name] = places, frozenset(lines).union(*(added for _, added in begun))


def _is_tail(name: str, terms: list[str], factors_of: dict[str, list[str]], steps: set[str]) -> bool:
    """Whether of the terms r and r r p this is the second one, with p a polynomial of ours."""
    rest = [factor for factor in factors_of.get(name, ()) if factor not in steps]
    if len(rest) != 1 or len(factors_of[name]) != 2:
        return False
    squared = factors_of.get(rest[0], [])
    return len(squared) == 2 and squared[0] == squared[1] and squared[0] in terms


@functools.cache
def _coefficients() -> frozenset[str]:
    """The constants of our functions, as LLVM prints them; those that users might write too are left out."""
    single = _numbers(vars(float32_math).values())
    double = _numbers(vars(float64_math).values()) | _numbers(vars(wide_math).values())
    rounded = {struct.unpack("f", struct.pack("f", v))[0] for v in single}
    return frozenset(f"0x{struct.unpack('Q', struct.pack('d', v))[0]:016X}" for v in rounded | double if _is_odd(v))


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
