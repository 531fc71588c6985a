"""Loops over the points of a lattice between inequalities: which, in what order, from where and how wide.

Any independent coordinates of the lattice can be loops. Fourier-Motzkin bounds each by those outside it; the loop
starts at the ceiling of its best lower bound and is as wide as the largest distance to an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations
from math import perm, prod

from autodiff.integers.algebra import Matrix, independent_rows, triangular_basis
from autodiff.integers.budget import Budget, TooHard
from autodiff.integers.linear import Linear, Numbered, Quotient, Symbol, ceiling, complexity, floordiv, linear, symbol
from autodiff.integers.polyhedra import KnownInequalities, eliminated, reduced
from autodiff.inversion.cases import System
from autodiff.inversion.domains import GatherLoop
from tedsl.lang.dataclass import dataclass

__all__ = ["Empty", "LatticeNest", "Setting", "best_nest", "nominal"]

NOMINAL_EXTENT = 1009
MAX_ORDERS = 24
MAX_PAIRS = 12
ORDER = 100
"""Steps per inequality of writing a system in other coordinates."""


@dataclass(frozen=True)
class Setting:
    """What every solution of one inversion shares: what is known of elements and parameters, and what it may cost."""

    facts: KnownInequalities
    parameters: frozenset[Symbol]

    @property
    def budget(self) -> Budget:
        return self.facts.budget

    def within(self, budget: Budget) -> Setting:
        return Setting(KnownInequalities(self.facts.ranges, self.facts.known, budget), self.parameters)


class _Step(Numbered):
    """A coordinate of the lattice of solutions before its loop has a start."""

    __slots__ = ()


@dataclass(frozen=True)
class LatticeNest:
    loops: tuple[tuple[GatherLoop, Linear], ...]
    values: dict[Symbol, Linear]
    facts: KnownInequalities

    def merit(self, originals: Sequence[Symbol]) -> tuple[int, int, int]:
        """Small is good: iterations, then variables that are not a loop themselves, then the size of the forms."""
        values = [self.values[v] for v in originals]
        plain = sum(e == symbol(t) for e in values for t, _ in self.loops)
        size = sum(1 + 3 * isinstance(s, Quotient) for e in values for s in e) + sum(e.constant != 0 for e in values)
        return prod(nominal(w) for _, w in self.loops), -plain, size


class Empty(Exception):
    """The system has no solution."""


def nominal(e: Linear) -> int:
    """The size of an extent for comparing costs: parameters count as large."""
    return max(0, e.evaluate(dict.fromkeys(e.leaves(), NOMINAL_EXTENT)))


def best_nest(
    system: System,
    inequalities: list[Linear],
    particular: list[Linear],
    lattice: Matrix,
    facts: KnownInequalities,
    setting: Setting,
) -> LatticeNest:
    originals = system.variables[: system.originals]
    best: tuple[tuple[int, int, int], LatticeNest] | None = None
    failure = TooHard("no loops were found")
    for order in _orders(system, lattice):
        basis = triangular_basis(lattice, order)
        if basis is None:
            continue
        setting.budget.spend(ORDER * len(inequalities))
        try:
            most = None if best is None else best[0][0]
            nest = _nest(system.variables, inequalities, particular, basis, facts, setting, most)
        except TooHard as reason:
            failure = reason
            continue
        if nest is None:
            continue
        merit = nest.merit(originals)
        if best is None or merit < best[0]:
            best = merit, nest
    if best is None:
        raise failure
    return best[1]


def _orders(system: System, lattice: Matrix) -> Iterator[tuple[int, ...]]:
    """Which unknowns to loop over, outermost first: every choice, or the shortest ranges and exchanges of one."""
    free = len(lattice[0]) if lattice else 0
    candidates = [i for i, row in enumerate(lattice) if any(row)]
    if perm(len(candidates), free) <= MAX_ORDERS:
        yield from permutations(candidates, free)
        return
    ranges = dict(system.ranges)

    def extent(i: int) -> tuple[int, int]:
        low, high = ranges.get(system.variables[i], (None, None))
        return (nominal(high - low) if low is not None and high is not None else NOMINAL_EXTENT**2), i

    candidates.sort(key=extent)
    short = independent_rows(lattice, tuple(candidates))
    yield from islice(permutations(short), MAX_ORDERS // 2)
    others = [i for i in candidates if i not in short]
    yield from islice(((*short[:k], i, *short[k + 1 :]) for i in others for k in range(free)), MAX_ORDERS // 2)


def _nest(
    variables: Sequence[Symbol],
    inequalities: list[Linear],
    particular: list[Linear],
    basis: Matrix,
    facts: KnownInequalities,
    setting: Setting,
    most: int | None,
) -> LatticeNest | None:
    """The loops over one basis of the lattice, outermost first; None where they take more than `most` iterations."""
    free = len(basis[0]) if basis else 0
    steps = [_Step(i) for i in range(free)]
    values = {
        v: p + Linear(dict(zip(steps, row, strict=True)))
        for v, p, row in zip(variables, particular, basis, strict=True)
    }
    levels = _levels(reduced(e.substituted(values) for e in inequalities), steps, setting)
    chosen: dict[Symbol, Linear] = {}
    loops: list[tuple[GatherLoop, Linear]] = []
    for i, (step, level) in enumerate(zip(steps, levels, strict=False)):
        bounds = [e.substituted(chosen) for e in level if e[step]]
        start, width = _window(bounds, step, facts, setting.parameters)
        start = simplified(start, facts)
        if width.is_constant and width.constant <= 0:
            raise Empty
        if width == linear(1):
            chosen[step] = start
            continue
        loop = GatherLoop(i)
        loops.append((loop, width))
        if most is not None and prod(nominal(w) for _, w in loops) > most:
            return None
        chosen[step] = start + symbol(loop)
        facts = facts.extended({loop: (linear(0), width - 1)})
    solved = {v: simplified(e.substituted(chosen), facts) for v, e in values.items()}
    return LatticeNest(tuple(loops), solved, facts)


def _levels(inequalities: list[Linear], steps: Sequence[_Step], setting: Setting) -> list[list[Linear]]:
    """For each step, what is known of it and those outside it.

    Where projecting takes too many inequalities, those that say nothing of inner steps are enough: the range of the
    step's own coordinate is among them.
    """
    levels = [inequalities]
    for step in reversed(steps[1:]):
        levels.insert(0, _outside(levels[0], step, setting.budget))
    return levels


def _outside(level: list[Linear], step: _Step, budget: Budget) -> list[Linear]:
    try:
        return eliminated(level, step, budget)
    except TooHard:
        return [e for e in level if not e[step]]


def _window(
    bounds: Sequence[Linear], step: Symbol, facts: KnownInequalities, parameters: frozenset[Symbol]
) -> tuple[Linear, Linear]:
    """(start, width) of the narrowest window that holds every solution."""
    lower = [(e[step], -(e - symbol(step) * e[step])) for e in bounds if e[step] > 0]
    upper = [(-e[step], e - symbol(step) * e[step]) for e in bounds if e[step] < 0]
    pairs = [(a, low, b, high, high * a - low * b) for a, low in lower for b, high in upper]
    known = [(*pair, _at_most(pair[-1], facts)) for pair in pairs if pair[-1].is_over(parameters)]
    # The distance of the other pairs varies, and its maximum takes a linear program: the promising ones only.
    rough = sorted((_rough(facts, pair[-1]), k) for k, pair in enumerate(pairs) if not pair[-1].is_over(parameters))
    for _, k in rough[:MAX_PAIRS]:
        extent = facts.greatest(pairs[k][-1], parameters)
        if extent is not None:
            known.append((*pairs[k], extent))
    if not known:
        raise TooHard("a loop of the gather has no bounds that are known when it is built")
    widths = [(floordiv(extent, a * b) + 1, a, low, b, high) for a, low, b, high, _, extent in known]
    width, a, low, b, high = min(widths, key=lambda w: (nominal(w[0]), len(w[2].coefficients), complexity(w[2])))
    # With w integers at most in the window, floor(high) - w + 1 is as good a start as ceil(low).
    starts = [ceiling(low, a)] + ([floordiv(high, b) - (width - 1)] if width.is_constant else [])
    return min(starts, key=complexity), width


def _at_most(extent: Linear, facts: KnownInequalities) -> Linear:
    """A distance in the parameters, as a number where it is never larger than one: such a loop is not empty for most
    sizes, which a kernel would have to be told."""
    least = None if extent.is_constant else facts.minimum(-extent)
    return extent if least is None else linear(-least)


def _rough(facts: KnownInequalities, e: Linear) -> float:
    high = facts.interval(e)[1]
    return float("inf") if high is None else high


def simplified(e: Linear, facts: KnownInequalities) -> Linear:
    """Quotients of one known value replaced by it."""

    def rule(s: Symbol) -> Linear | None:
        if not isinstance(s, Quotient):
            return None
        low, high = facts.interval(s.numerator)
        if low is None or high is None or low // s.divisor != high // s.divisor:
            return None
        return linear(low // s.divisor)

    return e.mapped(rule)
