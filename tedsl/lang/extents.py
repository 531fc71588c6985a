"""Integer expressions brought to one form, so that equal extents are equal objects: n + 1 - 1 is n.

A polynomial over atoms (variables, axes, `//`, `%`, min, max of simplified operands) with integer coefficients.
"""

from __future__ import annotations

from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Const, Expr, Fn
from tedsl.lang.traverse import topological

__all__ = ["same_extent", "simplify_extent"]

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]


def same_extent(a: Expr, b: Expr) -> bool:
    """Whether two extents are equal for every value of the variables (as far as the normal form shows)."""
    return a is b or simplify_extent(a) is simplify_extent(b)


def simplify_extent(expr: Expr) -> Expr:
    """The normal form of an int32 expression."""
    if isinstance(expr, Const):
        return expr
    forms: dict[Expr, Polynomial] = {}
    rank: dict[Expr, int] = {}
    for node in topological(expr):
        forms[node] = _polynomial(node, forms, rank)
    return _expression(forms[expr])


def _polynomial(node: Expr, forms: dict[Expr, Polynomial], rank: dict[Expr, int]) -> Polynomial:
    if isinstance(node, Const):
        return {(): int(node.value)} if node.value else {}
    if isinstance(node, Apply):
        operands = [forms[a] for a in node.args]
        if node.fn is Fn.ADD:
            return _sum(operands[0], operands[1], 1)
        if node.fn is Fn.SUB:
            return _sum(operands[0], operands[1], -1)
        if node.fn is Fn.NEG:
            return _sum({}, operands[0], -1)
        if node.fn is Fn.MUL:
            return _product(operands[0], operands[1], rank)
        if node.fn in (Fn.FLOORDIV, Fn.MOD):
            return _divided(node, operands[0], operands[1], rank)
        rebuilt = Expr._apply(node.fn, *map(_expression, operands)) if node.fn is not Fn.CAST else node
        if isinstance(rebuilt, Const):
            return {(): int(rebuilt.value)} if rebuilt.value else {}
        return _atom(rebuilt, rank)
    return _atom(node, rank)


def _atom(node: Expr, rank: dict[Expr, int]) -> Polynomial:
    rank.setdefault(node, len(rank))
    return {(node,): 1}


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for monomial, factor in b.items():
        total[monomial] = total.get(monomial, 0) + sign * factor
    return {m: c for m, c in total.items() if c}


def _product(a: Polynomial, b: Polynomial, rank: dict[Expr, int]) -> Polynomial:
    total: Polynomial = {}
    for m, c in a.items():
        for k, d in b.items():
            key = tuple(sorted(m + k, key=rank.__getitem__))
            total[key] = total.get(key, 0) + c * d
    return {m: c for m, c in total.items() if c}


def _divided(node: Apply, numerator: Polynomial, divisor: Polynomial, rank: dict[Expr, int]) -> Polynomial:
    """(c*q + r) // c = q + r // c, with r the terms that c does not divide."""
    if list(divisor) != [()]:
        return _atom(Expr._apply(node.fn, _expression(numerator), _expression(divisor)), rank)
    by = divisor[()]
    whole = {m: c // by for m, c in numerator.items() if c % by == 0}
    rest = {m: c for m, c in numerator.items() if c % by}
    constant = rest.get((), 0)
    if constant and constant != constant % by:
        whole[()] = whole.get((), 0) + constant // by
        rest[()] = constant % by
    if list(rest) in ([], [()]):
        tail: Polynomial = {}
        if node.fn is Fn.MOD and rest:
            tail = dict(rest)
        return whole if node.fn is Fn.FLOORDIV else tail
    remainder = _atom(Expr._apply(node.fn, _expression(rest), Const(by, INT32)), rank)
    return _sum(whole, remainder, 1) if node.fn is Fn.FLOORDIV else remainder


def _expression(form: Polynomial) -> Expr:
    """Positive terms first, the constant last."""
    total: Expr | None = None
    ordered = sorted(form.items(), key=lambda item: (item[0] == (), item[1] < 0))
    for monomial, factor in ordered:
        term: Expr = Const(abs(factor), INT32)
        if monomial:
            term = monomial[0]
            for atom in monomial[1:]:
                term = term * atom
            term = term * abs(factor)
        if total is None:
            total = term if factor > 0 else Expr._apply(Fn.NEG, term)
        else:
            total = total + term if factor > 0 else total - term
    return Const(0, INT32) if total is None else total
