"""Sums of products that are the same with rows and columns exchanged: half of them, and the other half read across.

    y[i, j] = sum over k of x[k, i] x[k, j]   ->   h[i, j] = sum over k of x[k, i] x[k, j], where j <= i
                                                   y[i, j] = select(j <= i, h[i, j], h[j, i])

The product leaves out the tiles that lie outside the triangle (`products/triangles`). Factors are exchanged: bits stay.
"""

from __future__ import annotations

import math

from schedules.default.canonical.factors import factors_of
from schedules.default.canonical.stages import Parts, over, sum_of, summed
from schedules.default.products.contraction import contraction_of
from schedules.thresholds import Thresholds
from tedsl.lang.expr import TRUE, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import select_node
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import substitute_all

__all__ = ["mirrored"]


def mirrored(op: Compute, least: Thresholds) -> Parts | None:
    """A symmetric matrix of sums from its lower triangle."""
    reduce = sum_of(op)
    if len(op.axes) < 2 or reduce.where is not TRUE:
        return None
    *rest, i, j = op.axes
    rows, columns = number(i.extent), number(j.extent)
    if rows is None or rows != columns or rows < least.mirrored_rows:
        return None
    factors = factors_of(reduce.values[0])
    exchanged = substitute_all(factors, {i: j, j: i})
    if len(factors) != 2 or exchanged[0] is not factors[1] or exchanged[1] is not factors[0]:
        return None
    terms = math.prod(number(a.extent) or 0 for a in reduce.axes)
    if terms * op.bodies[0].dtype.itemsize < least.mirrored_terms or contraction_of(op, least) is None:
        return None
    lower = j <= i
    half = over(op.axes, summed(reduce, reduce.values[0], reduce.axes, lower), op, f"{op.name}_half")
    if contraction_of(half, least) is None:
        return None
    below, above = (Read(half.output(), (*rest, *at)) for at in ((i, j), (j, i)))
    return Parts((half,), select_node(lower, below, above))
