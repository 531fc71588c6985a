"""Integer expressions read as forms: sums and products, quotients and remainders by numbers.

What is none of these (a read, a minimum, a division by a size) is refused, or stands in the form as an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tedsl.lang.dtypes import INT32, INT64, integer_bounds
from tedsl.lang.expr import Apply, Const, Expr, Fn, Read
from tedsl.lang.intervals import INT32_MAX, range_of, within
from tedsl.lang.polynomials import RING, Affine, atom_form, form_over, interval
from tedsl.lang.traverse import topological

__all__ = ["affine_of", "form_of", "quotient_apart", "with_plain_indices"]

Predicate = Callable[[Expr], bool]
Forms = Mapping[Expr, Affine | None]
Inside = Callable[[Expr], Affine | None]  # what is divided in an atom that is a quotient or a remainder


def affine_of(expr: Expr) -> Affine | None:
    """The quasi-affine form of an integer expression of axes and sizes; None where it has none (reads, min, select)."""
    if any(isinstance(node, Read) for node in topological(expr)):  # whose tensors nothing here may keep
        return None
    return _affine_of(expr)


@lru_cache(maxsize=1 << 12)
def _affine_of(expr: Expr) -> Affine | None:
    """Most are asked for by several analyses, one after another."""
    return form_of(expr, lambda node: False, lambda node: True)


def with_plain_indices(node: Expr) -> Expr:
    """A read whose affine indices are written as their forms; any other node as it is."""
    if not isinstance(node, Read):
        return node
    forms = [affine_of(i) for i in node.indices]
    return Read(node.tensor, tuple(i if f is None else f.to_expr() for i, f in zip(node.indices, forms, strict=True)))


def quotient_apart(node: Apply, opaque: Predicate = lambda node: False) -> tuple[Affine, Affine, int] | None:
    """(q, r, by) of a quotient or a remainder by a positive number: all that the number divides, and what it does not.

    The quotient is q + r // by, the remainder r % by. None where what is divided has no form; nodes that `opaque`
    accepts may stand in it.
    """
    by, form = node.args[1], form_of(node.args[0], opaque, lambda node: True)
    if not isinstance(by, Const) or by.value < 1 or form is None or node.dtype is not INT32:
        return None
    return *form.divided(int(by.value)), int(by.value)


def form_of(expr: Expr, opaque: Predicate, exact: Predicate) -> Affine | None:
    """The form of an expression; nodes that `opaque` accepts may stand in it as atoms.

    Sums and products agree with integers that wrap; quotients and casts only where `exact` says that nothing wrapped.
    """

    def divided(atom: Expr) -> Affine | None:
        numerator = atom.children[0]
        return form_of(numerator, opaque, exact) if exact(numerator) else None

    def leaf(node: Expr, forms: Forms) -> Affine | None:
        form = None
        if isinstance(node, Apply) and node.fn not in RING and exact(node.args[0]):
            form = _operation(node, forms, divided)
        return atom_form(node) if form is None and opaque(node) else form

    form = form_over(expr, leaf)
    return form if form is None or len(form.terms) < 2 else _rejoined(form, divided)


def _rejoined(form: Affine, form_divided: Inside) -> Affine:
    """A form without what was divided and put together again.

    (a // n) * n + a % n is a; (a // n) * m + (a % n) // d is a // d where n is m * d; a // n + (b + a % n) // n is
    (b + a) // n; (a // n + b) % m * n + a % n is (a + b n) % (m n).
    """
    for (atom, *others), factor in form.terms.items():
        if others or not isinstance(atom, Apply):
            continue
        found = (
            _whole_of(form, atom, factor, form_divided)
            or _carried(form, atom, factor, form_divided)
            or _turned(form, atom, factor, form_divided)
        )
        if found is not None:
            whole, made = found
            alone = {m: c for m, c in form.terms.items() if len(m) > 1 or (m[0] is not atom and m[0] is not whole)}
            return _rejoined(Affine(alone, form.constant) + made, form_divided)
    return form


def _whole_of(form: Affine, atom: Apply, factor: int, form_divided: Inside) -> tuple[Expr, Affine] | None:
    """The quotient that stands in the form for an atom that is the rest of it, and what both are together."""
    parts = _rest_of(atom)
    if parts is None:
        return None
    divided, by, left = parts
    whole = Expr._apply(Fn.FLOORDIV, divided, by)
    if form.terms.get((whole,), 0) != factor * (int(by.value) // left):
        return None
    made = form_divided(whole) if left == 1 else atom_form(Expr._apply(Fn.FLOORDIV, divided, left))
    return None if made is None else (whole, made * factor)


def _carried(form: Affine, atom: Apply, factor: int, form_divided: Inside) -> tuple[Expr, Affine] | None:
    """The same where what is divided in an atom has the rest in it."""
    by = atom.args[-1]
    inner = form_divided(atom) if atom.fn is Fn.FLOORDIV else None
    if inner is None or not isinstance(by, Const) or by.value < 1:
        return None
    for (rest, *others), times in inner.terms.items():
        if others or not isinstance(rest, Apply) or rest.fn is not Fn.MOD or rest.args[1] is not by:
            continue
        whole = Expr._apply(Fn.FLOORDIV, *rest.args)
        divided = form_divided(rest)
        if form.terms.get((whole,), 0) == factor * times and divided is not None:
            joined = inner.plus(atom_form(rest), -times).plus(divided, times)
            made, left = joined.divided(int(by.value))
            low = atom_form(Expr._apply(Fn.FLOORDIV, left.canonical().to_expr(), by))
            return whole, (made + low) * factor
    return None


def _turned(form: Affine, atom: Apply, factor: int, form_divided: Inside) -> tuple[Expr, Affine] | None:
    """The same where the quotient goes round: the remainder that stands in the form for it, and what both are."""
    parts = _rest_of(atom)
    if parts is None or parts[2] != 1:
        return None
    whole, by = Expr._apply(Fn.FLOORDIV, *parts[:2]), int(parts[1].value)
    for (turned, *others), times in form.terms.items():
        turns = _remainder_by(turned) * by
        if others or times != factor * by or not by < turns <= INT32_MAX:
            continue
        inner, divided = form_divided(turned), form_divided(atom)
        if inner is None or divided is None or inner.terms.get((whole,), 0) != 1:
            continue
        place = divided.plus(inner.plus(atom_form(whole), -1), by).divided(turns)[1]
        low, high = interval(place, {})
        if low >= -INT32_MAX and high <= INT32_MAX:
            one = atom_form(Expr._apply(Fn.MOD, place.canonical().to_expr(), Const(turns, INT32)))
            return turned, one * factor
    return None


def _rest_of(atom: Expr) -> tuple[Expr, Const, int] | None:
    """(a, n, d) of a % n // d; d is 1 of a % n."""
    left = 1
    if isinstance(atom, Apply) and atom.fn is Fn.FLOORDIV and isinstance(atom.args[1], Const):
        left, atom = int(atom.args[1].value), atom.args[0]
    if not isinstance(atom, Apply) or atom.fn is not Fn.MOD or left < 1:
        return None
    divided, by = atom.args
    fits = isinstance(by, Const) and by.value >= 1 and int(by.value) % left == 0
    return (divided, by, left) if isinstance(by, Const) and fits else None


def _operation(node: Apply, forms: Forms, form_divided: Inside) -> Affine | None:
    operands = [form for form in (forms[a] for a in node.args) if form is not None]
    if len(operands) < len(node.args) or node.dtype not in (INT32, INT64):
        return None
    if node.fn is Fn.CAST:
        return operands[0] if _widens(node) else None
    if node.fn not in (Fn.FLOORDIV, Fn.MOD) or (node.dtype is INT64 and not _fits(node.args[0])):
        return None
    return _divided(node.fn, form_divided, *operands)


def _fits(divided: Expr) -> bool:
    """Whether 64 bits hold no more than 32 would, of which a quotient differs (sums and products only wrap)."""
    return within(range_of(divided), INT32)


def _widens(node: Apply) -> bool:
    source = node.args[0].dtype
    return source.is_integer and within(integer_bounds(source), node.dtype)


def _divided(fn: Fn, form_divided: Inside, numerator: Affine, divisor: Affine) -> Affine | None:
    by = divisor.constant
    if divisor.terms or by == 0 or abs(by) > integer_bounds(INT32)[1]:  # forms become int32 expressions again
        return None
    whole, rest = numerator.divided(by)
    if fn is Fn.MOD:
        rest = _unwound(rest, by, form_divided)
    if rest.is_constant:
        return whole if fn is Fn.FLOORDIV else rest
    remainder = atom_form(Expr._apply(fn, rest.canonical().to_expr(), by))
    return whole + remainder if fn is Fn.FLOORDIV else remainder


def _unwound(rest: Affine, by: int, form_divided: Inside) -> Affine:
    """A form that leaves the same remainder, without remainders inside: (a % n + b) % n is (a + b) % n."""
    for monomial, factor in rest.terms.items():
        if len(monomial) > 1 or factor * _remainder_by(monomial[0]) % by:
            continue
        inner = form_divided(monomial[0])
        if inner is None:
            continue
        found = rest.plus(atom_form(monomial[0]), -factor).plus(inner, factor).divided(by)[1]
        low, high = interval(found, {})
        if low >= -INT32_MAX and high <= INT32_MAX:
            return _unwound(found, by, form_divided)
    return rest


def _remainder_by(atom: Expr) -> int:
    """The number that leaves an atom as its remainder; 1 of any other atom."""
    by = atom.args[1] if isinstance(atom, Apply) and atom.fn is Fn.MOD else None
    return int(by.value) if isinstance(by, Const) else 1
