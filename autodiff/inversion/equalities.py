"""Equations that inequalities imply: `i >= k`, `i <= j` and `j <= k` together say that the three are one.

As inequalities they would bound loops that have one iteration where they have any; as equations they are solved before
there are loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autodiff.integers.linear import Linear, Symbol
from autodiff.integers.polyhedra import KnownInequalities, reduced
from autodiff.inversion.cases import System
from autodiff.inversion.domains import Grid

__all__ = ["with_equalities"]

MOST = 8
"""Inequalities of several variables that are looked at: more are a map with many cases, which has few such."""


def with_equalities(system: System, grid: Grid, facts: KnownInequalities) -> System:
    """The system with an equation for each inequality that none of its points satisfies strictly.

    The elements count as variables: what equates an element to another, or to a point, is an equation all the same.

    rewrites   e >= 0, where e <= 0 follows   ->   e == 0
    """
    inequalities = reduced(system.inequalities)
    unknown = set(system.variables)
    candidates = [e for e in inequalities if sum(s in unknown for s in e) > 1]  # of one alone they are its range
    if not 0 < len(candidates) <= MOST:
        return system
    place = dict(grid.place)
    everything = (*system.inequalities, *system.equations, *(-e for e in system.equations))
    known = [e.substituted(place) for e in everything]
    inside = facts.extended({**dict(system.ranges), **grid.ranges()}, known)
    found = [e for e in candidates if inside.proves(-e.substituted(place))]
    if not found:
        return system
    return replace(
        system,
        equations=_independent([*system.equations, *found]),
        inequalities=tuple(e for e in inequalities if e not in found),
    )


def _independent(equations: Sequence[Linear]) -> tuple[Linear, ...]:
    """The equations without those that follow from others."""
    kept: list[Linear] = []
    for e in equations:
        nowhere: dict[Symbol, tuple[Linear | None, Linear | None]] = {s: (None, None) for f in (*kept, e) for s in f}
        known = KnownInequalities(nowhere, [g for f in kept for g in (f, -f)])
        if not known.proves(e) or not known.proves(-e):
            kept.append(e)
    return tuple(kept)
