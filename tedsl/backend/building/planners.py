"""What `schedule=` means: a schedule of the user's, what a search remembered, an autoscheduler, or the default."""

from __future__ import annotations

from typing import Any

from schedules import Schedule
from schedules.automatic import AUTOSCHEDULERS, SCHEDULERS
from schedules.loops import one_of
from tedsl.backend.host.targets import Target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.scheduling.tuned_choices import recall
from tedsl.lang.errors import ScheduleError, warn_user
from tedsl.lang.tensor import Tensor

__all__ = ["planner_for"]


def planner_for(schedule: Any, outputs: tuple[Tensor, ...], target: Target, *, deterministic: bool) -> Planner:
    """The planner that follows `schedule=`."""
    if isinstance(schedule, Schedule):
        return _of_schedule(schedule, deterministic=deterministic)
    if schedule == "tuned":
        return _remembered(outputs, target)
    if schedule is None or schedule == "default":
        return Planner()
    if isinstance(schedule, str) and schedule in AUTOSCHEDULERS:
        return Planner(automatic=schedule, deterministic=deterministic)
    if not isinstance(schedule, str):
        raise TypeError(
            f"te.build: schedule must be a te.Schedule, None or the name of a scheduler, found {schedule!r:.40}"
        )
    raise ScheduleError(f"te.build: {_unknown(schedule)}")


def _of_schedule(schedule: Schedule, *, deterministic: bool) -> Planner:
    plan = schedule.plan
    given = {plan.program.current(t): t for t in (op.output(k) for op, k in plan.program.handles)}
    given.update(zip(plan.program.outputs, schedule.outputs, strict=True))
    return Planner(plan, given, plan.automatic, deterministic)


def _remembered(outputs: tuple[Tensor, ...], target: Target) -> Planner:
    """What te.tune found for a program; the default schedule, with a warning, where it found nothing."""
    choices = recall(outputs, target)
    if choices is None:
        names = ", ".join(t.name for t in outputs)
        warn_user(
            f"te.build: schedule='tuned': nothing is remembered for {names} on this machine; the default schedule is "
            f"used (te.tune([{names}], budget=60) searches for a better one)"
        )
    return Planner(choices=tuple(sorted((choices or {}).items())))


def _unknown(schedule: str) -> ScheduleError:
    try:
        one_of(schedule, SCHEDULERS, "scheduler", "schedulers")
    except ScheduleError as error:
        return error
    raise AssertionError(schedule)
