"""From a program to a plan: every stage by the first pattern that knows it."""

from __future__ import annotations

from collections.abc import Sequence

from schedules.default.machine import Machine
from schedules.default.panels import plan_contraction
from schedules.default.program import Plan, Rewriting, operations_between
from tedsl.lang.tensor import Compute, Tensor

__all__ = ["default_schedule"]


def default_schedule(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], machine: Machine, *, plain: bool = False
) -> Plan:
    """The plan for computing `outputs` from `inputs` on a machine; `plain` without what holds for finite numbers only."""
    rw = Rewriting(frozenset(inputs))
    for original in operations_between(inputs, outputs):
        op = rw.carried(original)
        if isinstance(op, Compute) and plan_contraction(rw, original, op, machine, plain=plain):
            continue
        rw.add(op, original)
    wanted = tuple(rw.new.get(t, t) for t in outputs)
    return Plan(wanted, tuple(rw.directives), tuple(rw.finite))
