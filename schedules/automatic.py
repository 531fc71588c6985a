"""Schedules that nobody writes: the default one, spelled out as directives, and those of Halide's autoschedulers.

The default schedule becomes part of the plan at once, so it prints, saves and can be changed. One of Halide's is made
when a kernel is built, for all stages at once, so it stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from schedules.default import WHERE, Completion, Machine, completion, left_open
from schedules.directives import (
    Auto,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    Directive,
    LoopDirective,
    Split,
    StoreAt,
    StoreRoot,
    Vectorize,
)
from schedules.loops import definitions_of, one_of
from schedules.placing.following import with_followers
from schedules.placing.placement import placed
from schedules.plan import Plan, Step, described
from schedules.program import program_of
from schedules.written.order import regrouped_between
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Extern, Operation, Scan, Tensor
from tedsl.lang.traverse import topological

__all__ = [
    "AUTOSCHEDULERS",
    "SCHEDULERS",
    "advanced",
    "check_limits",
    "machine_for",
    "on_machines",
    "rewritten_loop",
    "vectors_by_default",
    "why_not_built",
]

AUTOSCHEDULERS = ("mullapudi2016", "adams2019", "li2018", "anderson2021")
SCHEDULERS = ("default", *AUTOSCHEDULERS)

PLACES = (ComputeAt, ComputeInline, ComputeRoot, StoreAt, StoreRoot)
STORES = (StoreAt, StoreRoot)

_MACHINES: list[Callable[[str], Machine]] = []


def on_machines(figures: Callable[[str], Machine]) -> None:
    """Register who knows the machines that there are targets for."""
    _MACHINES[:] = [figures]


def machine_for(target: str) -> Machine:
    """The machine that kernels for a target run on."""
    if not _MACHINES:
        raise ScheduleError("nothing that compiles kernels is loaded; take Schedule from tedsl, not from schedules")
    return _MACHINES[0](target)


def advanced(plan: Plan, step: Step) -> tuple[Plan, tuple[Step, ...]]:
    """The plan with one more directive, and the directives that it amounts to; or a ScheduleError.

    The default schedule amounts to those of its loops and places, so that each can be read, changed and left out.
    """
    directive = step.directive
    if plan.automatic:
        raise step.refused(
            f"{plan.automatic} schedules every stage itself when a kernel is built; "
            "directives and it cannot be combined, those of auto('default') can"
        )
    if not isinstance(directive, Auto):
        changed = plan.after(step)
        return with_followers(changed) if isinstance(directive, PLACES) else changed, (step,)
    try:
        one_of(directive.scheduler, SCHEDULERS, "scheduler", "schedulers")
        if directive.scheduler != "default":
            return _automatic(plan, directive), (step,)
        made = _default(plan, directive)
    except ScheduleError as error:
        raise step.refused(error) from None
    if not directive.loops:
        return made.stages, (step,)
    alone = replace(step, directive=replace(directive, loops=False), call=step.call or described(directive))
    return made.plan, (alone, *(Step(d, WHERE) for d in _in_order(made.directives)))


def _default(plan: Plan, d: Auto) -> Completion:
    try:
        machine = Machine.from_json(dict(d.machine))
    except ValueError as error:
        raise ScheduleError(str(error)) from None
    found = completion(plan, (), plan.program.outputs, machine.tuned())
    unlike = regrouped_between(plan.program, found.stages.program) - found.in_order
    changed = plan.regrouped | found.stages.regrouped | unlike
    return replace(found, stages=replace(found.stages, regrouped=changed), plan=replace(found.plan, regrouped=changed))


def rewritten_loop(d: Directive, plan: Plan, steps: Iterable[Step], outputs: Sequence[Tensor]) -> str:
    """What is said of a loop of the program as it is written that the default schedule has rewritten; "" of others."""
    auto = next((s for s in steps if isinstance(s.directive, Auto)), None)
    if auto is None or not isinstance(d, LoopDirective):
        return ""
    written = Plan(program_of(outputs))
    if d.stage not in written.program.stages or d.definition not in definitions_of(written.operation(d.stage)):
        return ""
    said = {name for f in fields(d) for name in _flat(getattr(d, f.name))}
    now = plan.nest(d.stage, d.definition)
    names = written.nest(d.stage, d.definition).names
    lost = [n for n in names if n in said and n not in now.names and not now.became(n)]
    if not lost:
        return ""
    return (
        f"{auto.call or described(auto.directive)} at {auto.where} has written {d.stage} in another form: loop "
        f"{lost[0]!r} is there without it, and stays if a directive of {d.stage} is given before it"
    )


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def why_not_built(plan: Plan) -> str:
    """Why te.build refuses the plan as it stands, which a later directive may mend; "" if it does not.

    What is computed inside a loop may be read by a stage that is left to the default schedule: it is asked where that
    computes it, and only then.
    """
    try:
        placed(plan)
    except ScheduleError as error:
        if not _MACHINES:
            return str(error)
    else:
        return ""
    try:
        completion(plan, (), plan.program.outputs, _machine_of(plan))
    except ScheduleError as error:
        return str(error)
    return ""


def vectors_by_default(plan: Plan) -> list[str]:
    """Where te.build makes vectors of loops that nobody spoke of, in a plan that it does not refuse."""
    if not _MACHINES:
        return []
    made = left_open(plan, _machine_of(plan))
    vectors = {(d.stage, d.definition, d.loop) for d in made if isinstance(d, Vectorize)}
    return [
        f"{d.stage}{'.init' if d.definition == 'init' else ''} along {d.loop}"
        for d in made
        if isinstance(d, Split) and (d.stage, d.definition, d.inner) in vectors
    ]


def _machine_of(plan: Plan) -> Machine:
    """The machine that a plan is for, by its loops."""
    kinds = {v.kind for key in plan.loops for v in plan.nest(*key).levels}
    return machine_for("cuda" if any(kind.startswith("gpu") for kind in kinds) else "host").tuned()


def _in_order(directives: Iterable[Directive]) -> list[Directive]:
    """Loops before the places in them, and places before the memory around them."""
    return sorted(directives, key=lambda d: (isinstance(d, PLACES), isinstance(d, STORES)))


def _automatic(plan: Plan, d: Auto) -> Plan:
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
