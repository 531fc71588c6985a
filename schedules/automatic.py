"""Schedules that nobody writes: the default one, spelled out as directives, and those of Halide's autoschedulers.

The default schedule becomes part of the plan at once, so it prints, saves and can be changed. One of Halide's is made
when a kernel is built, for all stages at once, so it stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from schedules.default import Machine, completed
from schedules.directives import Auto
from schedules.loops import one_of
from schedules.plan import Plan, Step
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Extern, Operation, Scan, Tensor
from tedsl.lang.traverse import topological

__all__ = ["AUTOSCHEDULERS", "SCHEDULERS", "advanced", "check_limits", "machine_for", "on_machines"]

AUTOSCHEDULERS = ("mullapudi2016", "adams2019", "li2018", "anderson2021")
SCHEDULERS = ("default", *AUTOSCHEDULERS)

_MACHINES: list[Callable[[str], Machine]] = []


def on_machines(figures: Callable[[str], Machine]) -> None:
    """Register who knows the machines that there are targets for."""
    _MACHINES[:] = [figures]


def machine_for(target: str) -> Machine:
    """The machine that kernels for a target run on."""
    if not _MACHINES:
        raise ScheduleError("nothing that compiles kernels is loaded; take Schedule from tedsl, not from schedules")
    return _MACHINES[0](target)


def advanced(plan: Plan, step: Step) -> Plan:
    """The plan with one more directive, or a ScheduleError."""
    directive = step.directive
    if plan.automatic:
        raise step.refused(
            f"{plan.automatic} schedules every stage itself when a kernel is built; "
            "directives and it cannot be combined, those of auto('default') can"
        )
    if not isinstance(directive, Auto):
        return plan.after(step)
    try:
        return _automatic(plan, directive)
    except ScheduleError as error:
        raise step.refused(error) from None


def _automatic(plan: Plan, d: Auto) -> Plan:
    one_of(d.scheduler, SCHEDULERS, "scheduler", "schedulers")
    if d.scheduler == "default":
        try:
            machine = Machine.from_json(dict(d.machine))
        except ValueError as error:
            raise ScheduleError(str(error)) from None
        return completed(plan, (), plan.program.outputs, machine.tuned())
    if plan.is_begun:
        raise ScheduleError(
            f"the schedule has directives, and {d.scheduler} schedules every stage itself; begin with a new te.Schedule"
        )
    check_limits(d.scheduler, plan.program.stages.values(), plan.program.outputs)
    return plan.scheduled_by(d.scheduler)


def check_limits(scheduler: str, operations: Iterable[Operation], outputs: Iterable[Tensor]) -> None:
    """Refuse what Halide's autoschedulers cannot do: extents without a number, stages that no kernel computes."""
    operations = list(operations)
    for op in operations:
        if isinstance(op, Extern):
            raise ScheduleError(
                f"{op.name} is a Python function, computed between kernels; {scheduler} needs one kernel"
            )
        if scheduler == "anderson2021" and isinstance(op, Scan):
            raise ScheduleError(f"{op.name} is a scan, which anderson2021 would run in a single thread of the GPU")
    made = [t for op in operations for t in op.outputs]
    tensors = dict.fromkeys((*outputs, *made, *(t for op in operations for t in op.inputs)))
    symbols = {n.name: t for t in tensors for n in topological(t.extents) if isinstance(n, Var)}
    if symbols:
        name, tensor = next(iter(symbols.items()))
        raise ScheduleError(
            f"{scheduler} needs a number for every extent: {', '.join(symbols)} {'is' if len(symbols) == 1 else 'are'} "
            f"symbolic ({tensor!r}); write the program with the number in the place of te.var({name!r})"
        )
