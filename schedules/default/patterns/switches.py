"""Stages that choose by what is the same all along a row, such as a mode: computed by cases, each in loops of its own.

    out[y, x] = select(mode[0] == 0, f(a[y, x]), g(a[y, x]))   ->   if mode[0] == 0: f, else: g, for each row or for all

A vector would be computed both ways and one taken. Of stages that read each other and both choose, each has its cases
alone where the inner one is stored: written out in the other it would have them in each case of that one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

from schedules.choices import cases_of
from schedules.default.costs import value_cost
from schedules.machine import Machine
from schedules.pieces import Piece, written_out
from schedules.sizes import typical
from tedsl.lang.expr import Apply, Axis, Expr, Fn
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["asked_by", "each_with_cases", "pays_by_cases", "with_cases"]

MOST_NODES = 1600  # of all cases


def pays_by_cases(op: Compute, inlined: AbstractSet[Operation], along: Axis, machine: Machine) -> bool:
    """Whether a stage does much less in each of its cases along a loop than for all of them."""
    if op.reduction is not None or typical(along.extent) < machine.least.pieces:
        return False
    bodies = written_out(op, inlined)
    return bodies is not None and _pays(bodies, op.axes, along, machine)


def asked_by(op: Compute, inlined: AbstractSet[Operation], along: Axis) -> set[Axis]:
    """The loops on which it hangs in which of its cases along a loop a stage is."""
    cases = cases_of(Piece(op.axes, op.axes, written_out(op, inlined) or op.bodies), along)
    return set(free_axes([case.condition for case in cases]))


def with_cases(stages: Sequence[Operation], machine: Machine) -> set[Operation]:
    """The stages that it pays to compute by cases by what they are made of themselves, by data."""
    return {op for op in stages if _is_switched(op, machine)}


def each_with_cases(stages: Sequence[Operation], chosen: AbstractSet[Operation]) -> set[Operation]:
    """Those of the stages with cases that others of them are made of, given inputs before users."""
    below, found = set[Operation](), set[Operation]()
    for op in reversed(stages) if len(chosen) > 1 else ():
        if op in below and op in chosen:
            found.add(op)
        if op in below or op in chosen:
            below.update(t.op for t in op.inputs)
    return found


def _is_switched(op: Operation, machine: Machine) -> bool:
    if not isinstance(op, Compute) or op.reduction is not None or not op.axes:
        return False
    asked = [n.args[0] for n in op.nodes if isinstance(n, Apply) and n.fn is Fn.SELECT]
    if not any(reads_of((c,)) and op.axes[-1] not in set(free_axes(c)) for c in asked):
        return False
    return _pays(op.bodies, op.axes, op.axes[-1], machine)


def _pays(bodies: tuple[Expr, ...], axes: tuple[Axis, ...], along: Axis, machine: Machine) -> bool:
    if not any(isinstance(n, Apply) and n.fn is Fn.SELECT for n in topological(bodies)):
        return False
    cases = cases_of(Piece(axes, axes, bodies), along)
    if len(cases) == 1 or sum(len(topological(case.bodies)) for case in cases) > MOST_NODES:
        return False
    return value_cost(bodies) - max(value_cost(case.bodies) for case in cases) >= machine.least.cases
