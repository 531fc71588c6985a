"""Solutions on the part of the target where there are any: residue classes, sub-boxes, diagonals.

A condition on the element alone, such as `s % 2 == 0` after a strided read, would be tested in every iteration of the
gather's loops. Where loops run at all it is cheaper to gather only the elements that satisfy it into a smaller tensor,
and to read that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import gcd, lcm, prod
from typing import Any

from autodiff.integers.budget import Budget, TooHard
from autodiff.integers.conditions import NonNegative, Zero
from autodiff.integers.linear import Linear, Quotient, Symbol, ceiling, floordiv, linear, mod, symbol
from autodiff.integers.polyhedra import eliminated, reduced
from autodiff.inversion.cases import System
from autodiff.inversion.domains import GatheredAxis, Grid
from autodiff.inversion.lattice_loops import Setting, nominal
from autodiff.inversion.solve import Solution, solve
from tedsl.lang.dataclass import dataclass

__all__ = ["WORTH", "Part", "refined", "solved"]

WORTH = 0.9
"""A refinement must bring the iterations down to this share."""
MAX_PHASES = 16
MAX_SPLITS = 4  # of a grid into residue classes, one within another


@dataclass(frozen=True)
class Part:
    """The solution of one system on one grid of elements."""

    grid: Grid
    solution: Solution

    @property
    def cost(self) -> int:
        return prod(nominal(n) for _, n in self.grid.axes) * self.solution.width


def solved(system: System, grid: Grid, setting: Setting) -> Part | None:
    """The system solved for the elements of the grid as they are."""
    place = dict(grid.place)
    placed = replace(
        system,
        equations=tuple(e.substituted(place) for e in system.equations),
        inequalities=tuple(e.substituted(place) for e in system.inequalities),
    )
    inside = replace(setting, facts=setting.facts.extended(grid.ranges()))
    solution = solve(placed, inside)
    return None if solution is None else Part(grid, solution)


def refined(system: System, grid: Grid, setting: Setting, splits: int = 0) -> list[Part]:
    """The parts, on disjoint grids, whose sum is the whole solution at the least cost found.

    A residue class may have quotients of its own, and be split again; where that has no end, its part stays whole.
    """
    part = solved(system, grid, setting)
    if part is None:
        return []
    diagonal = _diagonal(part)
    if diagonal is not None:
        return refined(system, diagonal, setting, splits)
    phases = _phases(part) if splits < MAX_SPLITS else None
    whole = _boxed(system, part, setting)
    if phases is not None:
        parts = [p for phase in phases for p in refined(system, phase, setting, splits + 1)]
        if sum(p.cost for p in parts) <= WORTH * sum(p.cost for p in whole):
            return parts
    return whole


def _diagonal(part: Part) -> Grid | None:
    """The grid without an axis that an equation determines, as s1 is by s0 == s1."""
    extents, loops = dict(part.grid.axes), dict(part.solution.loops)
    for guard in part.solution.guards:
        if not isinstance(guard, Zero) or any(isinstance(s, Quotient) or s in loops for s in guard.form):
            continue
        axes = [s for s in guard.form if isinstance(s, GatheredAxis) and abs(guard.form[s]) == 1]
        if axes:
            axis = max(axes, key=lambda a: (nominal(extents[a]), a.position))
            c = guard.form[axis]
            return part.grid.tied(axis, (guard.form - symbol(axis) * c) * -c)
    return None


def _phases(part: Part) -> list[Grid] | None:
    """The residue classes in which no quotient of an axis is left; None when there is one, or too many."""
    forms = [e for _, e in part.solution.values]
    forms += [g.form for g in part.solution.guards if isinstance(g, Zero | NonNegative)]
    moduli = [(a, n, lcm(*(_period(e, a)[0] for e in forms))) for a, n in part.grid.axes]
    if not 1 < prod(m for _, _, m in moduli) <= MAX_PHASES:
        return None
    grids = []
    for residues in product(*(range(m) for _, _, m in moduli)):
        grid = part.grid
        for (a, n, m), r in zip(moduli, residues, strict=True):
            extent = ceiling(n - r, m)
            if m > 1:
                grid = grid.moved(a, m, linear(r), extent, (Zero(mod(symbol(a), m) - r),))
        if not any(n.is_constant and n.constant <= 0 for _, n in grid.axes):
            grids.append(grid)
    return grids


def _period(e: Linear, axis: GatheredAxis) -> tuple[int, int]:
    """(m, change): adding m to the axis changes e by exactly `change`, whatever else; m the least such found.

    >>> _period(floordiv(symbol(GatheredAxis(0)) * 2 + 1, 6), GatheredAxis(0))
    (3, 1)
    """
    period, rate = 1, [(e[axis], 1)]
    for s, c in e.coefficients.items():
        if isinstance(s, Quotient):
            m, change = _period(s.numerator, axis)
            k = s.divisor // gcd(s.divisor, change)
            period = lcm(period, m * k)
            rate.append((c * change * k // s.divisor, m * k))
    return period, sum(change * (period // m) for change, m in rate)


def _boxed(system: System, part: Part, setting: Setting) -> list[Part]:
    """The part on the sub-box of elements that a projection leaves, where that is markedly smaller."""
    grid = part.grid
    for axis, low, high in _spans(system, grid, setting):
        extent = high - low + 1
        if extent.is_constant and extent.constant <= 0:
            return []
        whole = dict(grid.axes)[axis]
        if nominal(extent) > WORTH * nominal(whole) or not setting.facts.proves(extent):
            continue
        member = [] if low == linear(0) else [NonNegative(symbol(axis) - low)]
        member += [] if high == whole - 1 else [NonNegative(high - symbol(axis))]
        grid = grid.moved(axis, 1, low, extent, tuple(member))
    if grid is part.grid:
        return [part]
    smaller = solved(system, grid, setting)
    return [] if smaller is None else [smaller]


def _spans(system: System, grid: Grid, setting: Setting) -> Iterator[tuple[GatheredAxis, Linear, Linear]]:
    """For each axis, the narrowest [low, high] outside of which there is no solution."""
    place = dict(grid.place)
    projection = _projected(system, place, setting.budget)
    for axis, n in grid.axes:
        lows, highs = [linear(0)], [n - 1]
        for e in projection:
            rest = e - symbol(axis) * e[axis]
            if not e[axis] or not rest.is_over(setting.parameters):
                continue
            extreme = setting.facts.minimum(-rest)
            for bound in (rest, None if extreme is None or rest.is_constant else linear(-extreme)):
                if bound is None:
                    continue
                if e[axis] > 0:
                    lows.append(ceiling(-bound, e[axis]))
                else:
                    highs.append(floordiv(bound, -e[axis]))
        pairs = [(low, high) for low in lows for high in highs]
        usable = [p for p in pairs if setting.facts.proves(p[1] - p[0] + 1) or (p[1] - p[0]).is_constant]
        if usable:
            low, high = min(usable, key=lambda p: _size(p[1] - p[0]))
            yield axis, low, high


def _size(e: Linear) -> int:
    return e.constant if e.is_constant else nominal(e)


def _projected(system: System, place: Mapping[Any, Linear], budget: Budget) -> Sequence[Linear]:
    """What the system says of the elements alone; nothing when finding out takes too many inequalities."""
    both = [f for e in system.equations for f in (e, -e)]
    inequalities = reduced(e.substituted(place) for e in (*both, *system.inequalities))
    try:
        remaining = list(system.variables)
        while remaining:
            v = min(remaining, key=lambda v: _pairs(inequalities, v))
            remaining.remove(v)
            inequalities = eliminated(inequalities, v, budget)
    except TooHard:
        return []
    return inequalities


def _pairs(inequalities: Sequence[Linear], s: Symbol) -> int:
    return sum(e[s] > 0 for e in inequalities) * sum(e[s] < 0 for e in inequalities)
