"""Linear forms and conditions as sympy expressions: to read them, and to hold them against another algebra.

Nothing is solved here: the working forms (`integers.linear`) are vectors of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

from autodiff.integers.conditions import AllOf, AnyOf, Choice, Condition, NonNegative, Not, Opaque, Zero
from autodiff.integers.linear import Greatest, Least, Linear, Quotient, Symbol
from autodiff.inversion.domains import GatheredAxis, GatherLoop, TargetIndex

__all__ = ["as_sympy", "holds_when", "modulo", "replaced", "sides"]

Names = Mapping[Symbol, Any]
Written = Callable[[Any], Any]  # of the key of a condition that only the caller knows


def as_sympy(e: Linear, names: Names | None = None, opaque: Written | None = None) -> Any:
    """The form as a sympy expression of integer symbols, or of what `names` has for a symbol.

    >>> from autodiff.integers.linear import floordiv, symbol
    >>> as_sympy(floordiv(symbol("x") + 1, 4) + 2 * symbol("n"))
    2*n + floor(x/4 + 1/4)
    """
    names = names or {}
    remainders, rest = e.remainders()
    parts = [c * modulo(as_sympy(q.numerator, names, opaque), q.divisor) for q, c in remainders]
    parts += [c * _symbol(s, names, opaque) for s, c in rest.coefficients.items()]
    return sympy.Add(*parts, rest.constant)


def modulo(e: Any, m: Any) -> Any:
    """Mod(e, m), multiples of remainders written with floors.

    sympy (1.14) takes Mod(2*Mod(x, 8), 7) for Mod(2*Mod(x, 8)**2, 7), and Mod(3*Mod(x, 7), 7) for 3*Mod(x, 7).

    >>> x = sympy.Symbol("x", integer=True)
    >>> modulo(2 * sympy.Mod(x, 8), 7)
    Mod(2*x - 16*floor(x/8), 7)
    """
    terms = (_without_remainders(t) if isinstance(t, sympy.Mul) else t for t in sympy.Add.make_args(e))
    return sympy.Mod(sympy.Add(*terms), m)


def _without_remainders(product: Any) -> Any:
    if not any(isinstance(f, sympy.Mod) for f in product.args) or product.args[0] == -1:
        return product
    factors = (
        f.args[0] - f.args[1] * sympy.floor(f.args[0] / f.args[1]) if isinstance(f, sympy.Mod) else f
        for f in product.args
    )
    return sympy.expand(sympy.Mul(*factors))


def replaced(e: Any, values: Mapping[Any, Any]) -> Any:
    """All of `values` at once, as `subs` does, with remainders made by `modulo`."""
    if e in values:
        return values[e]
    args = [replaced(a, values) for a in e.args]
    if all(a is b for a, b in zip(args, e.args, strict=True)):
        return e
    return modulo(*args) if e.func is sympy.Mod else e.func(*args)


def _symbol(s: Symbol, names: Names, opaque: Written | None) -> Any:
    if isinstance(s, Quotient):
        return sympy.floor(as_sympy(s.numerator, names, opaque) / s.divisor)
    if isinstance(s, Least | Greatest):
        function = sympy.Min if isinstance(s, Least) else sympy.Max
        return function(as_sympy(s.a, names, opaque), as_sympy(s.b, names, opaque))
    if isinstance(s, Choice):
        return sympy.Piecewise(
            (as_sympy(s.a, names, opaque), holds_when(s.condition, names, opaque)), (as_sympy(s.b, names, opaque), True)
        )
    if s in names:
        return names[s]
    numbered = isinstance(s, GatheredAxis | GatherLoop | TargetIndex)
    return sympy.Symbol(f"{str(s)[0]}_{str(s)[1:]}" if numbered else str(s), integer=True)


def holds_when(c: Condition, names: Names | None = None, opaque: Written | None = None) -> Any:
    """The condition as a sympy Boolean; `opaque` writes what only the caller knows, by default as a symbol."""
    match c:
        case NonNegative(form):
            left, right = sides(as_sympy(form, names, opaque))
            return sympy.Le(right, left) if left.is_number else sympy.Ge(left, right)
        case Zero(form):
            left, right = sides(as_sympy(form, names, opaque))
            return sympy.Eq(right, left) if left.is_number else sympy.Eq(left, right)
        case AllOf(inner):
            return sympy.And(*(holds_when(i, names, opaque) for i in inner))
        case AnyOf(inner):
            return sympy.Or(*(holds_when(i, names, opaque) for i in inner))
        case Not(inner_condition):
            return sympy.Not(holds_when(inner_condition, names, opaque))
        case Opaque(key):
            return sympy.Symbol(str(key)) if opaque is None else opaque(key)


def sides(e: Any) -> tuple[Any, Any]:
    """(a, b) with a - b = e and no term with a minus on either side."""
    terms = sympy.Add.make_args(e)
    positive = [t for t in terms if t.as_coeff_Mul()[0] > 0]
    return sympy.Add(*positive), -sympy.Add(*(t for t in terms if t.as_coeff_Mul()[0] <= 0))
