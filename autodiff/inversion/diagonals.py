"""A gather on the diagonal that its own guards name: P[q] with fewer axes, read back where the elements lie on it.

The adjoint of a Jacobian's first stage is such a one: an element of the result depends on what stands at its own place,
`p == s`. Over all pairs (p, s) it would be mostly zeros, which whatever comes next would sum.
"""

from __future__ import annotations

from dataclasses import replace

from autodiff.integers.conditions import Condition, Zero, mapped
from autodiff.integers.linear import Linear, Quotient, Symbol, linear, symbol
from autodiff.integers.polyhedra import KnownInequalities
from autodiff.inversion.domains import Gather, GatheredAxis

__all__ = ["on_diagonal"]


def on_diagonal(g: Gather) -> Gather:
    """The gather without the axes that equations among its guards determine; the same object where there are none.

    rewrites   P[q0, q1] if q1 == q0, read at (s0, s1)   ->   P[q0], read at s0 where s1 == s0
    """
    while (tie := _tie(g)) is not None:
        g = _tied(g, *tie)
    return g


def _tie(g: Gather) -> tuple[GatheredAxis, Linear] | None:
    """An axis, and what the guards say it is in terms of others: always a position that there is."""
    facts = KnownInequalities({a: (linear(0), n - 1) for a, n in g.axes})
    for guard in g.guards:
        if not isinstance(guard, Zero) or not _is_over_axes(guard.form, g):
            continue
        for axis, extent in g.axes:
            c = guard.form[axis]
            value = (guard.form - symbol(axis) * c) * -c
            if abs(c) == 1 and facts.proves(value) and facts.proves(extent - 1 - value):
                return axis, value
    return None


def _is_over_axes(e: Linear, g: Gather) -> bool:
    loops = {t for t, _ in g.loops}
    return not any(isinstance(s, Quotient) or s in loops for s in e)


def _tied(g: Gather, axis: GatheredAxis, value: Linear) -> Gather:
    where: dict[Symbol, Linear] = {a: e for (a, _), e in zip(g.axes, g.index, strict=True)}
    there = {axis: value}

    def moved(c: Condition) -> Condition:
        return mapped(c, lambda e: e.substituted(there))

    return replace(
        g,
        axes=tuple((a, n) for a, n in g.axes if a != axis),
        index=tuple(e for (a, _), e in zip(g.axes, g.index, strict=True) if a != axis),
        place=tuple((s, e.substituted(there)) for s, e in g.place),
        member=(*g.member, Zero((symbol(axis) - value).substituted(where))),
        solution=tuple(e.substituted(there) for e in g.solution),
        guards=tuple(c for c in map(moved, g.guards) if c != Zero(linear(0))),
    )
