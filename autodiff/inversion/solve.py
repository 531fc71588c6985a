"""All integer solutions of one linear system, as loops.

Equations first: the Smith form turns F z = s into z = p(s) + N t, with divisibility conditions on s alone. Inequalities
next, as loops over t (`inversion.lattice_loops`). They also remain as guards unless they are proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from autodiff.integers.algebra import Matrix, diagonalized
from autodiff.integers.conditions import AllOf, AnyOf, Condition, NonNegative, Zero, substituted
from autodiff.integers.linear import Linear, Quotient, Symbol, floordiv, linear, mod
from autodiff.integers.polyhedra import KnownInequalities, reduced
from autodiff.inversion.cases import System
from autodiff.inversion.domains import GatherLoop
from autodiff.inversion.lattice_loops import Empty, Setting, best_nest, nominal
from tedsl.lang.dataclass import dataclass

__all__ = ["Solution", "solve"]


@dataclass(frozen=True)
class Solution:
    """The points of a system: `values` for each of its original variables, over `loops`, where `guards` hold."""

    loops: tuple[tuple[GatherLoop, Linear], ...]
    values: tuple[tuple[Symbol, Linear], ...]
    guards: tuple[Condition, ...]

    @property
    def width(self) -> int:
        return prod(nominal(w) for _, w in self.loops)


def solve(system: System, setting: Setting) -> Solution | None:
    """Every solution, once each; None when there is none."""
    try:
        return _solve(system, setting)
    except Empty:
        return None


def _solve(system: System, setting: Setting) -> Solution:
    conditions, particular, lattice = _equations(system)
    known = [e for c in conditions for e in (c.form, -c.form)]
    facts = setting.facts.extended({}, known)
    inequalities = reduced(system.inequalities)
    if any(e.is_constant for e in inequalities):
        raise Empty
    nest = best_nest(system, inequalities, particular, lattice, facts, setting)
    rest = [e.substituted(nest.values) for e in inequalities]
    unproved = _unproved(rest, nest.facts)
    # From a contradiction everything follows: that nothing is left to prove says nothing.
    if (unproved or conditions) and nest.facts.extended({}, unproved).refuted():
        raise Empty
    residual = _settled([substituted(c, nest.values) for c in system.residual], nest.facts, setting.parameters)
    values = tuple((v, nest.values[v]) for v in system.variables[: system.originals])
    return Solution(nest.loops, values, (*conditions, *map(NonNegative, unproved), *residual))


def _equations(system: System) -> tuple[list[Zero], list[Linear], Matrix]:
    """(conditions on the elements, one solution, a basis of the differences of solutions as columns)."""
    unknowns = system.variables
    inside = dict.fromkeys(unknowns, linear(0))
    matrix = [[e[v] for v in unknowns] for e in system.equations]
    right = [-e.substituted(inside) for e in system.equations]
    u, d, v = diagonalized(matrix, len(unknowns))
    conditions: list[Zero] = []
    y: list[Linear] = []
    for i, row in enumerate(u):
        e = sum((r * c for r, c in zip(right, row, strict=True)), linear(0))
        if i < len(d) and d[i]:
            conditions += _divisible(e, d[i])
            y.append(floordiv(e, d[i]))
        else:
            conditions += _vanishing(e)
    # Each condition can be met; whether all can at once is a question of its own.
    if len(conditions) > 1 and not _has_integer_point(system.equations):
        raise Empty
    particular = [sum((a * v[j][i] for i, a in enumerate(y)), linear(0)) for j in range(len(unknowns))]
    return conditions, particular, tuple(row[len(y) :] for row in v)


def _has_integer_point(equations: Sequence[Linear]) -> bool:
    """Whether the equations have a solution in integers, whatever the elements and parameters."""
    symbols = list(dict.fromkeys(s for e in equations for s in e))
    u, d, _ = diagonalized([[e[s] for s in symbols] for e in equations], len(symbols))
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
        raise Empty
    remainder = mod(e, d)
    return [] if remainder.is_constant else [Zero(remainder)]


def _vanishing(e: Linear) -> list[Zero]:
    g = e.content()
    if (e.constant % g if g else e.constant) != 0:
        raise Empty
    return [Zero(e.divided(g))] if g else []


def _settled(
    conditions: Sequence[Condition], facts: KnownInequalities, parameters: frozenset[Symbol]
) -> list[Condition]:
    """The conditions without those that always hold, and without alternatives that never do."""
    kept = [_known(c, facts, parameters) for c in conditions]
    if any(c is False for c in kept):
        raise Empty
    return [c for c in kept if not isinstance(c, bool)]


def _known(c: Condition, facts: KnownInequalities, parameters: frozenset[Symbol]) -> Condition | bool:
    """What is left of a condition: True or False where the facts decide it."""
    if isinstance(c, AllOf | AnyOf):
        deciding = isinstance(c, AnyOf)
        parts = [_known(i, facts, parameters) for i in c.conditions]
        if any(p is deciding for p in parts):
            return deciding
        left = [p for p in parts if not isinstance(p, bool)]
        return not deciding if not left else left[0] if len(left) == 1 else type(c)(tuple(left))
    if not isinstance(c, NonNegative | Zero) or not _is_ranged(c.form, facts, parameters):
        return c
    if facts.proves(-c.form - 1) or (isinstance(c, Zero) and facts.proves(c.form - 1)):
        return False
    return True if facts.proves(c.form) and (isinstance(c, NonNegative) or facts.proves(-c.form)) else c


def _is_ranged(e: Linear, facts: KnownInequalities, parameters: frozenset[Symbol]) -> bool:
    """Whether the facts speak of every symbol: of the value of a min, or of an index that is data, they do not."""
    return all(isinstance(a, Quotient) for a in e.atoms()) and all(
        s in facts.ranges or s in parameters for s in e.leaves()
    )


def _unproved(inequalities: Sequence[Linear], facts: KnownInequalities) -> list[Linear]:
    """The inequalities that do not follow, none implied by the others."""
    kept = [e for e in reduced(inequalities) if not facts.proves(e)]
    if any(e.is_constant for e in kept):
        raise Empty
    for e in reversed(kept[:]):
        others = [k for k in kept if k is not e]
        if others and facts.extended({}, others).proves(e):
            kept = others
    return kept
