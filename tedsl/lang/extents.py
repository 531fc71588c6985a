"""Integer expressions brought to one form, so that equal extents are equal objects: n + 1 - 1 is n.

A polynomial over atoms (variables, axes, `//`, `%`, min, max of simplified operands) with integer coefficients, its
terms in an order that does not depend on how it was written.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Var, unmarked
from tedsl.lang.traverse import topological

if TYPE_CHECKING:
    from tedsl.lang.tensor import Tensor

__all__ = ["decided", "same_extent", "same_layout", "simplify_extent"]

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]
# Where an atom stands among others: the age of a variable, what an operation is made of.
Key = tuple[Any, ...]


def same_extent(a: Expr, b: Expr) -> bool:
    """Whether two extents are equal for every value of the variables (as far as the normal form shows)."""
    return a is b or simplify_extent(a) is simplify_extent(b)


def same_layout(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are of one dtype and one shape."""
    return a.dtype is b.dtype and a.ndim == b.ndim and all(map(same_extent, a.extents, b.extents))


_RELATIONS = {
    Fn.EQ: operator.eq, Fn.NE: operator.ne, Fn.LT: operator.lt, Fn.LE: operator.le, Fn.GT: operator.gt,
    Fn.GE: operator.ge,
}  # fmt: skip


def decided(condition: Expr) -> bool | None:
    """The truth of a comparison of extents that is the same for every value of the variables, as of shapes."""
    if isinstance(condition, Const) and condition.dtype.is_bool:
        return bool(condition.value)
    if not isinstance(condition, Apply) or condition.fn not in _RELATIONS or condition.args[0].dtype is not INT32:
        return None
    if not all(isinstance(node, (Const, Var, Apply)) for node in topological(condition.args)):
        return None
    gap = simplify_extent(condition.args[0] - condition.args[1])
    return bool(_RELATIONS[condition.fn](gap.value, 0)) if isinstance(gap, Const) else None


Expr._decided = staticmethod(decided)


def simplify_extent(expr: Expr) -> Expr:
    """The normal form of an int32 expression."""
    expr = unmarked(expr)
    if isinstance(expr, (Const, Var, Axis)):
        return expr
    forms: dict[Expr, Polynomial] = {}
    keys: dict[Expr, Key] = {}
    for node in topological(expr):
        forms[node] = _polynomial(node, forms, keys)
    return _expression(forms[expr], keys)


def _polynomial(node: Expr, forms: dict[Expr, Polynomial], keys: dict[Expr, Key]) -> Polynomial:
    if isinstance(node, Const):
        return {(): int(node.value)} if node.value else {}
    if isinstance(node, (Var, Axis)):
        return _atom(node, (0, node.serial), keys)
    if not isinstance(node, Apply) or node.fn is Fn.CAST:
        return _atom(node, (2, id(node)), keys)
    operands = [forms[a] for a in node.args]
    if node.fn is Fn.ADD:
        return _sum(operands[0], operands[1], 1)
    if node.fn is Fn.SUB:
        return _sum(operands[0], operands[1], -1)
    if node.fn is Fn.NEG:
        return _sum({}, operands[0], -1)
    if node.fn is Fn.MUL:
        return _product(operands[0], operands[1], keys)
    if node.fn in (Fn.FLOORDIV, Fn.MOD):
        return _divided(node.fn, operands[0], operands[1], keys)
    return _applied(node.fn, [_operand(a, forms, keys) for a in node.args], operands, keys)


def _operand(arg: Expr, forms: dict[Expr, Polynomial], keys: dict[Expr, Key]) -> Expr:
    return arg if arg.dtype.is_bool else _expression(forms[arg], keys)


def _applied(fn: Fn, args: list[Expr], operands: list[Polynomial], keys: dict[Expr, Key]) -> Polynomial:
    """An operation that stays: an atom made of its simplified operands."""
    if fn in (Fn.MINIMUM, Fn.MAXIMUM) and args[0] is args[1]:
        return operands[0]
    made = Expr._apply(fn, *args)
    if isinstance(made, Const):
        return {(): int(made.value)} if made.value else {}
    return _atom(made, (1, fn.value, *(_polynomial_key(p, keys) for p in operands)), keys)


def _polynomial_key(form: Polynomial, keys: dict[Expr, Key]) -> Key:
    return tuple((_monomial_key(m, keys), c) for m, c in _ordered(form, keys))


def _monomial_key(monomial: Monomial, keys: dict[Expr, Key]) -> Key:
    return tuple(keys[a] for a in monomial)


def _ordered(form: Polynomial, keys: dict[Expr, Key]) -> list[tuple[Monomial, int]]:
    """Positive terms first, the constant last, otherwise by the age of the variables."""
    if len(form) < 2:
        return list(form.items())
    return sorted(form.items(), key=lambda item: (item[0] == (), item[1] < 0, _monomial_key(item[0], keys)))


def _atom(node: Expr, key: Key, keys: dict[Expr, Key]) -> Polynomial:
    keys[node] = key
    return {(node,): 1}


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for monomial, factor in b.items():
        total[monomial] = total.get(monomial, 0) + sign * factor
    return {m: c for m, c in total.items() if c}


def _product(a: Polynomial, b: Polynomial, keys: dict[Expr, Key]) -> Polynomial:
    total: Polynomial = {}
    for m, c in a.items():
        for k, d in b.items():
            key = tuple(sorted(m + k, key=keys.__getitem__))
            total[key] = total.get(key, 0) + c * d
    return {m: c for m, c in total.items() if c}


def _divided(fn: Fn, numerator: Polynomial, divisor: Polynomial, keys: dict[Expr, Key]) -> Polynomial:
    """(c*q + r) // c = q + r // c, with r the terms that c does not divide."""
    if list(divisor) != [()]:
        return _applied(fn, [_expression(numerator, keys), _expression(divisor, keys)], [numerator, divisor], keys)
    by = divisor[()]
    whole = {m: c // by for m, c in numerator.items() if c % by == 0}
    rest = {m: c for m, c in numerator.items() if c % by}
    constant = rest.get((), 0)
    if constant and constant != constant % by:
        whole[()] = whole.get((), 0) + constant // by
        rest[()] = constant % by
    if list(rest) in ([], [()]):
        return whole if fn is Fn.FLOORDIV else rest
    remainder = _applied(fn, [_expression(rest, keys), Const(by, INT32)], [rest, divisor], keys)
    return _sum(whole, remainder, 1) if fn is Fn.FLOORDIV else remainder


def _expression(form: Polynomial, keys: dict[Expr, Key]) -> Expr:
    total: Expr | None = None
    for monomial, factor in _ordered(form, keys):
        term = _term(monomial, abs(factor))
        if total is None:
            total = term if factor > 0 else Expr._apply(Fn.NEG, term)
        else:
            total = total + term if factor > 0 else total - term
    return Const(0, INT32) if total is None else total


def _term(monomial: Monomial, factor: int) -> Expr:
    if not monomial:
        return Const(factor, INT32)
    term = monomial[0]
    for atom in monomial[1:]:
        term = term * atom
    return term * factor if factor != 1 else term
