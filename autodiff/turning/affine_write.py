"""Linear forms and conditions written back as expressions of the IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autodiff.integers.conditions import AllOf, AnyOf, Choice, Condition, NonNegative, Not, Opaque, Zero
from autodiff.integers.linear import Greatest, Least, Linear, Quotient, Symbol
from autodiff.turning.affine_read import Product
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.expr import FALSE, TRUE, Const, Expr
from tedsl.lang.intervals import range_of, within, wraps_early

__all__ = ["expression_of", "truth_of"]

Names = Mapping[Symbol, Expr]

SMALL = 8  # factors up to it, and numbers up to FAR times it, leave int32 for no index of an array
FAR = 1 << 20


def expression_of(e: Linear, names: Names) -> Expr:
    """The form as an expression, `e - c * (e // c)` as `e % c`; positive terms first, the constant last."""
    return _sum([*_terms(e, names), (e.constant, fn.const(1, INT32))])


def _terms(e: Linear, names: Names) -> list[tuple[int, Expr]]:
    """Factors and expressions that add up to the form, the constant left out."""
    remainders, rest = e.remainders()
    terms = [(c, _short(expression_of(q.numerator, names) % q.divisor)) for q, c in remainders]
    terms += [(c, _symbol_expression(s, names)) for s, c in rest.coefficients.items()]
    return [*terms, (rest.constant - e.constant, fn.const(1, INT32))]


def _short(e: Expr) -> Expr:
    """As int32 what is divided in 64 bits, for which 32 may do again."""
    return fn.cast(e, INT32) if e.dtype is INT64 and within(range_of(e), INT32) else e


def _symbol_expression(s: Symbol, names: Names) -> Expr:
    if isinstance(s, Product):
        product = names_of(s.factors[0], names)
        for factor in s.factors[1:]:
            product = product * names_of(factor, names)
        return product
    return names_of(s, names)


def names_of(s: Symbol, names: Names) -> Expr:
    """The expression of one symbol: as named, else itself."""
    if s in names:
        return names[s]
    match s:
        case Quotient():
            return _short(expression_of(s.numerator, names) // s.divisor)
        case Least():
            return fn.minimum(expression_of(s.a, names), expression_of(s.b, names))
        case Greatest():
            return fn.maximum(expression_of(s.a, names), expression_of(s.b, names))
        case Choice():
            a, b = expression_of(s.a, names), expression_of(s.b, names)
            return fn.select(truth_of(s.condition, names), a, b)
    assert isinstance(s, Expr), f"a symbol without a name: {s}"
    return s


def _sum(terms: Iterable[tuple[int, Expr]]) -> Expr:
    """Constants collected, positive terms before negative ones."""
    constant = 0
    others: list[tuple[int, Expr]] = []
    for c, e in terms:
        if isinstance(e, Const):
            constant += c * int(e.value)
        elif c:
            others.append((c, e))
    found = _added(others, constant)
    if max(map(abs, (constant // FAR, *(c for c, _ in others))), default=0) > SMALL and wraps_early(found):
        return _added([(c, fn.cast(e, INT64)) for c, e in others], constant)
    return found


def _added(terms: Iterable[tuple[int, Expr]], constant: int) -> Expr:
    total: Expr | None = None
    for c, e in sorted(terms, key=lambda term: term[0] < 0):
        part = e if abs(c) == 1 else e * abs(c)
        if total is None:
            total = part if c > 0 else -part
        else:
            total = total + part if c > 0 else total - part
    if total is None:
        return fn.const(constant, INT32)
    return total + constant if constant > 0 else total - -constant if constant else total


def truth_of(c: Condition, names: Names, opaque: Callable[[Expr], Expr] = lambda e: e) -> Expr:
    """The condition as an expression; `opaque` moves those known to the caller only to where they are asked."""
    match c:
        case NonNegative(form):
            left, right = _two_sides(form, names)
            return right <= left if isinstance(left, Const) else left >= right
        case Zero(form):
            left, right = _two_sides(form, names)
            return right == left if isinstance(left, Const) else left == right
        case AllOf(inner) | AnyOf(inner):
            joined: Expr = TRUE if isinstance(c, AllOf) else FALSE
            join = fn.logical_and if isinstance(c, AllOf) else fn.logical_or
            for i in inner:
                joined = join(joined, truth_of(i, names, opaque))
            return joined
        case Not(inner_condition):
            return fn.logical_not(truth_of(inner_condition, names, opaque))
        case Opaque(key):
            assert isinstance(key, Expr)
            return opaque(key)


def _two_sides(form: Linear, names: Names) -> tuple[Expr, Expr]:
    """(a, b) with a - b = form and no negative terms on either side."""
    terms = [*_terms(form, names), (form.constant, fn.const(1, INT32))]
    constant = sum(c * int(e.value) for c, e in terms if isinstance(e, Const))
    left = [(c, e) for c, e in terms if c > 0 and not isinstance(e, Const)]
    right = [(-c, e) for c, e in terms if c < 0 and not isinstance(e, Const)]
    # The constant goes where the fewest terms are, so that a bound is a bare number where it can be.
    (left if right and not left else right).append((constant if right and not left else -constant, fn.const(1, INT32)))
    return _sum(left), _sum(right)
