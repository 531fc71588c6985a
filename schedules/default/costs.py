"""What an element of a stage costs, and which stages are computed wherever they are read."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set as AbstractSet
from dataclasses import dataclass, field

from schedules.default.conditions import number
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read
from tedsl.lang.functions import FLOAT_BINARY, FLOAT_UNARY
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import reads_of, topological

__all__ = ["Costs", "costs_of", "points"]

INLINE = 12  # arithmetic that is cheaper than a trip to memory
UNKNOWN = 1024  # taken for an extent that is not known
_COSTLY = FLOAT_UNARY | FLOAT_BINARY | {Fn.POW, Fn.FLOORDIV, Fn.MOD, Fn.DIV}


@dataclass
class Costs:
    """The stages that are inlined, and what an element of each costs with all that is inlined into it."""

    inlined: set[Operation] = field(default_factory=set)
    element: dict[Operation, int] = field(default_factory=dict)
    readers: dict[Operation, list[tuple[Operation, Read]]] = field(default_factory=dict)


def costs_of(stages: Sequence[Operation], outputs: AbstractSet[Operation], planned: AbstractSet[str]) -> Costs:
    """Costs of stages given inputs before users. Outputs and what is `planned` already are never inlined."""
    costs = Costs()
    for op in stages:
        for read in reads_of(op.expressions):
            costs.readers.setdefault(read.tensor.op, []).append((op, read))
    for op in stages:
        costs.element[op] = sum(map(_cost_of, topological(op.expressions))) + sum(
            costs.element[r.tensor.op] for r in reads_of(op.expressions) if r.tensor.op in costs.inlined
        )
        if not isinstance(op, Compute) or op.reduction is not None or op in outputs or op.name in planned:
            continue
        sites = costs.readers.get(op, [])
        if costs.element[op] <= INLINE or (len(sites) == 1 and _once(*sites[0])):
            costs.inlined.add(op)
    return costs


def _cost_of(node: Expr) -> int:
    if isinstance(node, Apply):
        return 20 if node.fn in _COSTLY and not node.dtype.is_integer else 1
    return int(isinstance(node, Read))


def _once(consumer: Operation, read: Read) -> bool:
    """Whether the consumer reads each element about once: its loops are the read's indices."""
    if not isinstance(consumer, Compute):
        return False
    loops = set(consumer.axes)
    if consumer.reduction is not None:
        loops |= set(consumer.reduction.axes)
    used = {a for index in read.indices for a in topological(index) if isinstance(a, Axis)}
    return loops <= used


def points(axes: Sequence[Axis]) -> int:
    """Points of a box, with a guess for what is not known."""
    return math.prod(UNKNOWN if (n := number(a.extent)) is None else n for a in axes)
