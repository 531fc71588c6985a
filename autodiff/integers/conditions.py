"""Conditions on integer points: affine comparisons, their connectives, and what cannot be looked into.

A comparison is stored as `form >= 0` or `form == 0`, which is all that integer arithmetic needs: `a < b` is
`b - a - 1 >= 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from autodiff.integers.linear import Atom, Environment, Linear, symbol
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr

__all__ = ["AllOf", "AnyOf", "Choice", "Condition", "NonNegative", "Not", "Opaque", "OpaqueIndex", "Zero", "holds"]


@dataclass(frozen=True)
class NonNegative:
    """form >= 0."""

    form: Linear

    def __str__(self) -> str:
        return f"{self.form} >= 0"


@dataclass(frozen=True)
class Zero:
    """form == 0."""

    form: Linear

    def __str__(self) -> str:
        return f"{self.form} == 0"


@dataclass(frozen=True)
class AllOf:
    """Every one holds; all of none is true."""

    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return "(" + " and ".join(map(str, self.conditions)) + ")"


@dataclass(frozen=True)
class AnyOf:
    """At least one holds; any of none is false."""

    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return "(" + " or ".join(map(str, self.conditions)) + ")"


@dataclass(frozen=True)
class Not:
    condition: Condition

    def __str__(self) -> str:
        return f"not {self.condition}"


class _Named:
    """What is known by its key. Keys may be expressions, which `==` would join to a condition: those are one object."""

    key: Hashable

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = self.key, other.key
        return mine is theirs or not (isinstance(mine, Expr) or isinstance(theirs, Expr) or mine != theirs)

    def __hash__(self) -> int:
        return hash((type(self), self.key))


@dataclass(frozen=True, eq=False)
class Opaque(_Named):
    """A condition known to the caller only, who evaluates it at the solution."""

    key: Hashable

    def __str__(self) -> str:
        return f"{self.key}"


Condition = NonNegative | Zero | AllOf | AnyOf | Not | Opaque


@dataclass(frozen=True, eq=False)
class OpaqueIndex(_Named):
    """An index nothing is known of, such as a value read from a tensor: its row stays a scatter."""

    key: Hashable

    def __str__(self) -> str:
        return f"<{self.key}>"


@dataclass(frozen=True)
class Choice(Atom):
    """`a` where the condition holds, else `b`."""

    condition: Condition
    a: Linear
    b: Linear

    def parts(self) -> tuple[Linear, ...]:
        return (*forms(self.condition), self.a, self.b)

    def rebuilt(self, rule: Callable[[Linear], Linear]) -> Linear:
        return symbol(Choice(mapped(self.condition, rule), rule(self.a), rule(self.b)))

    def evaluate(self, values: Environment) -> int:
        return (self.a if holds(self.condition, values) else self.b).evaluate(values)

    def __str__(self) -> str:
        return f"({self.a} if {self.condition} else {self.b})"


def forms(c: Condition) -> Iterator[Linear]:
    """Every linear form in the condition."""
    if isinstance(c, NonNegative | Zero):
        yield c.form
    elif isinstance(c, AllOf | AnyOf):
        for inner in c.conditions:
            yield from forms(inner)
    elif isinstance(c, Not):
        yield from forms(c.condition)


def has_opaque(c: Condition) -> bool:
    if isinstance(c, AllOf | AnyOf):
        return any(has_opaque(inner) for inner in c.conditions)
    return has_opaque(c.condition) if isinstance(c, Not) else isinstance(c, Opaque)


def mapped(c: Condition, rule: Callable[[Linear], Linear]) -> Condition:
    """The condition with `rule` applied to its forms."""
    match c:
        case NonNegative(form):
            return NonNegative(rule(form))
        case Zero(form):
            return Zero(rule(form))
        case AllOf(inner):
            return AllOf(tuple(mapped(i, rule) for i in inner))
        case AnyOf(inner):
            return AnyOf(tuple(mapped(i, rule) for i in inner))
        case Not(inner_condition):
            return Not(mapped(inner_condition, rule))
        case Opaque():
            return c


def substituted(c: Condition, values: Mapping[Any, Linear]) -> Condition:
    """The condition with symbols replaced in its forms.

    >>> from autodiff.integers.linear import symbol
    >>> print(substituted(Zero(symbol("x") - 2), {"x": 2 * symbol("q")}))
    2*q - 2 == 0
    """
    return mapped(c, lambda e: e.substituted(values))


def holds(c: Condition, values: Environment, opaque: Callable[[Hashable], bool] | None = None) -> bool:
    """The truth of the condition at a point; `opaque` answers for the keys of `Opaque`."""
    match c:
        case NonNegative(form):
            return form.evaluate(values) >= 0
        case Zero(form):
            return form.evaluate(values) == 0
        case AllOf(inner):
            return all(holds(i, values, opaque) for i in inner)
        case AnyOf(inner):
            return any(holds(i, values, opaque) for i in inner)
        case Not(inner_condition):
            return not holds(inner_condition, values, opaque)
        case Opaque(key):
            if opaque is None:
                raise TypeError(f"condition {key!r} is opaque: pass `opaque` to evaluate it")
            return opaque(key)


def negated(c: Condition) -> Condition:
    """The opposite, with `Not` pushed down to the leaves; a negated equality becomes two inequalities.

    >>> from autodiff.integers.linear import symbol
    >>> print(negated(NonNegative(symbol("x"))))
    -x - 1 >= 0
    """
    match c:
        case NonNegative(form):
            return NonNegative(-form - 1)
        case Zero(form):
            return AnyOf((NonNegative(form - 1), NonNegative(-form - 1)))
        case AllOf(inner):
            return AnyOf(tuple(map(negated, inner)))
        case AnyOf(inner):
            return AllOf(tuple(map(negated, inner)))
        case Not(inner_condition):
            return normal(inner_condition)
        case Opaque():
            return Not(c)


def normal(c: Condition) -> Condition:
    """`Not` only over opaque leaves."""
    match c:
        case AllOf(inner):
            return AllOf(tuple(map(normal, inner)))
        case AnyOf(inner):
            return AnyOf(tuple(map(normal, inner)))
        case Not(inner_condition):
            return negated(inner_condition)
    return c


def conjuncts(c: Condition) -> Iterator[Condition]:
    """The conditions that must all hold."""
    if isinstance(c, AllOf):
        for inner in c.conditions:
            yield from conjuncts(inner)
    else:
        yield c
