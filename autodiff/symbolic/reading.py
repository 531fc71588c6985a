"""sympy's integer expressions as index expressions of the language, so that both have one way through the inversion.

What the language has no word for (a power, a quotient by a domain symbol, an element of an `IndexedBase`) is read as a
value that nothing is known of; it comes back at the end as what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanFunction, BooleanTrue

from tedsl.lang import functions as fn
from tedsl.lang.compute import placeholder
from tedsl.lang.dtypes import INT64
from tedsl.lang.expr import FALSE, TRUE, Axis, Expr, Read, Var
from tedsl.lang.tensor import Tensor

__all__ = ["EXPECTED", "Words"]

MOST_FACTORS = 8
LARGEST = 2**62
NOT_WHOLE = "is not known to be an integer; a quotient is written floor(a/b)"
EXPECTED = (
    "integer symbols and numbers with +, -, *, floor(a/b), ceiling, Mod, Min, Max, Abs, sign, Piecewise, and elements "
    "of an IndexedBase"
)
RELATIONS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.Lt: lambda a, b: a < b,
    sympy.Le: lambda a, b: a <= b,
    sympy.Gt: lambda a, b: a > b,
    sympy.Ge: lambda a, b: a >= b,
}


class Words:
    """Which expression of the language each symbol is, and back: `axes` of the domain, sizes, other parameters.

    The language has no negative sizes. A parameter that is not known to be one is a difference of two, and goes back as
    `n + m` and `m`; where m does not cancel, it is the negative part of n.
    """

    def __init__(self, domain: Mapping[Any, tuple[Any, Any]], sizes: Collection[Any]) -> None:
        self.domain, self.sizes = domain, sizes
        self.axes: dict[Any, Axis] = {}
        self.names: dict[Expr, Any] = {}
        self.negative: dict[Any, Any] = {}
        self.unread: dict[Tensor, Any] = {}
        self._parameters: dict[Any, Expr] = {}

    def add_axis(self, symbol: Any, begin: Expr, extent: Expr) -> None:
        self.axes[symbol] = Axis(symbol.name, extent, begin=begin, is_reduce=True)
        self.names[self.axes[symbol]] = symbol

    def integer(self, e: Any) -> Any:
        """An integer expression."""
        if isinstance(e, sympy.Symbol):
            return self._symbol(e)
        if isinstance(e, sympy.Integer):
            return self._number(e)
        for kind, rule in RULES.items():
            if isinstance(e, kind):
                return rule(self, e)
        if isinstance(e, (sympy.Rational, sympy.Float)):
            raise TypeError(f"invert: {e} is no integer; a quotient is written floor(a/b)")
        what = e.func.__name__ if isinstance(e, sympy.Basic) else type(e).__name__
        raise TypeError(f"invert: cannot read {what} in {e}; expected {EXPECTED}")

    def condition(self, c: Any) -> Any:
        """A relation, or And, Or, Not of such."""
        if isinstance(c, (BooleanTrue, BooleanFalse)):
            return TRUE if c else FALSE
        if isinstance(c, Relational) and c.func in RELATIONS:
            return RELATIONS[c.func](*self._sides(c))
        if isinstance(c, sympy.Not):
            return fn.logical_not(self.condition(c.args[0]))
        if isinstance(c, (sympy.And, sympy.Or)):
            join = fn.logical_and if isinstance(c, sympy.And) else fn.logical_or
            return reduce(join, map(self.condition, c.args))
        if isinstance(c, BooleanFunction) and c.to_nnf(simplify=False).func is not c.func:
            return self.condition(c.to_nnf(simplify=False))
        raise TypeError(f"invert: cannot read {c} as a condition; expected relations of integers, And, Or, Not")

    def _sides(self, c: Any) -> tuple[Any, Any]:
        """Both sides, brought to integers where fractions stand in them."""
        if any(isinstance(side, Boolean) and not isinstance(side, sympy.Symbol) for side in c.args):
            raise TypeError(f"invert: cannot read {c} as a condition; expected relations of integers, And, Or, Not")
        if all(_is_whole(side) for side in c.args):
            return self.integer(c.lhs), self.integer(c.rhs)
        difference, denominator = sympy.fraction(sympy.together(c.lhs - c.rhs))
        if not denominator.is_Integer:
            return self._closed(difference / denominator), fn.const(0, INT64)
        return self.integer(sympy.expand(difference)), fn.const(0, INT64)

    def _number(self, e: Any) -> Any:
        if abs(int(e)) > LARGEST:
            raise ValueError(f"invert: {e} is too large for an index; expected at most 2**62")
        return fn.const(int(e), INT64)

    def _symbol(self, s: Any) -> Any:
        if s in self.axes:
            return fn.cast(self.axes[s], INT64)
        if s in self.domain:
            raise ValueError(
                f"invert: the domain symbol {s} stands in a begin, an extent or the shape; say it in where="
            )
        if s not in self._parameters:
            self._parameters[s] = self._parameter(s)
        return self._parameters[s]

    def _parameter(self, s: Any) -> Any:
        if not s.is_integer:
            raise TypeError(f"invert: {s} is not known to be an integer; make it symbols({s.name!r}, integer=True)")
        plus = Var(s.name)
        if s in self.sizes or s.is_nonnegative:
            self.names[plus] = s
            return fn.cast(plus, INT64)
        minus, rest = Var(f"{s.name}_negative"), sympy.Dummy(integer=True)
        self.negative[rest] = sympy.Max(0, -s)
        self.names |= {plus: s + rest, minus: rest}
        return fn.cast(plus, INT64) - fn.cast(minus, INT64)

    def _closed(self, e: Any) -> Any:
        """A value that nothing is known of. Its symbols are looked at all the same: they must be integers."""
        labels = {base.label for base in e.atoms(sympy.IndexedBase)}
        for s in e.free_symbols - labels:
            if isinstance(s, sympy.Symbol):
                self._symbol(s)
        value = placeholder((), "int64", name="value")
        self.unread[value] = e
        return Read(value, ())

    def _quotient(self, e: Any, divisor: Any) -> tuple[Any, Any] | None:
        """Numerator and divisor, where the divisor is a number or a size."""
        if divisor.is_Integer and divisor != 0:
            return self.integer(sympy.expand(e)), self._number(divisor)
        if not divisor.free_symbols.isdisjoint(self.domain) or not self._is_size(divisor):
            return None
        return self.integer(sympy.expand(e)), self.integer(divisor)

    def _is_size(self, e: Any) -> bool:
        """Whether an expression of parameters cannot be negative."""
        return bool(self._with_signs(e).is_nonnegative)

    def _with_signs(self, e: Any) -> Any:
        """The expression with what is known not to be negative of its symbols: sizes, and a domain that begins at 0."""
        known = {*self.sizes, *(z for z, (begin, _) in self.domain.items() if begin.is_nonnegative)}
        return e.xreplace({s: sympy.Dummy(integer=True, nonnegative=True) for s in e.free_symbols & known})

    def _floor(self, e: Any) -> Any:
        return self._floor_of(e.args[0])

    def _floor_of(self, e: Any) -> Any:
        parts = self._quotient(*sympy.fraction(sympy.together(e)))
        return self._closed(sympy.floor(e)) if parts is None else parts[0] // parts[1]

    def _ceiling(self, e: Any) -> Any:
        parts = self._quotient(*sympy.fraction(sympy.together(-e.args[0])))
        return self._closed(e) if parts is None else -(parts[0] // parts[1])

    def _mod(self, e: Any) -> Any:
        if not all(map(_is_whole, e.args)):
            raise TypeError(f"invert: {e} is not known to be an integer; expected Mod of integers")
        parts = self._quotient(*e.args)
        return self._closed(e) if parts is None else parts[0] % parts[1]

    def _power(self, e: Any) -> Any:
        base, exponent = e.args
        if exponent.is_Integer and 1 <= exponent <= MOST_FACTORS:
            return reduce(lambda a, b: a * b, [self.integer(base)] * int(exponent))
        if self._with_signs(e).is_integer:
            return self._closed(e)
        raise TypeError(f"invert: {e} {NOT_WHOLE}")

    def _product(self, e: Any) -> Any:
        if _is_whole(e):
            return self._joined(lambda a, b: a * b, e)
        if e.is_integer:  # as of a maximum of even numbers, which sympy halves without a floor
            return self._floor_of(e)
        raise TypeError(f"invert: {e} {NOT_WHOLE}")

    def _sign(self, e: Any) -> Any:
        (inside,) = map(self.integer, e.args)
        return fn.select(inside > 0, fn.const(1, INT64), fn.select(inside < 0, fn.const(-1, INT64), fn.const(0, INT64)))

    def _choice(self, e: Any) -> Any:
        (last, always), *others = reversed(e.args)
        if always != sympy.true:
            raise ValueError(f"invert: {e} has no value where no condition holds; end it with (value, True)")
        found = self.integer(last)
        for value, condition in others:
            found = fn.select(self.condition(condition), self.integer(value), found)
        return found

    def _joined(self, join: Callable[[Any, Any], Any], e: Any) -> Any:
        return reduce(join, map(self.integer, e.args))


def _is_whole(e: Any) -> bool:
    return bool(sympy.fraction(sympy.together(e))[1] == 1)


RULES: dict[Any, Callable[[Words, Any], Any]] = {
    sympy.Add: lambda words, e: words._joined(lambda a, b: a + b, e),
    sympy.Mul: lambda words, e: words._product(e),
    sympy.Pow: lambda words, e: words._power(e),
    sympy.floor: lambda words, e: words._floor(e),
    sympy.ceiling: lambda words, e: words._ceiling(e),
    sympy.Mod: lambda words, e: words._mod(e),
    sympy.Min: lambda words, e: words._joined(fn.minimum, e),
    sympy.Max: lambda words, e: words._joined(fn.maximum, e),
    sympy.sign: lambda words, e: words._sign(e),
    sympy.Abs: lambda words, e: fn.abs(words.integer(e.args[0])),
    sympy.Piecewise: lambda words, e: words._choice(e),
    sympy.Indexed: lambda words, e: words._closed(e),
}
