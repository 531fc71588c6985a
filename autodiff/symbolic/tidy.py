"""Expressions of an answer as a person would write them: nothing is solved, every rule is an equation of integers.

floor(-s/2)                 ->  -ceiling(s/2)
floor(s/2) - 3*floor(s/6)   ->  Mod(floor(s/2), 3)
Eq(Mod(1 - s, 3), 0)        ->  Eq(Mod(s, 3), 1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy.core.sorting import default_sort_key

from autodiff.inversion.formulas import modulo, sides
from autodiff.symbolic.places import by_digits

__all__ = ["tidy"]


def tidy(e: Any) -> Any:
    """The same value or truth at all integers.

    >>> s = sympy.Symbol("s", integer=True)
    >>> tidy(sympy.floor(s / 4) - 3 * sympy.floor(s / 12) + sympy.floor((1 - s) / 3))
    Mod(floor(s/4), 3) - floor(s/3 + 1/3)
    """
    if not e.args:
        return e
    args = [tidy(a) for a in e.args]
    same = all(a is b for a, b in zip(args, e.args, strict=True))
    made = e if same else modulo(*args) if e.func is sympy.Mod else e.func(*args)
    rule = RULES.get(made.func)
    return made if rule is None else rule(made)


def _floor(e: Any) -> Any:
    """A floor of what is subtracted everywhere is minus the ceiling, or the floor, of what is added."""
    (inside,) = e.args
    terms = [t.as_coeff_Mul() for t in sympy.Add.make_args(inside)]
    constant = sympy.Add(*(c for c, rest in terms if rest == 1))
    terms = [(c, rest) for c, rest in terms if rest != 1]
    if not terms or any(c > 0 for c, _ in terms):
        return e
    if constant == 0:
        (c, rest), *others = terms
        # Of a floor m, floor(-m/2) = floor(m/2) - m: both may meet others of the same number.
        is_half = not others and c == -sympy.Rational(1, 2) and isinstance(rest, sympy.floor)
        return sympy.floor(rest.args[0] / 2) - rest if is_half else -sympy.ceiling(-inside)
    if not all(rest.is_integer for _, rest in terms):
        return e
    below = sympy.ilcm(constant.q, *(c.q for c, _ in terms))
    return -sympy.floor(-inside + 1 - sympy.Rational(1, below))


def _relation(e: Any) -> Any:
    """Terms on the side where they have no minus, a number on the right."""
    if not all(side.is_integer for side in e.args):
        return e
    congruence = _congruence(e) if isinstance(e, sympy.Eq) else None
    if congruence is not None:
        return congruence
    left, right = sides(tidy(e.lhs - e.rhs))
    if _is_extreme(e.func, left, right):
        return sympy.Eq(left, right)
    return e.reversed.func(right, left) if left.is_number else e.func(left, right)


def _is_extreme(relation: Any, left: Any, right: Any) -> bool:
    """Whether an inequality leaves a remainder its least or its largest value."""
    if not isinstance(left, sympy.Mod):
        return False
    return bool(relation is sympy.Le and right == 0) or bool(relation is sympy.Ge and right == left.args[1] - 1)


def _congruence(e: Any) -> Any:
    """Eq(Mod(u, m), r) with the constant of u in r, and coefficients of u near 0, the first of them positive."""
    remainder, r = e.args if isinstance(e.lhs, sympy.Mod) else (e.rhs, e.lhs)
    if not (isinstance(remainder, sympy.Mod) and r.is_Integer and remainder.args[1].is_Integer):
        return None
    inside, m = remainder.args
    coefficients = dict(inside.as_coefficients_dict())
    r -= coefficients.pop(sympy.S.One, 0)
    if not m.is_positive or not all(c.is_Integer and t.is_integer for t, c in coefficients.items()):
        return None
    near = {t: _nearest(c, m) for t, c in sorted(coefficients.items(), key=lambda item: default_sort_key(item[0]))}
    sign = next((1 if c > 0 else -1 for c in near.values() if c), 1)
    return sympy.Eq(modulo(sympy.Add(*(sign * c * t for t, c in near.items())), m), sign * r % m)


def _nearest(c: Any, m: Any) -> Any:
    """The number nearest to 0 that leaves the remainder of c by m."""
    rest = c % m
    return rest if 2 * rest <= m else rest - m


RULES: dict[Any, Callable[[Any], Any]] = {
    sympy.floor: _floor,
    sympy.Add: by_digits,
    sympy.Eq: _relation,
    sympy.Ne: lambda e: sympy.Not(tidy(sympy.Eq(*e.args))),
    sympy.Le: _relation,
    sympy.Ge: _relation,
}
