"""Integer expressions brought to one form, so that equal extents are equal objects: n + 1 - 1 is n.

A polynomial over atoms (variables, axes, `//`, `%`, min, max of simplified operands), its terms in an order that does
not depend on how it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Var, unmarked
from tedsl.lang.intervals import verdict
from tedsl.lang.operators import NEGATED
from tedsl.lang.polynomials import Affine, Monomial, age, atom_form, form_over
from tedsl.lang.traverse import topological

if TYPE_CHECKING:
    from tedsl.lang.tensor import Tensor

__all__ = ["decided", "number", "same_extent", "same_layout", "same_shape", "simplify_extent", "two_of_a_name"]


def number(expr: Expr | None) -> int | None:
    """The value of an extent that is known."""
    return int(expr.value) if isinstance(expr, Const) else None


def same_extent(a: Expr, b: Expr) -> bool:
    """Whether two extents are equal for every value of the variables (as far as the normal form shows)."""
    return a is b or simplify_extent(a) is simplify_extent(b)


def two_of_a_name(*extents: Expr) -> str:
    """For messages about extents that differ: a note on two variables that are written alike, or nothing."""
    known: dict[str, Expr] = {}
    for node in topological(extents):
        if isinstance(node, Var) and known.setdefault(node.name, node) is not node:
            return f"; these are two sizes called {node.name}: each te.var makes a new one, so make one for both"
    return ""


def same_layout(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are of one dtype and one shape."""
    return a.dtype is b.dtype and same_shape(a, b)


def same_shape(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are of one shape."""
    return a.ndim == b.ndim and all(map(same_extent, a.extents, b.extents))


def decided(condition: Expr) -> bool | None:
    """The truth of a comparison of extents that is the same for every value of the variables, as of shapes."""
    if isinstance(condition, Const) and condition.dtype.is_bool:
        return bool(condition.value)
    if not isinstance(condition, Apply) or condition.fn not in NEGATED or condition.args[0].dtype is not INT32:
        return None
    if not all(isinstance(node, (Const, Var, Apply)) for node in topological(condition.args)):
        return None
    gap = simplify_extent(condition.args[0] - condition.args[1])
    value = number(gap)
    return None if value is None else verdict(condition.fn, (value, value))


Expr._decided = staticmethod(decided)


def simplify_extent(expr: Expr) -> Expr:
    """The normal form of an int32 expression."""
    expr = unmarked(expr)
    if isinstance(expr, (Const, Var, Axis)):
        return expr
    form = form_over(expr, _operation)
    assert form is not None
    return _written(form)


Forms = Mapping[Expr, Affine | None]


def _operation(node: Expr, forms: Forms) -> Affine:
    """An operation that is no sum or product: of operands in normal form."""
    if isinstance(node, Const) and node.dtype.is_bool:
        return Affine({}, int(node.value))
    if not isinstance(node, Apply) or node.fn is Fn.CAST:
        return atom_form(node)
    divisor = forms[node.args[-1]]
    if node.fn in (Fn.FLOORDIV, Fn.MOD) and divisor is not None and divisor.is_constant and divisor.constant:
        return _divided(node, forms, divisor.constant)
    args = [_operand(a, forms) for a in node.args]
    if node.fn in (Fn.MINIMUM, Fn.MAXIMUM) and args[0] is args[1]:
        return forms[node.args[0]] or atom_form(args[0])
    return _applied(node.fn, args)


def _operand(arg: Expr, forms: Forms) -> Expr:
    form = forms[arg]
    return arg if form is None or arg.dtype.is_bool else _written(form)


def _divided(node: Apply, forms: Forms, by: int) -> Affine:
    numerator = forms[node.args[0]]
    assert numerator is not None
    whole, rest = numerator.divided(by)
    if rest.is_constant:
        return whole if node.fn is Fn.FLOORDIV else rest
    remainder = _applied(node.fn, [_written(rest), Const(by, INT32)])
    return whole + remainder if node.fn is Fn.FLOORDIV else remainder


def _applied(fn: Fn, args: list[Expr]) -> Affine:
    made = Expr._apply(fn, *args)
    return Affine({}, int(made.value)) if isinstance(made, Const) else atom_form(made)


def _written(form: Affine) -> Expr:
    """Positive terms first, the constant last, otherwise by the age of the variables."""
    if any(len(m) > 1 for m in form.terms):
        terms = {tuple(sorted(m, key=age)): c for m, c in form.terms.items()}
        form = Affine(terms, form.constant)
    return form.sorted_by(_age).to_expr()


def _age(monomial: Monomial) -> tuple[Any, ...]:
    return tuple(map(age, monomial))
