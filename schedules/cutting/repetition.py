"""What is computed twice in a program, computed once.

`te.exp(x - x.max()) / te.exp(x - x.max()).sum()` is two maxima and two exponentials as it is written. Operations that
are equal but for the names of their loops become one; results keep operations of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from schedules.program import reading
from tedsl.lang.expr import Axis, Expr, Read, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import operations_between, rebuild_all

__all__ = ["Definition", "Definitions", "copied_by", "over_shared_loops", "without_repetition"]

Definition = tuple[tuple[Axis, ...], tuple[Expr, ...]]
T = TypeVar("T")


def copied_by(op: Operation) -> Tensor | None:
    """The tensor that an operation copies, element by element and whole; None where it does something else."""
    if not isinstance(op, Compute) or len(op.bodies) != 1 or not isinstance(op.bodies[0], Read):
        return None
    read = op.bodies[0]
    whole = len(read.indices) == len(op.axes) and all(map(operator.is_, read.indices, op.axes))
    return read.tensor if whole and all(map(same_extent, read.tensor.extents, op.output().extents)) else None


def without_repetition(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs, of a program in which no operation is computed beside an equal one.

    An operation of which one result is given and another needed becomes one beside what is given.
    """
    wanted, given, new = set(outputs), set(inputs), dict[Tensor, Tensor]()
    definitions: Definitions[Compute] = Definitions()
    for op in operations_between(inputs, outputs):
        made = reading(op, new) if new else op
        if isinstance(made, Compute):
            known = definitions.first(made, made)
            if known is not made and wanted.isdisjoint(op.outputs):
                made = known
        if made is op and not given.isdisjoint(op.outputs):
            made = replace(op, _outputs={})
        if made is not op:
            new.update((old, now) for old, now in zip(op.outputs, made.outputs, strict=True) if old not in given)
    return tuple(new.get(t, t) for t in outputs)


class Definitions(Generic[T]):
    """What was made first of each definition, loops of other names aside."""

    def __init__(self) -> None:
        self._loops: dict[Any, Axis] = {}
        self._first: dict[tuple[int, ...], tuple[T, Definition]] = {}

    def first(self, op: Compute, made: T) -> T:
        """What was made of the first operation that is defined as `op` is; if that is the first, `made`."""
        definition = over_shared_loops(op, self._loops)
        key = tuple(id(node) for part in definition for node in part)
        return self._first.setdefault(key, (made, definition))[0]  # which keeps the nodes, and so their numbers


def over_shared_loops(op: Compute, loops: dict[Any, Axis]) -> Definition:
    """The definition over loops that are the same for every operation: equal ones are then the same nodes."""
    reduce = op.reduction
    renamed: dict[Expr, Axis] = {}
    for place, axis in enumerate((*op.axes, *(() if reduce is None else reduce.axes))):
        kind = place, axis.is_reduce, id(axis.begin), id(axis.extent)
        if kind not in loops:
            loops[kind] = Axis(axis.name, axis.extent, begin=axis.begin, is_reduce=axis.is_reduce)
        renamed[axis] = loops[kind]

    def rule(node: Expr) -> Expr:
        if isinstance(node, Reduce):
            return node.with_axes(tuple(renamed[a] for a in node.axes))
        return renamed.get(node, node)

    return tuple(renamed[a] for a in op.axes), rebuild_all(op.bodies, rule)
