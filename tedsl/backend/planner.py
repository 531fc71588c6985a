"""From a program to Halide's functions, scheduled: what a schedule says, and the default schedule for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from schedules.default import completed
from schedules.plan import Plan
from schedules.program import program_of
from tedsl.backend.apply import apply_plan, check_target
from tedsl.backend.lower import Lowered, lower
from tedsl.backend.targets import Target, machine_of
from tedsl.lang.tensor import Tensor

__all__ = ["Planner"]


@dataclass(frozen=True)
class Planner:
    """How a kernel is scheduled. `plan`: what the user says; `choices`: of the default scheduler.

    `merged`: outputs of one shape may share a loop nest.
    """

    plan: Plan | None = None
    choices: tuple[tuple[str, int], ...] = ()
    merged: bool = True

    def lowered(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], added: Iterable[int], target: Target, *, plain: bool
    ) -> Lowered:
        """The functions that compute `outputs` from `inputs`; `plain`: without what holds for finite numbers only."""
        machine = replace(machine_of(target), choices=self.choices)
        given = Plan(program_of(outputs)) if self.plan is None else self.plan
        check_target(given, target.backend)
        plan = completed(given, inputs, outputs, machine, plain=plain, merged=self.merged)
        lowered = lower(inputs, plan.program.outputs, added=added, finite=plan.finite)
        apply_plan(plan, lowered, machine)
        return lowered
