"""Integer forms: polynomials with integer coefficients over atoms, and their algebra.

An atom is an axis, a size, or a whole subexpression that is no sum or product (a quotient, a minimum, a read). Almost
every form is linear in its axes; products stay terms of their own, so that `i*m + j` with a symbolic m is a form too.
Coefficients do not wrap: whoever reads an expression as a form knows why its value does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.intervals import INT32_MAX, Known, Range, product, range_of
from tedsl.lang.traverse import topological

__all__ = ["RING", "Affine", "Leaf", "Monomial", "age", "atom_form", "extreme", "form_over", "interval"]

Monomial = tuple[Expr, ...]  # atoms, in a fixed order; () is the constant's


@dataclass(
    eq=False, slots=True
)  # not frozen, which would double the time in which a form is made; none is ever changed
class Affine:
    """`constant` plus the sum of `factor * monomial`."""

    terms: Mapping[Monomial, int]
    constant: int = 0

    def __add__(self, other: Affine | int) -> Affine:
        return self.plus(other, 1)

    def __sub__(self, other: Affine | int) -> Affine:
        return self.plus(other, -1)

    def __neg__(self) -> Affine:
        return self * -1

    def plus(self, other: Affine | int, times: int) -> Affine:
        """The form and `times` the other."""
        if isinstance(other, int):
            return Affine(self.terms, self.constant + times * other)
        total = dict(self.terms)
        for monomial, factor in other.terms.items():
            if found := total.get(monomial, 0) + times * factor:
                total[monomial] = found
            else:
                total.pop(monomial, None)
        return Affine(total, self.constant + times * other.constant)

    def __mul__(self, other: Affine | int) -> Affine:
        if isinstance(other, Affine) and other.is_constant:
            other = other.constant
        if isinstance(other, int):
            return Affine({m: c * other for m, c in self.terms.items()} if other else {}, self.constant * other)
        total: dict[Monomial, int] = {}
        for m, c in (*self.terms.items(), ((), self.constant)):
            for k, d in (*other.terms.items(), ((), other.constant)):
                key = tuple(sorted(m + k, key=_rank)) if m and k else m or k
                total[key] = total.get(key, 0) + c * d
        constant = total.pop((), 0)
        return Affine({m: c for m, c in total.items() if c}, constant)

    def divided(self, by: int) -> tuple[Affine, Affine]:
        """(q, r) with self = by*q + r, all that `by` divides in q: x // by is q + r // by, and x % by is r % by."""
        whole = Affine({m: c // by for m, c in self.terms.items() if c % by == 0}, self.constant // by)
        return whole, Affine({m: c for m, c in self.terms.items() if c % by}, self.constant % by)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def key(self) -> tuple[frozenset[tuple[Monomial, int]], int]:
        """Equal for equal forms."""
        return frozenset(self.terms.items()), self.constant

    @property
    def atoms(self) -> list[Expr]:
        """Every atom, once, in order."""
        return list(dict.fromkeys(atom for monomial in self.terms for atom in monomial))

    @property
    def axes(self) -> list[Axis]:
        """The axes that stand in the form as atoms (not those inside a quotient)."""
        return [atom for atom in self.atoms if isinstance(atom, Axis)]

    @property
    def is_linear(self) -> bool:
        """Whether every term is a number times one axis or one size, or the constant."""
        return all(len(m) == 1 and isinstance(m[0], (Axis, Var)) for m in self.terms)

    @property
    def is_large(self) -> bool:
        """Whether a coefficient is no int32, so that the form is not to be written as an expression."""
        return any(abs(c) > INT32_MAX for c in (*self.terms.values(), self.constant))

    def factor(self, atom: Expr) -> Affine | None:
        """What an atom is multiplied by, or None where it meets itself."""
        found: dict[Monomial, int] = {}
        for monomial, c in self.terms.items():
            rest = tuple(a for a in monomial if a is not atom)
            if len(monomial) - len(rest) > 1:
                return None
            if len(rest) < len(monomial):
                found[rest] = c
        constant = found.pop((), 0)
        return Affine(found, constant)

    def coefficient(self, axis: Axis) -> Affine | None:
        """What the axis is multiplied by, or None where the form is not linear in it: also inside other atoms."""
        others = (a for a in self.without(axis).atoms if isinstance(a, Apply))
        return None if any(axis in set(topological(a)) for a in others) else self.factor(axis)

    def without(self, atom: Expr) -> Affine:
        """The terms in which the atom is no factor."""
        return Affine({m: c for m, c in self.terms.items() if all(a is not atom for a in m)}, self.constant)

    def split(self, varies: Callable[[Expr], bool]) -> tuple[Affine, Affine]:
        """The terms with an atom that varies, and the rest."""
        plane = {m: c for m, c in self.terms.items() if any(map(varies, m))}
        return Affine(plane), Affine({m: c for m, c in self.terms.items() if m not in plane}, self.constant)

    def sorted_by(self, key: Callable[[Monomial], Any]) -> Affine:
        """The same form, its terms in this order."""
        if len(self.terms) < 2:
            return self
        return Affine(dict(sorted(self.terms.items(), key=lambda item: key(item[0]))), self.constant)

    def canonical(self) -> Affine:
        """The same form for equal ones, its terms in an order of their own."""
        return self.sorted_by(lambda m: tuple(map(_rank, m)))

    def to_expr(self) -> Expr:
        """The form as an expression: positive terms first, the constant last; numbers beyond int32 wrap as it does."""
        total: Expr | None = None
        number = [((), self.constant)] if self.constant else []
        for monomial, factor in [*sorted(self.terms.items(), key=lambda item: item[1] < 0), *number]:
            term = _term(monomial, abs(factor))
            if total is None:
                total = term if factor > 0 else -term
            else:
                total = total + term if factor > 0 else total - term
        return Const(0, INT32) if total is None else total


def _term(monomial: Monomial, factor: int) -> Expr:
    wrapped = factor if factor <= INT32_MAX else (factor + INT32_MAX + 1) % (1 << 32) - INT32_MAX - 1
    if not monomial:
        return Const(wrapped, INT32)
    term = monomial[0]
    for atom in monomial[1:]:
        term = term * atom
    if factor == 1:
        return term
    return term * (Const(factor, INT64) if term.dtype is INT64 else Const(wrapped, INT32))


def _rank(atom: Expr) -> tuple[Any, ...]:
    """An order of atoms: by name where they have one, then by age."""
    return getattr(atom, "name", ""), age(atom)


def age(atom: Expr) -> tuple[Any, ...]:
    """A key of an expression: symbols in the order in which they were made, then operations by what they are made of.

    It depends on the program only, so that texts, and what is kept on disk under them, are the same in every process.
    """
    if isinstance(atom, (Axis, Var)):
        return ((0, atom.serial),)
    found: list[tuple[Any, ...]] = []
    places: dict[Expr, int] = {}
    stack = [atom]
    while stack:
        node = stack.pop()
        if node in places:
            found.append((5, places[node]))
            continue
        places[node] = len(places)
        found.append(_label(node))
        stack.extend(reversed(node.children))
    return (*found, (6, id(atom)))


def _label(node: Expr) -> tuple[Any, ...]:
    if isinstance(node, (Axis, Var)):
        return 0, node.serial
    if isinstance(node, Apply):
        return 1, node.fn.value, str(node.dtype)
    if isinstance(node, Const):
        return 2, str(node.dtype), str(node.value)
    return (3, str(node.tensor.name)) if isinstance(node, Read) else (4, type(node).__name__)


def interval(form: Affine, known: Known) -> Range:
    """The least and greatest value of a form, its atoms taken as independent."""
    low = high = form.constant
    for monomial, factor in form.terms.items():
        ends = factor, factor
        for atom in monomial:
            ends = product(ends, range_of(atom, known))
        low, high = low + min(ends), high + max(ends)
    return low, high


def extreme(fn: Fn, a: Affine, b: Affine, known: Known) -> Affine | None:
    """The minimum or the maximum of two forms, where it is the same one everywhere."""
    low, high = interval(a - b, known)
    if low < 0 < high:
        return None
    return a if (high <= 0) == (fn is Fn.MINIMUM) else b


RING: Mapping[Fn, Callable[..., Affine]] = {
    Fn.ADD: lambda a, b: a + b, Fn.SUB: lambda a, b: a - b, Fn.NEG: lambda a: -a, Fn.MUL: lambda a, b: a * b,
}  # fmt: skip

# What else a node is, given the forms of the nodes below it.
Leaf = Callable[[Expr, Mapping[Expr, Affine | None]], Affine | None]


def form_over(expr: Expr, leaf: Leaf) -> Affine | None:
    """An expression as a form: sums and products are those of forms, `leaf` says what all other operations are."""
    forms: dict[Expr, Affine | None] = {}
    for node in topological(expr):
        forms[node] = _in_ring(node, forms) or leaf(node, forms)
    return forms[expr]


def _in_ring(node: Expr, forms: Mapping[Expr, Affine | None]) -> Affine | None:
    if isinstance(node, Apply):
        rule = RING.get(node.fn)
        if rule is None or (node.dtype is not INT32 and node.dtype is not INT64):
            return None
        operands = [forms[a] for a in node.args]
        return None if None in operands else rule(*operands)
    if isinstance(node, (Axis, Var)):
        return atom_form(node)
    return Affine({}, int(node.value)) if isinstance(node, Const) and node.dtype.is_integer else None


def atom_form(atom: Expr, constant: int = 0) -> Affine:
    """One atom, and a number."""
    return Affine({(atom,): 1}, constant)
