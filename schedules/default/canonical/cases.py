"""Sums whose terms are chosen by the place along a short axis: a sum for each place.

A product of complex numbers held in pairs is `sum over k of select(c == 0, a[i, k, 0] b[k, j, 0] - ..., ...)`: no
product until c is a number, four of them then. The axis may be one of the result or a loop of the sum. Each product
takes a third of a second to build, so that there may be few: the gradients of a product of quaternions would have 32.
"""

from __future__ import annotations

from functools import reduce as folded
from operator import add

from schedules.conditions import tidied
from schedules.default.canonical.stages import Parts, over, sum_of, summed
from schedules.default.canonical.terms import products_of
from schedules.default.products.contraction import contraction_of
from schedules.thresholds import Thresholds
from tedsl.lang.expr import FALSE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import apply, const, select_node
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, substitute_all, topological

__all__ = ["by_cases"]

MOST_CASES = 3
MOST_PRODUCTS = 4


def by_cases(op: Compute, least: Thresholds) -> Parts | None:
    """A sum that is a product at each place along an axis that its terms ask about."""
    axis = _asked_axis(op)
    if axis is None or contraction_of(op, least) is not None or not set(sum_of(op).axes).difference({axis}):
        return None
    places = range(number(axis.extent) or 0)
    parts = [_at(op, axis, place) for place in places]
    products = [products_of(part, least) for part in parts if part is not None]
    if not all(products) or sum(products) > MOST_PRODUCTS:
        return None
    zero = const(0, op.bodies[0].dtype)
    loops = tuple(a for a in op.axes if a is not axis)
    reads: list[Expr] = [zero if part is None else Read(part.output(), loops) for part in parts]
    stages = tuple(part for part in parts if part is not None)
    if axis.is_reduce:
        return Parts(stages, folded(add, [read for read in reads if read is not zero] or [zero]))
    *others, body = reads
    for place, read in reversed(list(enumerate(others))):
        body = select_node(apply(Fn.EQ, axis, place), read, body)
    return Parts(stages, body)


def _asked_axis(op: Compute) -> Axis | None:
    """A short axis that a choice between terms hangs on, and nothing else."""
    reduce = sum_of(op)
    asked = [n.args[0] for n in topological(reduce.values) if isinstance(n, Apply) and n.fn is Fn.SELECT]
    for condition in asked:
        axes = set(free_axes(condition))
        if len(axes) != 1:
            continue
        (axis,) = axes
        if number(axis.begin) == 0 and 1 < (number(axis.extent) or 0) <= MOST_CASES:
            return axis
    return None


def _at(op: Compute, axis: Axis, place: int) -> Compute | None:
    """The sum at one place along an axis, over the others; None where nothing is added up."""
    reduce = sum_of(op)
    value, where = tidied(substitute_all((reduce.values[0], reduce.where), {axis: const(place, axis.dtype)}))
    if where is FALSE or (isinstance(value, Const) and value.value == 0):
        return None
    loops = [a for a in reduce.axes if a is not axis]
    return over(
        [a for a in op.axes if a is not axis], summed(reduce, value, loops, where), op, f"{op.name}_case{place}"
    )
