"""What a stage gets that no other schedule names: plain, safe for every extent.

Cheap pointwise stages are inlined, everything else is computed once. Loops over the last axis are vectorized, with a
guard for the rest, since the other strategies need extents of at least a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import halide as hl

from tedsl.backend.lower import Lowered, Result
from tedsl.backend.lower_stage import Stage
from tedsl.backend.targets import Machine
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.functions import FLOAT_BINARY, FLOAT_UNARY
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import reads_of, topological

__all__ = [
    "bound_result", "plan_inlining", "schedule_stage", "schedule_update", "vectorize_last",
]  # fmt: skip

INLINE_COST = 12
_COSTLY = FLOAT_UNARY | FLOAT_BINARY | {Fn.POW, Fn.FLOORDIV, Fn.MOD, Fn.DIV}


@dataclass
class _Plan:
    """Which stages are inlined, and what an element of each costs with all that is inlined into it."""

    inlined: set[Operation] = field(default_factory=set)
    cost: dict[Operation, int] = field(default_factory=dict)


def plan_inlining(lowered: Lowered) -> _Plan:
    plan = _Plan()
    outputs = {r.stage.op for r in lowered.results if r.stage is not None}
    uses: dict[Operation, list[tuple[Operation, Read]]] = {}
    for stage in lowered.stages:
        for read in reads_of(stage.op.expressions):
            uses.setdefault(read.tensor.op, []).append((stage.op, read))
    for stage in lowered.stages:
        op = stage.op
        plan.cost[op] = sum(map(_cost_of, topological(op.expressions))) + sum(
            plan.cost[r.tensor.op] for r in reads_of(op.expressions) if r.tensor.op in plan.inlined
        )
        if stage.kind != "pointwise" or op in outputs:
            continue
        sites = uses.get(op, [])
        if plan.cost[op] <= INLINE_COST or (len(sites) == 1 and _same_loops(*sites[0])):
            plan.inlined.add(op)
    return plan


def _cost_of(node: Expr) -> int:
    if isinstance(node, Apply):
        return 20 if node.fn in _COSTLY and not node.dtype.is_integer else 1
    return int(isinstance(node, Read))


def _same_loops(consumer: Operation, read: Read) -> bool:
    """Whether the consumer reads each element about once: its loops are the read's indices."""
    if not isinstance(consumer, Compute):
        return False
    loops = set(consumer.axes)
    if consumer.reduction is not None:
        loops |= set(consumer.reduction.axes)
    used = {a for index in read.indices for a in topological(index) if isinstance(a, Axis)}
    return loops <= used


def schedule_stage(stage: Stage, machine: Machine) -> None:
    """Computed once, in vectors along the last axis."""
    stage.func.compute_root()
    vectorize_last(stage.func, stage.dims, _itemsize(stage.op.outputs), machine)
    if stage.kind != "pointwise":
        schedule_update(stage, machine)


def schedule_update(stage: Stage, machine: Machine) -> None:
    """Vectors along the last axis where the update leaves it free and reads lie that way."""
    inner = stage.dims[-1] if stage.dims else None
    free = {loop.name() for loop in stage.axes.values() if isinstance(loop, hl.Var)}
    if inner is None or inner.name() not in free:
        return
    axis = next(a for a, loop in stage.axes.items() if loop is inner)
    if not _reads_along(stage.op, axis):
        return
    lanes = _lanes(axis.extent, _itemsize(stage.op.outputs), machine)
    if lanes > 1:
        update = stage.func.update(0)
        outer, vector = hl.Var(f"{inner.name()}_o"), hl.Var(f"{inner.name()}_v")
        update.split(inner, outer, vector, lanes, hl.TailStrategy.GuardWithIf)
        update.reorder(vector, *_update_loops(stage), outer)
        update.vectorize(vector)


def _update_loops(stage: Stage) -> list[hl.RVar]:
    loops = [*stage.reduce_axes.values()]
    return [loop for loop in loops if isinstance(loop, hl.RVar)]


def _reads_along(op: Operation, axis: Axis) -> bool:
    """Whether neighbours along `axis` are neighbours in memory in every read, or one and the same element."""
    for read in reads_of(op.expressions):
        inside = [d for d, index in enumerate(read.indices) if axis in set(topological(index))]
        if any(d != len(read.indices) - 1 for d in inside):
            return False
    return True


def _itemsize(tensors: Sequence[Tensor]) -> int:
    return max(t.dtype.itemsize for t in tensors)


def _lanes(extent: Expr | None, itemsize: int, machine: Machine) -> int:
    """Elements in a vector: a full register, less where the extent is known to be smaller."""
    lanes = machine.vector_bytes // max(4, itemsize)
    if isinstance(extent, Const):
        while lanes > extent.value and lanes > 1:
            lanes //= 2
    return lanes


def vectorize_last(
    func: hl.Func, dims: Sequence[hl.Var], itemsize: int, machine: Machine, extent: Expr | None = None
) -> None:
    if dims and (lanes := _lanes(extent, itemsize, machine)) > 1:
        func.vectorize(dims[-1], lanes, hl.TailStrategy.GuardWithIf)


def bound_result(lowered: Lowered, result: Result) -> None:
    """Tell Halide the extents of an output that are numbers: loops then need no tests for their ends."""
    if result.stage is None:
        return
    tensor = result.stage.op.output(result.stage.components[0])
    for dim, extent in zip(result.dims, tensor.extents, strict=True):
        if isinstance(extent, Const) and extent.value > 0:
            result.func.bound(dim, 0, int(extent.value))
