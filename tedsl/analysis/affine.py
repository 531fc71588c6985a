"""Integer expressions as polynomials over axes, sizes and the quotients and remainders of such polynomials.

Almost every index is linear in its axes; products stay terms of their own, so that `i*m + j` with a symbolic m is a
form too. What is no polynomial (a read, a minimum, a division by a size) is refused, or stands in the form as an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tedsl.lang.dtypes import INT32, INT64, integer_bounds
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.traverse import topological

__all__ = ["Affine", "Monomial", "affine_of", "form_of", "with_plain_indices"]

Monomial = tuple[Expr, ...]  # atoms, in a fixed order; () is the constant's
Predicate = Callable[[Expr], bool]


@dataclass(frozen=True, eq=False)
class Affine:
    """`constant` plus the sum of `factor * monomial`; an atom is an axis, a size or a whole subexpression."""

    terms: Mapping[Monomial, int]
    constant: int = 0

    def __add__(self, other: Affine | int) -> Affine:
        return self._plus(other, 1)

    def __sub__(self, other: Affine | int) -> Affine:
        return self._plus(other, -1)

    def __neg__(self) -> Affine:
        return self * -1

    def _plus(self, other: Affine | int, sign: int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + sign * other)
        total = dict(self.terms)
        for monomial, factor in other.terms.items():
            total[monomial] = total.get(monomial, 0) + sign * factor
        return Affine({m: c for m, c in total.items() if c}, self.constant + sign * other.constant)

    def __mul__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine({m: c * other for m, c in self.terms.items()} if other else {}, self.constant * other)
        total: dict[Monomial, int] = {}
        for m, c in (*self.terms.items(), ((), self.constant)):
            for k, d in (*other.terms.items(), ((), other.constant)):
                key = tuple(sorted(m + k, key=_rank))
                total[key] = total.get(key, 0) + c * d
        constant = total.pop((), 0)
        return Affine({m: c for m, c in total.items() if c}, constant)

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

    def coefficient(self, axis: Axis) -> Affine | None:
        """What the axis is multiplied by, or None where the form is not linear in it."""
        found: dict[Monomial, int] = {}
        for monomial, factor in self.terms.items():
            rest = tuple(a for a in monomial if a is not axis)
            if len(monomial) - len(rest) > 1:
                return None
            if len(rest) < len(monomial):
                found[rest] = factor
            elif any(axis in set(topological(a)) for a in monomial if isinstance(a, Apply)):
                return None
        constant = found.pop((), 0)
        return Affine(found, constant)

    def without(self, axis: Axis) -> Affine:
        """The terms in which the axis is no factor."""
        kept = {m: c for m, c in self.terms.items() if all(a is not axis for a in m)}
        return Affine(kept, self.constant)

    def to_expr(self) -> Expr:
        """The form as an expression: positive terms first, the constant last."""
        total: Expr | None = None
        ordered = sorted(self.terms.items(), key=lambda item: item[1] < 0)
        for monomial, factor in [*ordered, ((), self.constant)]:
            if factor == 0:
                continue
            term: Expr = Const(abs(factor), INT32)
            for position, atom in enumerate(monomial):
                term = atom * term if position == len(monomial) - 1 else term * atom
            if total is None:
                total = term if factor > 0 else -term
            else:
                total = total + term if factor > 0 else total - term
        return Const(0, INT32) if total is None else total


def _rank(atom: Expr) -> tuple[str, int]:
    """An order of atoms that does not change within a process."""
    return getattr(atom, "name", ""), id(atom)


def affine_of(expr: Expr) -> Affine | None:
    """The quasi-affine form of an integer expression of axes and sizes; None where it has none (reads, min, select)."""
    return form_of(expr, lambda node: False, lambda node: True)


def with_plain_indices(node: Expr) -> Expr:
    """A read whose affine indices are in normal form; any other node as it is."""
    if not isinstance(node, Read):
        return node
    forms = [affine_of(i) for i in node.indices]
    return Read(node.tensor, tuple(i if f is None else f.to_expr() for i, f in zip(node.indices, forms, strict=True)))


def form_of(expr: Expr, opaque: Predicate, exact: Predicate) -> Affine | None:
    """The form of an expression; nodes that `opaque` accepts may stand in it as atoms.

    Sums and products agree with integers that wrap; quotients and casts only where `exact` says that nothing wrapped.
    """
    forms: dict[Expr, Affine | None] = {}
    for node in topological(expr):
        ring = not isinstance(node, Apply) or node.fn in _RULES
        form = _form(node, forms) if ring or exact(node.children[0]) else None
        forms[node] = _atom(node) if form is None and opaque(node) else form
    return forms[expr]


def _atom(node: Expr) -> Affine:
    return Affine({(node,): 1})


def _form(node: Expr, forms: Mapping[Expr, Affine | None]) -> Affine | None:
    if isinstance(node, Const):
        return Affine({}, int(node.value)) if node.dtype.is_integer else None
    if isinstance(node, (Axis, Var)):
        return _atom(node)
    if not isinstance(node, Apply) or node.dtype not in (INT32, INT64):
        return None
    operands = [form for form in (forms[a] for a in node.args) if form is not None]
    if len(operands) < len(node.args):
        return None
    if node.fn is Fn.CAST:
        return operands[0] if _widens(node) else None
    if node.fn in (Fn.FLOORDIV, Fn.MOD):
        return _divided(node.fn, operands[0], operands[1])
    rule = _RULES.get(node.fn)
    return rule(*operands) if rule else None


_RULES: dict[Fn, Callable[..., Affine]] = {
    Fn.ADD: lambda a, b: a + b, Fn.SUB: lambda a, b: a - b, Fn.NEG: lambda a: -a, Fn.MUL: lambda a, b: a * b,
}  # fmt: skip


def _widens(node: Apply) -> bool:
    source, target = node.args[0].dtype, node.dtype
    if not source.is_integer:
        return False
    (low, high), (least, most) = integer_bounds(source), integer_bounds(target)
    return least <= low and high <= most


def _divided(fn: Fn, numerator: Affine, divisor: Affine) -> Affine | None:
    """(c*q + r) // c is q + r // c, and (c*q + r) % c is r % c, with r the terms that c does not divide."""
    by = divisor.constant
    if divisor.terms or by == 0 or abs(by) > integer_bounds(INT32)[1]:  # forms become int32 expressions again
        return None
    whole = Affine({m: c // by for m, c in numerator.terms.items() if c % by == 0}, numerator.constant // by)
    rest = Affine({m: c for m, c in numerator.terms.items() if c % by}, numerator.constant % by)
    if rest.is_constant:
        return whole if fn is Fn.FLOORDIV else Affine({}, rest.constant)
    atom = Expr._apply(fn, _canonical(rest), by)
    remainder = _atom(atom)
    return whole + remainder if fn is Fn.FLOORDIV else remainder


def _canonical(form: Affine) -> Expr:
    """The same expression for equal forms."""
    order = sorted(form.terms.items(), key=lambda item: tuple(map(_rank, item[0])))
    return Affine(dict(order), form.constant).to_expr()
