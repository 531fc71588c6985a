"""Guards as they are read: two inequalities on one quantity are a range of it, under the name of a coordinate of the
point where it is one. Data stays as it is; this is for text, formulas and pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy

from tedsl.lang.dataclass import dataclass

__all__ = ["Bounds", "bounds_of"]

FORMS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Ge: lambda a, b: a - b,
    sympy.Le: lambda a, b: b - a,
    sympy.Gt: lambda a, b: a - b - 1,
    sympy.Lt: lambda a, b: b - a - 1,
}
"""What is not negative where an inequality of integers holds."""


@dataclass(frozen=True)
class Bounds:
    """low <= quantity < end, either of which may be None; `symbol` is the coordinate that the quantity is, or None."""

    low: Any
    quantity: Any
    end: Any
    symbol: Any = None

    @property
    def name(self) -> Any:
        """What stands for the quantity where coordinates have been told."""
        return self.quantity if self.symbol is None else self.symbol

    def with_other(self, other: Bounds) -> Bounds | None:
        """Both as one, if they are the two ends of a range."""
        if self.quantity != other.quantity or (self.low is None) == (other.low is None):
            return None
        low, end = (self.low, other.end) if other.low is None else (other.low, self.end)
        return None if end is None else Bounds(low, self.quantity, end, self.symbol)

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.name} < {self.end}"
        return f"{self.name} >= {self.low}" if self.end is None else f"{self.low} <= {self.name} < {self.end}"


def bounds_of(guards: Sequence[Any], solution: Mapping[Any, Any], variables: Collection[Any]) -> list[Any]:
    """The guards in their order, with `Bounds` for inequalities that bound a coordinate, and for two of one quantity.

    What varies are the `variables`; ends are made of numbers and parameters.

    >>> s, t, y = sympy.symbols("s t y", integer=True)
    >>> print(*bounds_of([s >= t, t + 4 >= s], {y: s - t}, {s, t}))
    0 <= y < 5
    """
    found: list[tuple[Any, Any]] = []  # what is shown, and what it is of
    for c in guards:
        bounds = _bounds(c, solution, variables)
        joined = [(k, both) for k, (b, _) in enumerate(found) if b and bounds and (both := b.with_other(bounds))]
        if joined:
            ((k, both), *_) = joined
            found[k] = both, None
        else:
            found.append((bounds, c))
    return [c if c is not None and (b is None or b.symbol is None) else b for b, c in found]


def _bounds(c: Any, solution: Mapping[Any, Any], variables: Collection[Any]) -> Bounds | None:
    """The bound that an inequality is."""
    rule = FORMS.get(c.func)
    if rule is None:
        return None
    form = sympy.expand(rule(c.lhs, c.rhs))
    for z, e in solution.items():
        if not e.free_symbols.isdisjoint(variables):
            for low, end in ((e - form, None), (None, e + form + 1)):
                edge = sympy.expand(low if end is None else end)
                if edge.free_symbols.isdisjoint(variables):
                    return Bounds(edge, e, None, z) if end is None else Bounds(None, e, edge, z)
    terms = sympy.Add.make_args(form)
    moving = sympy.Add(*(t for t in terms if not t.free_symbols.isdisjoint(variables)))
    if moving == 0:
        return None
    if sympy.Add.make_args(moving)[0].as_coeff_Mul()[0] < 0:
        return Bounds(None, -moving, form - moving + 1)
    return Bounds(moving - form, moving, None)
