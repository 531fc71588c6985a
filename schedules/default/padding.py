"""Rows with a border around them, so that a window over a row is read in vectors from end to end.

A read like x[i, j + v - 1] leaves the row at both ends, where it is guarded and its index held inside. A vector of
such indices does not lie side by side in memory and is loaded lane by lane, in a row of seven vectors six times. Here

    padded[i, j] = x[i, j - L] inside, the value that the guard gives elsewhere     for j in [0, n + 2L)

is made first, with L lanes on each side: whole vectors lie inside or outside. The window then reads it without a guard.
"""

from __future__ import annotations

import math
from dataclasses import replace

from schedules.default.conditions import extremes, number
from schedules.default.costs import INLINE, element_cost, is_pointwise
from schedules.default.groups import MOST_BYTES
from schedules.default.lanes import COMBINE
from schedules.default.machine import Machine
from schedules.default.rewriting import Rewriting
from tedsl.analysis.affine import Affine, affine_of
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import conjuncts, reads_of, rebuild_all

__all__ = ["is_window", "padded_windows"]

MOST_TERMS = 32  # of a window
LEAST_LANES = 4


def is_window(op: Compute) -> bool:
    """Whether a stage is a reduction of a few terms whose loops are written out."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) != 1 or reduce.reducer.kind not in COMBINE or len(op.axes) < 2:
        return False
    if any(number(a.extent) is None for a in (*op.axes, *reduce.axes)):
        return False
    if any(reads_of(r.indices) for r in reads_of(op.bodies)):
        return False
    return math.prod(number(a.extent) or 0 for a in reduce.axes) <= MOST_TERMS


def padded_windows(rw: Rewriting, op: Compute, machine: Machine) -> Compute:
    """The operation, its reads that leave a row at the ends replaced by reads of padded rows."""
    if not is_window(op):
        return op
    made: dict[tuple[Tensor, Expr], Tensor] = {}

    def rule(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.fn is Fn.SELECT and isinstance(node.args[2], Const):
            guard, read, rest = node.args
            if isinstance(read, Read) and (lanes := _lanes(op, read, machine)):
                outer = _without_ends(guard, read)
                moved = _moved(rw, op, made, read, rest, lanes)
                return moved if outer is TRUE else fn.select(outer, moved, rest)
        return node

    bodies = rebuild_all(op.bodies, rule)
    return replace(op, bodies=bodies, _outputs={}) if made else op


def _lanes(op: Compute, read: Read, machine: Machine) -> int:
    """Lanes of the border that a read needs; 0 where none helps."""
    tensor = read.tensor
    if not read.indices or not op.axes or tensor.dtype.itemsize != 4 or not tensor.dtype.is_float:
        return 0
    form, extent = affine_of(read.indices[-1]), number(tensor.extents[-1])
    if form is None or extent is None or op.axes[-1] not in set(form.axes) or not _is_near(op, read):
        return 0
    ends = extremes(form)
    lanes = machine.vector_bytes // 4
    while lanes >= LEAST_LANES and extent % lanes:
        lanes //= 2
    if ends is None or lanes < LEAST_LANES or (ends[0] >= 0 and ends[1] < extent):
        return 0
    return lanes if ends[0] >= -lanes and ends[1] < extent + lanes else 0


def _is_near(op: Compute, read: Read) -> bool:
    """Whether padded rows stay in the cache: they are made where they are used, or in place of what is read."""
    tensor = read.tensor
    if isinstance(tensor.op, Compute):
        return is_pointwise(tensor.op) and element_cost(tensor.op) <= INLINE
    shared = 0
    while shared < len(op.axes) - 2 and read.indices[shared] is op.axes[shared]:
        shared += 1
    sizes = [number(e) for e in tensor.extents[shared:]]
    if shared == 0 or None in sizes:
        return False
    return math.prod(n or 0 for n in sizes) * tensor.dtype.itemsize * 2 <= MOST_BYTES


def _without_ends(guard: Expr, read: Read) -> Expr:
    """The guard without the conditions that the last index lies in its row."""
    index = affine_of(read.indices[-1])
    extent = number(read.tensor.extents[-1])
    assert index is not None
    assert extent is not None
    ends = {index.key, (Affine({}, extent - 1) - index).key}
    rest: Expr = TRUE
    for part in conjuncts(guard):
        form = _natural(part)
        if form is None or form.key not in ends:
            rest = part if rest is TRUE else fn.logical_and(rest, part)
    return rest


def _natural(condition: Expr) -> Affine | None:
    """A form that is at least 0 where the comparison holds, and nowhere else."""
    if not isinstance(condition, Apply) or condition.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE):
        return None
    left, right = (affine_of(a) for a in condition.args)
    if left is None or right is None:
        return None
    if condition.fn in (Fn.LT, Fn.LE):
        left, right = right, left
    return left - right + (-1 if condition.fn in (Fn.LT, Fn.GT) else 0)


def _moved(
    rw: Rewriting, op: Compute, made: dict[tuple[Tensor, Expr], Tensor], read: Read, rest: Expr, lanes: int
) -> Expr:
    """The read of a padded tensor in place of one that leaves its rows."""
    tensor = read.tensor
    if (tensor, rest) not in made:
        extents = [number(e) or 0 for e in tensor.extents]
        axes = [Axis(f"p{k}", Const(n, INT32)) for k, n in enumerate((*extents[:-1], extents[-1] + 2 * lanes))]
        last = axes[-1]
        vector = last // lanes
        inside = fn.logical_and(vector >= 1, vector <= extents[-1] // lanes)
        at = fn.clip(vector - 1, 0, extents[-1] // lanes - 1) * lanes + last % lanes
        body = fn.select(inside, Read(tensor, (*axes[:-1], at)), rest)
        made[tensor, rest] = rw.compute(f"{op.name}_padded", axes, body)
        name = made[tensor, rest].op.name
        rw.kinds[name], rw.widths[name] = "padded", lanes
    return Read(made[tensor, rest], (*read.indices[:-1], read.indices[-1] + lanes))
