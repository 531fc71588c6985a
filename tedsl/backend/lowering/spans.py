"""Which iterations of a reduction can count, from its `where=`: a first one, an end, and whether there are any.

A condition that is linear in the loops becomes the ends of a loop, so that a sum over `k < i` takes i steps, and one
that is asked for where `j == t` takes none elsewhere. Ends hold for all lanes of a vector together; the condition
itself stays, for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import halide as hl

from tedsl.analysis.affine import affine_of, form_of
from tedsl.backend.scalars.types import Expr as Halide
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Expr, Fn
from tedsl.lang.intervals import may_wrap
from tedsl.lang.operators import NEGATED
from tedsl.lang.polynomials import Affine
from tedsl.lang.traverse import free_axes, topological

__all__ = ["ALL", "Ends", "Iterations", "iterations_of"]


class Ends(Protocol):
    """The least, or the largest, value that a form has in a vector of elements; None where that is not known."""

    def __call__(self, form: Affine, *, largest: bool) -> Halide | None: ...


@dataclass(frozen=True, eq=False)
class Iterations:
    """From `low` to before `high`, where `holds`; None says nothing. `are_exact`: at all of them."""

    holds: Halide | None = None
    low: Halide | None = None
    high: Halide | None = None
    are_exact: bool = False

    @property
    def are_all(self) -> bool:
        return self.holds is None and self.low is None and self.high is None

    def both(self, other: Iterations) -> Iterations:
        """What is in both."""
        return Iterations(
            _joined(self.holds, other.holds, lambda a, b: a & b),
            _joined(self.low, other.low, hl.max),
            _joined(self.high, other.high, hl.min),
            self.are_exact and other.are_exact,
        )

    def either(self, other: Iterations) -> Iterations:
        """What is in one of them, and what is between."""
        return Iterations(
            _unless_unknown(self.holds, other.holds, lambda a, b: a | b),
            _unless_unknown(self.low, other.low, hl.min),
            _unless_unknown(self.high, other.high, hl.max),
        )


ALL = Iterations()


def iterations_of(where: Expr, axis: Axis, inner: frozenset[Axis], ends: Ends) -> Iterations:
    """The iterations of an axis at which a condition may hold; `inner`: all axes of the reduction.

    They are exact where the ends are those of a single element.
    """
    if where is TRUE:
        return Iterations(are_exact=True)
    found: dict[tuple[Expr, bool], Iterations] = {}
    for node in topological(where):
        if not node.dtype.is_bool:
            continue
        for holds in (True, False):
            found[node, holds] = _span(node, axis, inner, ends, found, holds=holds)
    return found[where, True]


def _span(
    node: Expr,
    axis: Axis,
    inner: frozenset[Axis],
    ends: Ends,
    found: dict[tuple[Expr, bool], Iterations],
    *,
    holds: bool,
) -> Iterations:
    if not isinstance(node, Apply):
        return ALL
    if node.fn is Fn.NOT:
        return found[node.args[0], not holds]
    if node.fn in (Fn.AND, Fn.OR):
        a, b = (found[part, holds] for part in node.args)
        return a.both(b) if (node.fn is Fn.AND) == holds else a.either(b)
    if node.fn in NEGATED and not node.args[0].dtype.is_bool:
        gap = _gap(node, inner)
        return ALL if gap is None else _compared(node.fn if holds else NEGATED[node.fn], gap, axis, inner, ends)
    return ALL


def _gap(node: Apply, inner: frozenset[Axis]) -> Affine | None:
    """The difference of two sides; what is the same in every iteration, as the place of a segment, is an atom."""

    if not node.args[0].dtype.is_integer:
        return None
    gap = node.args[0] - node.args[1]
    form = affine_of(gap)
    if form is not None or may_wrap(gap, {}):
        return form
    return form_of(gap, lambda n: n.dtype is INT32 and inner.isdisjoint(free_axes(n)), lambda _: True)


def _compared(fn: Fn, gap: Affine, axis: Axis, inner: frozenset[Axis], ends: Ends) -> Iterations:
    """Where `gap fn 0` may hold."""
    if fn in (Fn.GT, Fn.GE):
        gap, fn = gap * -1, {Fn.GT: Fn.LT, Fn.GE: Fn.LE}[fn]
    if fn is Fn.EQ:
        return _compared(Fn.LE, gap, axis, inner, ends).both(_compared(Fn.LE, gap * -1, axis, inner, ends))
    if fn is Fn.NE:
        return ALL
    if fn is Fn.LT:  # of integers
        gap = gap + 1
    factor = gap.terms.get((axis,), 0)
    rest = Affine({m: c for m, c in gap.terms.items() if len(m) > 1 or m[0] is not axis}, gap.constant)
    if abs(factor) > 1 or any(atom in inner for monomial in rest.terms for atom in monomial):
        return ALL
    least = ends(rest, largest=False)  # gap <= 0 for the element of a vector that asks the least
    if least is None:
        return ALL
    if factor == 0:
        return Iterations(holds=least <= 0, are_exact=True)
    return Iterations(high=1 - least, are_exact=True) if factor > 0 else Iterations(low=least, are_exact=True)


def _joined(a: Halide | None, b: Halide | None, join: Callable[[Halide, Halide], Halide]) -> Halide | None:
    return b if a is None else a if b is None else join(a, b)


def _unless_unknown(a: Halide | None, b: Halide | None, join: Callable[[Halide, Halide], Halide]) -> Halide | None:
    return None if a is None or b is None else join(a, b)
