"""Sums for every element of a short row, which share a costly factor t: one for each element, made in one walk.

    y[i, d] = sum over j of v[i, j, d] t[i, j]   ->   y0[i] = sum over j of v[i, j, 0] t[i, j],  y1[i] = ...
                                                      y[i, d] = select(d == 0, y0[i], y1[i])

As it is written a vector lies along the row, of which most lanes are empty, and holds one factor in all of them: forces
between bodies in space are three numbers for each pair, of one distance. Sums of their own have vectors along terms, or
along other loops of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from schedules.default.costs import is_costly, is_pointwise
from schedules.default.neighbors import last_of
from schedules.default.patterns.across import turned_table
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, rebuild_all, substitute_all, topological

__all__ = ["plan_short_row"]

FILLED = 2  # a row is short where so many fit a vector
REUSE = 8  # times that an element of what is copied is read


def plan_short_row(
    rw: Rewriting, original: Operation, op: Compute, may_pass: Callable[[Operation], bool], machine: Machine,
    plan: Callable[[Operation, Compute], None],
) -> bool:  # fmt: skip
    """A reduction of its own for each element of the last axis, and their choice; False where they share nothing.

    `may_pass`: stages that are there for their readers alone, whose operations are those of the terms.
    """
    count = _short(op, machine)
    if count == 0 or not _shares(op, may_pass):
        return False
    own, company, rw.current, rw.company = rw.current, rw.company, "", rw.company * count
    *outer, last = op.axes
    op = _columns_apart(rw, op)
    found: list[Expr] = []
    for place in range(count):
        axes = tuple(Axis(a.name, a.extent) for a in outer)
        at: dict[Expr, Expr] = {**dict(zip(outer, axes, strict=True)), last: Const(place, INT32)}
        name = rw.current = rw.name(f"{op.name}_{place}")
        part = replace(op, name=name, axes=axes, bodies=_apart(op, at), names=None, _outputs={})
        plan(part, part)
        found.append(Read(rw.new.get(part.output(), part.output()), tuple(outer)))
    rw.current, rw.company = own, company
    body = found[-1]
    for place in reversed(range(count - 1)):
        body = fn.select(last == place, found[place], body)
    rw.add(replace(op, name=rw.name(op.name), bodies=(body,), names=None, _outputs={}), original)
    return True


def _columns_apart(rw: Rewriting, op: Compute) -> Compute:
    """The reduction with the columns of small matrices that it reads lying in one piece each."""
    assert op.reduction is not None
    points = math.prod(number(a.extent) or 0 for a in (*op.axes, *op.reduction.axes))
    made: dict[Tensor, Tensor] = {}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or len(node.indices) < 2 or not _is_column(node, op.axes[-1], points):
            return node
        if node.tensor not in made:
            made[node.tensor] = turned_table(rw, op.name, node.tensor, len(node.indices) - 2)
        return Read(made[node.tensor], last_of(node.indices, len(node.indices) - 2))

    return replace(op, bodies=rebuild_all(op.bodies, rule), _outputs={})


def _is_column(read: Read, last: Axis, points: int) -> bool:
    """Whether elements of one column of a matrix are read, many times each."""
    size = math.prod(number(n) or math.inf for n in read.tensor.extents)
    *_, row, column = read.indices
    return size * REUSE <= points and bool(free_axes(row)) and not set(free_axes(column)) - {last}


def _apart(op: Compute, at: dict[Expr, Expr]) -> tuple[Expr, ...]:
    """The reduction at one element of the row, over loops of its own."""
    reduce = op.reduction
    assert reduce is not None
    loops = tuple(Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in reduce.axes)
    value, where = substitute_all(
        (reduce.values[0], reduce.where), {**at, **dict(zip(reduce.axes, loops, strict=True))}
    )
    return (Reduce(reduce.reducer, (value,), loops, where, 0),)


def _short(op: Compute, machine: Machine) -> int:
    """How many elements a row of sums has that fills no vector; else 0."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) != 1 or reduce.reducer.kind != "sum" or len(op.axes) < 2:
        return 0
    count = number(op.axes[-1].extent) or 0
    is_short = count > 1 and count * FILLED * max(4, reduce.values[0].dtype.itemsize) <= machine.vector_bytes
    return count if is_short else 0


def _shares(op: Compute, may_pass: Callable[[Operation], bool]) -> bool:
    """Whether the sums of a row share something costly, or a stage that computes such a thing."""
    reduce = op.reduction
    assert reduce is not None
    last, changing = op.axes[-1], set(reduce.axes)
    for node in topological(reduce.values):
        if last not in (free := set(free_axes(node))) and free & changing and _is_costly(node, may_pass):
            return True
    return False


def _is_costly(node: Expr, may_pass: Callable[[Operation], bool]) -> bool:
    """Whether an operation is costly, or a read of what such operations compute in stages that are there for it."""
    if not isinstance(node, Read):
        return isinstance(node, Apply) and is_costly(node)
    seen: set[Operation] = set()
    ahead = [node.tensor.op]
    while ahead:
        stage = ahead.pop()
        if stage in seen or not is_pointwise(stage) or not may_pass(stage):
            continue
        seen.add(stage)
        if any(isinstance(n, Apply) and is_costly(n) for n in stage.nodes):
            return True
        ahead += [t.op for t in stage.inputs]
    return False
