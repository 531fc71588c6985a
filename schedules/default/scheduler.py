"""From a program to a plan: every stage by the first pattern that knows it."""

from __future__ import annotations

from collections.abc import Sequence

from schedules.default.costs import costs_of
from schedules.default.lanes import rewrite_reduction
from schedules.default.machine import Machine
from schedules.default.nests import plan_nests
from schedules.default.outputs import merge_outputs
from schedules.default.panels import plan_contraction
from schedules.default.program import Plan, Rewriting, computed_between
from tedsl.lang.tensor import Compute, Tensor

__all__ = ["default_schedule"]


def default_schedule(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], machine: Machine, *, plain: bool = False
) -> Plan:
    """The plan for `outputs` from `inputs` on a machine; `plain`: without what holds for finite numbers only."""
    rw = Rewriting(frozenset(inputs))
    for original in computed_between(inputs, outputs):
        op = rw.carried(original)
        if isinstance(op, Compute) and plan_contraction(rw, original, op, machine, plain=plain):
            continue
        if isinstance(op, Compute) and rewrite_reduction(rw, original, op, machine):
            continue
        rw.add(op, original)
    wanted = merge_outputs(rw, [rw.new.get(t, t) for t in outputs])
    finals = {t.op for t in wanted}
    costs = costs_of(rw.stages, finals, rw.planned)
    plan_nests(rw, finals, costs, machine)
    return Plan(wanted, tuple(rw.directives), tuple(rw.finite))
