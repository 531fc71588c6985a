"""Results whose rows are short as rows that are longer: the last two axes of a pointwise stage as one.

    y[i, j, k] = x[i, j, k] * c[k]   ->   y[i, f] = x[i, f // 3, f % 3] * c[f % 3]

Vectors along three numbers are three lanes. Along f they are full, and after as many of them as there are columns the
same lanes have the same columns again (see `nests`). Nobody else may read the result, whose array is contiguous, and
strides are known, so that `x` is read as it lies. Where all that is read has both axes, `merging` does more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set as AbstractSet
from dataclasses import replace

from schedules.merging import Merging
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import free_axes, operations_between, reads_of, substitute_all

__all__ = ["flattened"]

NARROW = 16  # elements of a row
VECTOR, MOST_PERIOD = 8, 8  # lanes of a vector; vectors until columns begin anew


def flattened(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Merging | None:
    """The program with results of longer rows; None where no vectors would fill better."""
    read = {t for op in operations_between(inputs, outputs) for t in op.inputs}
    made = {t.op: _flat(t.op) for t in outputs if isinstance(t.op, Compute) and _gains(t.op, read)}
    if not made:
        return None
    results = tuple(made[t.op].output(t.index) if t.op in made else t for t in outputs)
    runs = {t: (1,) * t.ndim for t in (*inputs, *outputs)}
    runs.update((t, (*(1 for _ in t.extents[2:]), 2)) for t in outputs if t.op in made)
    return Merging(tuple(inputs), results, runs)


def _gains(op: Compute, read: AbstractSet[Tensor]) -> bool:
    """Whether its rows leave lanes idle, and what it reads lies along them, or is the same for a row or a column."""
    sizes = [number(a.extent) for a in op.axes]
    if op.reduction is not None or len(sizes) < 2 or not all(sizes) or not read.isdisjoint(op.outputs):
        return False
    before, last = op.axes[-2:]
    count, rows = sizes[-1] or 0, sizes[-2] or 0
    if not 1 < count < NARROW or count % VECTOR == 0 or rows < 2:
        return False
    period = math.lcm(count, VECTOR)
    if period > MOST_PERIOD * VECTOR or rows * count < 2 * period or any(number(a.begin) for a in (before, last)):
        return False
    return any(last in set(free_axes(r.indices)) for r in op.reads) and all(
        _lies_along(r, before, last) for r in op.reads
    )


def _lies_along(read: Read, before: Axis, last: Axis) -> bool:
    """Whether a read has the axes as they are, in its last places."""
    if not read.indices or reads_of(read.indices):
        return not read.indices
    used = {before, last}
    end = [i for i in read.indices[-2:] if used.intersection(free_axes(i))]
    if used.intersection(free_axes(read.indices[: -len(end)] if end else read.indices)):
        return False
    if len(end) == 2:
        return end[0] is before and end[1] is last and number(last.extent) == number(read.tensor.extents[-1])
    return not end or (read.indices[-1] is end[0] and isinstance(end[0], Axis))


def _flat(op: Compute) -> Compute:
    """The stage with its last two axes as one."""
    before, last = op.axes[-2:]
    count = number(last.extent) or 1
    axis = Axis(f"{before.name}_{last.name}", Const((number(before.extent) or 1) * count, INT32))
    at: dict[Expr, Expr] = {before: axis // count, last: axis % count}
    return replace(op, axes=(*op.axes[:-2], axis), bodies=substitute_all(op.bodies, at), _outputs={})
