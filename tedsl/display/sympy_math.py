"""Integer expressions of sympy as formulas of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import sympy

from tedsl.display.math import Cases, Fenced, Fraction, Math, Name, Operator, Row, Script, Word

__all__ = ["listed", "math_of"]

OR, AND, COMPARE, SUM, PRODUCT, POWER = range(6)
RELATIONS = {sympy.Eq: "=", sympy.Ne: "≠", sympy.Lt: "<", sympy.Le: "≤", sympy.Gt: ">", sympy.Ge: "≥"}


def math_of(e: Any, level: int = OR) -> Math:
    """The formula, in brackets where it binds less than `level`."""
    rule = next((r for kind, r in RULES.items() if isinstance(e, kind)), None)
    made, own = (Word(str(e)), POWER) if rule is None else rule(e)
    return Fenced(made) if own < level else made


def listed(parts: Iterable[Math]) -> Math:
    """Parts with commas between them."""
    return _between(list(parts), Operator(","))


def _between(parts: list[Math], sign: Math) -> Math:
    if not parts:
        return Row(())
    first, *rest = parts
    return Row((first, *(p for part in rest for p in (sign, part)))) if rest else first


def _number(e: Any) -> tuple[Math, int]:
    if e.is_Integer:
        return (Word(str(e)), POWER) if e >= 0 else (Row((Operator("−"), Word(str(-e)))), SUM)
    return _product(e)


def _sum(e: Any) -> tuple[Math, int]:
    """Terms with a minus last, unless all have one."""
    terms = e.as_ordered_terms()
    terms.sort(key=lambda t: bool(t.as_coeff_Mul()[0] < 0))
    parts: list[Math] = []
    for t in terms:
        is_minus = t.as_coeff_Mul()[0] < 0
        if parts or is_minus:
            parts.append(Operator("−" if is_minus else "+"))
        parts.append(math_of(-t if is_minus else t, PRODUCT))
    return Row(tuple(parts)), SUM


def _product(e: Any) -> tuple[Math, int]:
    above, below = sympy.fraction(e)
    if below != 1:
        return Fraction(math_of(above), math_of(below)), PRODUCT
    coefficient, rest = e.as_coeff_Mul()
    if coefficient < 0:
        return Row((Operator("−"), math_of(-e, PRODUCT))), SUM
    factors = sympy.Mul.make_args(rest) if coefficient == 1 else (coefficient, *sympy.Mul.make_args(rest))
    return _between([math_of(f, POWER) for f in factors], Operator(" ")), PRODUCT


def _power(e: Any) -> tuple[Math, int]:
    return Script(math_of(e.base, POWER), above=math_of(e.exp)), POWER


def _rounded(left: str, right: str) -> Callable[[Any], tuple[Math, int]]:
    return lambda e: (Fenced(math_of(sympy.together(e.args[0])), left, right), POWER)


def _remainder(e: Any) -> tuple[Math, int]:
    a, b = e.args
    return Row((math_of(a, POWER), Operator("%"), math_of(b, POWER))), SUM  # in brackets among other terms


def _call(name: str) -> Callable[[Any], tuple[Math, int]]:
    return lambda e: (Row((Operator(name), Fenced(listed(map(math_of, e.args))))), POWER)


def _choice(e: Any) -> tuple[Math, int]:
    rows = ((math_of(a), Word("otherwise") if c == sympy.true else math_of(c)) for a, c in e.args)
    return Cases(tuple(rows)), SUM


def _relation(e: Any) -> tuple[Math, int]:
    return Row((math_of(e.lhs, SUM), Operator(RELATIONS[e.func]), math_of(e.rhs, SUM))), COMPARE


def _element(e: Any) -> tuple[Math, int]:
    return Row((Name(str(e.base.label)), Fenced(listed(map(math_of, e.indices)), "[", "]"))), POWER


def _joined(sign: str, level: int) -> Callable[[Any], tuple[Math, int]]:
    def rule(e: Any) -> tuple[Math, int]:
        return _between([math_of(a, level + 1) for a in sorted(e.args, key=str)], Operator(sign, spaced=True)), level

    return rule


RULES: dict[Any, Callable[[Any], tuple[Math, int]]] = {
    sympy.Symbol: lambda e: (Name(e.name), POWER),
    sympy.Rational: _number,
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Pow: _power,
    sympy.floor: _rounded("⌊", "⌋"),
    sympy.ceiling: _rounded("⌈", "⌉"),
    sympy.Abs: _rounded("|", "|"),
    sympy.Mod: _remainder,
    sympy.Min: _call("min"),
    sympy.Max: _call("max"),
    sympy.sign: _call("sign"),
    sympy.Piecewise: _choice,
    sympy.Indexed: _element,
    tuple(RELATIONS): _relation,
    sympy.And: _joined("∧", AND),
    sympy.Or: _joined("∨", OR),
    sympy.Not: lambda e: (Row((Operator("¬"), math_of(e.args[0], POWER))), POWER),
}
