"""From an index as written to systems of linear equations: one system per case.

`min`, `max` and `select` in an index cut the domain into disjoint cases, in each of which the index is affine; `//` by
a constant becomes an integer unknown d between two inequalities, 0 <= e - c d < c. What remains is linear algebra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import TypeVar

from autodiff.integers.budget import Budget, TooHard
from autodiff.integers.conditions import (
    AllOf,
    AnyOf,
    Choice,
    Condition,
    NonNegative,
    Not,
    Opaque,
    Zero,
    conjuncts,
    forms,
    mapped,
    negated,
    normal,
)
from autodiff.integers.linear import Atom, Greatest, Least, Linear, Numbered, Quotient, Symbol, linear, symbol
from autodiff.integers.polyhedra import KnownInequalities
from tedsl.lang.dataclass import dataclass

__all__ = ["Auxiliary", "System", "cases", "disjoint", "pinned"]

MAX_CASES = 48
T = TypeVar("T")
Piecewise = Least | Greatest | Choice


class Auxiliary(Numbered):
    """The value of a quotient, as an unknown."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"d{self.position}"


@dataclass(frozen=True)
class System:
    """Integer points: `variables` with equations == 0 and inequalities >= 0; `residual` is checked at the solution.

    `ranges` repeats what is known of each variable alone, for quick bounds; the inequalities say it too.
    """

    variables: tuple[Symbol, ...]
    originals: int
    equations: tuple[Linear, ...]
    inequalities: tuple[Linear, ...]
    residual: tuple[Condition, ...]
    ranges: tuple[tuple[Symbol, tuple[Linear | None, Linear | None]], ...]

    def facts(self, budget: Budget | None = None) -> KnownInequalities:
        return KnownInequalities(
            dict(self.ranges), (e for e in self.inequalities if not any(True for _ in e.atoms())), budget
        )

    def forms(self) -> Iterator[Linear]:
        yield from self.equations
        yield from self.inequalities

    def rewritten(self, old: Symbol, new: Linear) -> System:
        """An atom or variable replaced wherever it stands."""

        def rule(e: Linear) -> Linear:
            return e.mapped(lambda s: new if s == old else None)

        return replace(
            self,
            equations=tuple(map(rule, self.equations)),
            inequalities=tuple(map(rule, self.inequalities)),
            residual=tuple(mapped(c, rule) for c in self.residual),
        )

    def with_conditions(self, conditions: Iterable[Condition]) -> System:
        """Conditions joined: affine ones to the system, the others to the residual."""
        equations, inequalities, residual = list(self.equations), list(self.inequalities), list(self.residual)
        for outer in conditions:
            for c in conjuncts(normal(outer)):
                if isinstance(c, NonNegative):
                    inequalities.append(c.form)
                elif isinstance(c, Zero):
                    equations.append(c.form)
                else:
                    residual.append(c)
        return replace(self, equations=tuple(equations), inequalities=tuple(inequalities), residual=tuple(residual))


def disjoint(c: Condition) -> list[tuple[Condition, ...]]:
    """Conjunctions, no two true together, of which one holds exactly where c does."""
    match c:
        case AllOf(inner):
            return [sum(choice, ()) for choice in _capped(product(*map(disjoint, inner)))]
        case AnyOf(inner):
            found: list[tuple[Condition, ...]] = []
            earlier: tuple[Condition, ...] = ()
            for i in inner:
                found += disjoint(AllOf((*earlier, i)))
                earlier = (*earlier, negated(i))
            return _capped(found)
        case Not(inner_condition) if not isinstance(inner_condition, Opaque):
            return disjoint(negated(inner_condition))
    return [(c,)]


def _capped(items: Iterable[T]) -> list[T]:
    kept: list[T] = []
    for item in items:
        kept.append(item)
        if len(kept) > MAX_CASES:
            raise TooHard(f"the index falls into more than {MAX_CASES} cases")
    return kept


def cases(system: System, budget: Budget, split_alternatives: bool = False) -> list[System]:
    """The system cut until every form is linear; impossible cases are left out.

    A residual `or` stays a guard unless `split_alternatives`.
    """
    queue, done = [system], list[System]()
    while queue:
        if len(queue) + len(done) > MAX_CASES:
            raise TooHard(f"the index falls into more than {MAX_CASES} cases")
        current = queue.pop(0)
        parts = _cut(current)
        if parts is None and split_alternatives:
            parts = _cut_alternative(current)
        if parts is None:
            done.append(_without_quotients(_residual_settled(current)))
        else:
            queue[:0] = [p for p in parts if not _impossible(p, budget)]
    return done


def _impossible(system: System, budget: Budget) -> bool:
    return system.facts(budget).refuted()


def _piecewise(e: Linear) -> Iterator[Piecewise]:
    return (a for a in e.atoms() if isinstance(a, Piecewise))


def _cut(system: System) -> list[System] | None:
    """Both branches of the first min, max or select of an equation, innermost first; None when there is none."""
    atom = next((a for e in system.equations for a in _piecewise(e)), None)
    if atom is None:
        return None
    if isinstance(atom, Choice):
        condition = normal(atom.condition)
        return [
            system.rewritten(atom, value).with_conditions(conjunction)
            for truth, value in ((condition, atom.a), (negated(condition), atom.b))
            for conjunction in disjoint(truth)
        ]
    small, large = (atom.a, atom.b) if isinstance(atom, Least) else (atom.b, atom.a)
    first, second = NonNegative(large - small), NonNegative(small - large - 1)
    return [
        system.rewritten(atom, atom.a).with_conditions([first]),
        system.rewritten(atom, atom.b).with_conditions([second]),
    ]


def _cut_alternative(system: System) -> list[System] | None:
    """The first residual `or` made disjoint cases."""
    for i, c in enumerate(system.residual):
        if isinstance(c, AnyOf) and not any(True for e in forms(c) for _ in _piecewise(e)):
            rest = replace(system, residual=system.residual[:i] + system.residual[i + 1 :])
            return [rest.with_conditions(conjunction) for conjunction in disjoint(c)]
    return None


def _residual_settled(system: System) -> System:
    """Inequalities that still hold a min, max or select are only checked, not used."""
    linear_ones = tuple(e for e in system.inequalities if not any(True for _ in _piecewise(e)))
    others = tuple(NonNegative(e) for e in system.inequalities if any(True for _ in _piecewise(e)))
    return replace(system, inequalities=linear_ones, residual=system.residual + others)


def _without_quotients(system: System) -> System:
    """Each quotient of variables an unknown of its own, unless its value is the same everywhere."""
    while True:
        q = next((a for e in system.forms() for a in e.atoms() if _of_variables(a, system)), None)
        if q is None:
            return system
        assert isinstance(q, Quotient)
        low, high = system.facts().interval(q.numerator)
        least = None if low is None else low // q.divisor
        most = None if high is None else high // q.divisor
        if least is not None and least == most:
            system = system.rewritten(q, linear(least))
            continue
        d = Auxiliary(len(system.variables))
        remainder = q.numerator - symbol(d) * q.divisor
        bounds = (None if least is None else linear(least), None if most is None else linear(most))
        system = replace(
            system.rewritten(q, symbol(d)),
            variables=(*system.variables, d),
            ranges=(*system.ranges, (d, bounds)),
        )
        system = system.with_conditions([NonNegative(remainder), NonNegative((q.divisor - 1) - remainder)])


def _of_variables(a: Atom, system: System) -> bool:
    return isinstance(a, Quotient) and any(s in system.variables for s in a.numerator.leaves())


def pinned(system: System, budget: Budget, most: int = 3) -> list[System] | None:
    """One system per value of a quotient that takes but a few, so that no remainder is left; None without such."""
    found: list[System] = [system]
    for v, (low, high) in system.ranges:
        if not isinstance(v, Auxiliary) or low is None or high is None or high.constant - low.constant >= most:
            continue
        found = [
            replace(s.rewritten(v, linear(value)), variables=tuple(w for w in s.variables if w != v))
            for s in found
            for value in range(low.constant, high.constant + 1)
        ]
    found = [s for s in found if not _impossible(s, budget)]
    return found if len(found) != 1 or found[0] is not system else None
