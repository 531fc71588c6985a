"""All integer solutions of one linear system, as loops.

Equations first: the Smith form turns F z = s into z = p(s) + N t, with divisibility conditions on s alone. Inequalities
next: Fourier-Motzkin bounds each t by those outside it; a loop starts at the ceiling of its best lower bound and is as
wide as the largest distance to an upper bound. The inequalities themselves remain as guards unless they are proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from math import gcd, perm, prod

from autodiff.cases import System
from autodiff.conditions import Condition, NonNegative, Zero, mapped
from autodiff.domains import Loop
from autodiff.integers import Matrix, lower_triangular_basis, smith
from autodiff.linear import Linear, Quotient, Symbol, ceiling, complexity, floordiv, linear, mod, symbol
from autodiff.polyhedra import Clock, Facts, TooHard, eliminated, reduced

__all__ = ["Setting", "Solution", "nominal", "solve"]

NOMINAL_EXTENT = 1009
MAX_ORDERS = 48


@dataclass(frozen=True)
class Setting:
    """What every solution of one inversion shares: what is known of elements and parameters, and the time left."""

    facts: Facts
    parameters: frozenset[Symbol]
    clock: Clock


@dataclass(frozen=True)
class Solution:
    """The points of a system: `values` for each of its original variables, over `loops`, where `guards` hold."""

    loops: tuple[tuple[Loop, Linear], ...]
    values: tuple[tuple[Symbol, Linear], ...]
    guards: tuple[Condition, ...]

    @property
    def width(self) -> int:
        return prod(nominal(w) for _, w in self.loops)


@dataclass(frozen=True)
class _Step:
    """A coordinate of the lattice of solutions before its loop has a start."""

    position: int


@dataclass(frozen=True)
class _Nest:
    loops: tuple[tuple[Loop, Linear], ...]
    values: dict[Symbol, Linear]
    facts: Facts

    def merit(self, originals: Sequence[Symbol]) -> tuple[int, int, int]:
        """Small is good: iterations, then variables that are not a loop themselves, then the size of the forms."""
        values = [self.values[v] for v in originals]
        plain = sum(e == symbol(t) for e in values for t, _ in self.loops)
        size = sum(1 + 3 * isinstance(s, Quotient) for e in values for s in e) + sum(e.constant != 0 for e in values)
        return prod(nominal(w) for _, w in self.loops), -plain, size


class _Empty(Exception):
    """The system has no solution."""


def nominal(e: Linear) -> int:
    """The size of an extent for comparing costs: parameters count as large."""
    return max(0, e.evaluate(dict.fromkeys(e.leaves(), NOMINAL_EXTENT)))


def solve(system: System, setting: Setting) -> Solution | None:
    """Every solution, once each; None when there is none."""
    try:
        return _solve(system, setting)
    except _Empty:
        return None


def _solve(system: System, setting: Setting) -> Solution:
    conditions, particular, lattice = _equations(system)
    known = [e for c in conditions for e in (c.form, -c.form)]
    facts = setting.facts.extended({}, known)
    inequalities = reduced(system.inequalities)
    if any(e.is_constant for e in inequalities):
        raise _Empty
    nest = _best_nest(system, inequalities, particular, lattice, facts, setting)
    rest = [e.substituted(nest.values) for e in inequalities]
    unproved = _unproved(rest, nest.facts)
    if unproved and nest.facts.extended({}, unproved).refuted():
        raise _Empty
    residual = [mapped(c, lambda e: e.substituted(nest.values)) for c in system.residual]
    values = tuple((v, nest.values[v]) for v in system.variables[: system.originals])
    return Solution(nest.loops, values, (*conditions, *map(NonNegative, unproved), *residual))


def _equations(system: System) -> tuple[list[Zero], list[Linear], Matrix]:
    """(conditions on the elements, one solution, a basis of the differences of solutions as columns)."""
    unknowns = system.variables
    inside = dict.fromkeys(unknowns, linear(0))
    matrix = [[e[v] for v in unknowns] for e in system.equations]
    right = [-e.substituted(inside) for e in system.equations]
    u, d, v = smith(matrix, len(unknowns))
    if not _has_integer_point(system.equations):
        raise _Empty
    conditions: list[Zero] = []
    y: list[Linear] = []
    for i, row in enumerate(u):
        e = sum((r * c for r, c in zip(right, row, strict=True)), linear(0))
        if i < len(d) and d[i]:
            conditions += _divisible(e, d[i])
            y.append(floordiv(e, d[i]))
        else:
            conditions += _vanishing(e)
    particular = [sum((a * v[j][i] for i, a in enumerate(y)), linear(0)) for j in range(len(unknowns))]
    return conditions, particular, [row[len(y) :] for row in v]


def _has_integer_point(equations: Sequence[Linear]) -> bool:
    """Whether the equations have a solution in integers, whatever the elements and parameters."""
    symbols = list(dict.fromkeys(s for e in equations for s in e))
    u, d, _ = smith([[e[s] for s in symbols] for e in equations], len(symbols))
    for i, row in enumerate(u):
        constant = sum(r * e.constant for r, e in zip(row, equations, strict=True))
        divisor = d[i] if i < len(d) else 0
        if (constant % divisor if divisor else constant) != 0:
            return False
    return True


def _divisible(e: Linear, d: int) -> list[Zero]:
    """The condition that d divides e, if it is one."""
    g = gcd(d, e.content())
    if e.constant % g:
        raise _Empty
    remainder = mod(e, d)
    return [] if remainder.is_constant else [Zero(remainder)]


def _vanishing(e: Linear) -> list[Zero]:
    g = e.content()
    if (e.constant % g if g else e.constant) != 0:
        raise _Empty
    return [Zero(e.divided(g))] if g else []


def _best_nest(
    system: System,
    inequalities: list[Linear],
    particular: list[Linear],
    lattice: Matrix,
    facts: Facts,
    setting: Setting,
) -> _Nest:
    originals = system.variables[: system.originals]
    best: tuple[tuple[int, int, int], _Nest] | None = None
    for order in _orders(system, lattice):
        basis = lower_triangular_basis(lattice, order)
        if basis is None:
            continue
        setting.clock.check()
        nest = _nest(system.variables, inequalities, particular, basis, facts, setting)
        merit = nest.merit(originals)
        if best is None or merit < best[0]:
            best = merit, nest
    assert best is not None, "some choice of coordinates is always independent"
    return best[1]


def _orders(system: System, lattice: Matrix) -> Iterator[tuple[int, ...]]:
    """Which unknowns to loop over, outermost first; short ranges first when not all choices can be tried."""
    free = len(lattice[0]) if lattice else 0
    candidates = [i for i, row in enumerate(lattice) if any(row)]
    if perm(len(candidates), free) > MAX_ORDERS:
        ranges = dict(system.ranges)

        def extent(i: int) -> tuple[int, int]:
            low, high = ranges.get(system.variables[i], (None, None))
            return (nominal(high - low) if low is not None and high is not None else NOMINAL_EXTENT**2), i

        candidates.sort(key=extent)
    return islice(permutations(candidates, free), MAX_ORDERS * 8 if free < 4 else MAX_ORDERS)


def _nest(
    variables: Sequence[Symbol],
    inequalities: list[Linear],
    particular: list[Linear],
    basis: Matrix,
    facts: Facts,
    setting: Setting,
) -> _Nest:
    """The loops over one basis of the lattice, outermost first."""
    free = len(basis[0]) if basis else 0
    steps = [_Step(i) for i in range(free)]
    values = {
        v: p + Linear(dict(zip(steps, row, strict=True)))
        for v, p, row in zip(variables, particular, basis, strict=True)
    }
    levels = [reduced(e.substituted(values) for e in inequalities)]
    for step in reversed(steps[1:]):
        setting.clock.check()
        levels.insert(0, eliminated(levels[0], step))
    chosen: dict[Symbol, Linear] = {}
    loops: list[tuple[Loop, Linear]] = []
    for i, (step, level) in enumerate(zip(steps, levels, strict=False)):
        bounds = [e.substituted(chosen) for e in level if e[step]]
        start, width = _window(bounds, step, facts, setting.parameters)
        start = simplified(start, facts)
        if width.is_constant and width.constant <= 0:
            raise _Empty
        if width == linear(1):
            chosen[step] = start
            continue
        loop = Loop(i)
        loops.append((loop, width))
        chosen[step] = start + symbol(loop)
        facts = facts.extended({loop: (linear(0), width - 1)})
    solved = {v: simplified(e.substituted(chosen), facts) for v, e in values.items()}
    return _Nest(tuple(loops), solved, facts)


def _window(
    bounds: Sequence[Linear], step: Symbol, facts: Facts, parameters: frozenset[Symbol]
) -> tuple[Linear, Linear]:
    """(start, width) of the narrowest window that holds every solution."""
    best: tuple[tuple[int, int, int], Linear, Linear] | None = None
    lower = [(e[step], -(e - symbol(step) * e[step])) for e in bounds if e[step] > 0]
    upper = [(-e[step], e - symbol(step) * e[step]) for e in bounds if e[step] < 0]
    for a, low in lower:
        for b, high in upper:
            extent = facts.greatest(high * a - low * b, parameters)
            if extent is None:
                continue
            width = floordiv(extent, a * b) + 1
            merit = nominal(width), len(low.coefficients), sum(map(abs, low.coefficients.values()))
            if best is None or merit < best[0]:
                # With w integers at most in the window, floor(high) - w + 1 is as good a start as ceil(low).
                starts = [ceiling(low, a)] + ([floordiv(high, b) - (width - 1)] if width.is_constant else [])
                best = merit, min(starts, key=complexity), width
    if best is None:
        raise TooHard("a loop of the gather has no bounds that are known when it is built")
    return best[1], best[2]


def simplified(e: Linear, facts: Facts) -> Linear:
    """Quotients of one known value replaced by it."""

    def rule(s: Symbol) -> Linear | None:
        if not isinstance(s, Quotient):
            return None
        low, high = facts.interval(s.numerator)
        if low is None or high is None or low // s.divisor != high // s.divisor:
            return None
        return linear(low // s.divisor)

    return e.mapped(rule)


def _unproved(inequalities: Sequence[Linear], facts: Facts) -> list[Linear]:
    """The inequalities that do not follow, none implied by the others."""
    kept = [e for e in reduced(inequalities) if not facts.proves(e)]
    if any(e.is_constant for e in kept):
        raise _Empty
    for e in reversed(kept[:]):
        others = [k for k in kept if k is not e]
        if others and facts.extended({}, others).proves(e):
            kept = others
    return kept
