"""Sums of products of small integers as sums of floats, which hold every one of them exactly.

| before | after |
|---|---|
| `sum over k < 1000 of i32(a[i, k]) i32(b[k, j])`, of int8 | `i32(sum over k < 1000 of f32(a[i, k]) f32(b[k, j]))` |
| the same, `k < 2000` | two such sums, of `k < 1000` and of those from there on |

A processor multiplies and adds as many floats in half a cycle as integers in two or three. No sum reaches 2^24, up to
where a float32 is any integer: no bit changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce as folded
from operator import add

from schedules.default.canonical.factors import factors_of
from schedules.default.canonical.stages import Parts, over, sum_of, summed
from schedules.default.products.contraction import contraction_of
from schedules.thresholds import Thresholds
from tedsl.lang.dtypes import FLOAT32, INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import cast
from tedsl.lang.intervals import range_of
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import reads_of, substitute_all

__all__ = ["as_floats"]

EXACT = 1 << 24
MOST_SUMS = 8
TURNED = 16  # terms at a time, of a table that is turned


def as_floats(op: Compute, least: Thresholds) -> Parts | None:
    """The sums of floats that a sum of products of integers is."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) > 1 or reduce.reducer.kind != "sum":
        return None
    value = reduce.values[0]
    factors = factors_of(value) if str(value.dtype) in ("int32", "int64") else []
    extents = [number(a.extent) or 0 for a in reduce.axes]
    if len(factors) != 2 or not all(extents) or any(number(a.begin) != 0 for a in reduce.axes):
        return None
    place = max(range(len(extents)), key=extents.__getitem__)
    length, others = extents[place], math.prod(extents) // extents[place]
    exact = EXACT // max(1, math.prod(map(_largest, factors)) * others)  # iterations
    if exact * MOST_SUMS < length or contraction_of(op, least) is None:
        return None
    chains = max(1, least.chain // others)  # longer ones would be cut as those that round are
    most = next(n for n in (min(exact, chains), exact) if n * MOST_SUMS >= length)
    step = min(most, -(-length // -(-length // most) // TURNED) * TURNED)
    spans = [(begin, min(step, length - begin)) for begin in range(0, length, step)]
    parts = tuple(_span(op, factors, place, *span) for span in spans)
    return Parts(parts, folded(add, [cast(Read(part.output(), op.axes), value.dtype) for part in parts]))


def _span(op: Compute, factors: Sequence[Expr], place: int, begin: int, length: int) -> Compute:
    """The sum over a part of one of its loops, as floats."""
    reduce = sum_of(op)
    axis = reduce.axes[place]
    own = Axis(axis.name, Const(length, INT32), is_reduce=True)
    product = cast(factors[0], FLOAT32) * cast(factors[1], FLOAT32)
    value, where = substitute_all((product, reduce.where), {axis: own + begin if begin else own})
    axes = (*reduce.axes[:place], own, *reduce.axes[place + 1 :])
    return over(op.axes, summed(reduce, value, axes, where), op, f"{op.name}_floats")


def _largest(factor: Expr) -> int:
    """The largest magnitude of a factor."""
    return max(map(abs, range_of(factor, dict(_read_ranges(factor)))))


def _read_ranges(expr: Expr) -> Iterator[tuple[Expr, tuple[int, int]]]:
    """What integers that are read range over, by what the stages are that they are read of."""
    for read in reads_of(expr):
        op = read.tensor.op
        if isinstance(op, Compute) and op.reduction is None and read.dtype.is_integer:
            body = op.bodies[op.outputs.index(read.tensor)]
            yield read, range_of(body, dict(_read_ranges(body)))
