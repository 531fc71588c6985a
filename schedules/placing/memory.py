"""What directives say of the memory of a stage inside loops, judged when the schedule is complete.

Memory that outlives a loop is shared by its iterations, so these must run one after another; a folded axis forgets what
is older than its length, so nobody may read that.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedules.directives import FoldStorage, HoistStorage
from schedules.loops import Level
from schedules.placing.regions import most_there
from schedules.placing.sliding import steps_of
from schedules.plan import Plan, dimensions
from tedsl.analysis.iteration import free_dimensions
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Axis
from tedsl.lang.tensor import Scatter

__all__ = ["check_fold", "check_hoist", "is_kept_between"]

Loops = Sequence[tuple[str, Level]]


def check_hoist(d: HoistStorage, outside: Loops, stored: tuple[str, str]) -> None:
    """Refuse memory outside of a loop that does not lie around it, or whose iterations would share it.

    `outside` are the loops around the stage, outermost first; its memory is inside of the one called `stored`.
    """
    names = [(consumer, level.name) for consumer, level in outside]
    if not names:
        raise ScheduleError(f"{d.stage} is not computed inside a loop; give it a compute_at first")
    last = names.index(stored) + 1 if stored in names else 0
    listed = ", ".join(f"{c}: {n}" for c, n in names[:last]) or "none"
    if d.consumer and (d.consumer, d.loop) not in names[:last]:
        raise ScheduleError(
            f"loop {d.loop!r} of {d.consumer} does not lie around the memory of {d.stage}; expected one of {listed}"
        )
    begin = names.index((d.consumer, d.loop)) + 1 if d.consumer else 0
    for consumer, level in outside[begin:last]:
        if level.kind not in ("serial", "unrolled"):
            raise ScheduleError(
                f"{consumer}'s loop {level.name!r}, which is {level.kind}, lies between the memory of {d.stage} and "
                "its computation; its iterations would share that memory: name a loop inside of it"
            )


def is_kept_between(plan: Plan, d: FoldStorage, between: Loops) -> str:
    """Why a folded axis would forget what is still read; "" where it does not."""
    op = plan.operation(d.stage)
    axis = dimensions(d.stage, op).index(d.axis)
    if isinstance(op, Scatter) and axis not in free_dimensions(op):
        return f"points of {d.stage} may lie anywhere along {d.axis!r}; fold an axis along which each is by itself"
    ((consumer, level),) = between
    if plan.cases(consumer):
        return f"{consumer} has loops of its own in some cases; leave specialize out"
    (origin,) = level.origin
    rate = steps_of(plan, d.stage, consumer, origin)[axis] if isinstance(origin, Axis) else 0
    if rate < 1:
        return f"what {consumer}'s loop {level.name!r} needs moves along {d.axis!r} by {rate}, expected forward"
    needed = most_there(plan, d.stage, axis)
    if needed is None:
        return (
            f"how much of {d.axis!r} one iteration of {consumer}'s loop {level.name!r} needs is no known number; fold "
            "an axis that is read at constant distances"
        )
    needed = max(needed, *(b.extent for b in plan.bounds(d.stage) if b.axis == d.axis), 1)
    if needed > d.factor:
        return (
            f"one iteration of {consumer}'s loop {level.name!r} needs {needed} elements along {d.axis!r}, expected at "
            f"most the factor, found {d.factor}; fold by {needed} or more"
        )
    return ""


def check_fold(plan: Plan, d: FoldStorage, between: Loops) -> None:
    """Refuse a folded axis where something that it forgets is read; `between`: loops from the memory to the stage."""
    if len(between) != 1:
        found = ", ".join(level.name for _, level in between) or "none"
        raise ScheduleError(
            f"an axis is folded where exactly one loop lies between the memory of {d.stage} and its computation, found "
            f"{found}; say where it is kept by store_at, one loop outside of compute_at"
        )
    reason = is_kept_between(plan, d, between)
    if reason:
        raise ScheduleError(reason)
