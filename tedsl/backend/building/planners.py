"""What `schedule=` means: a schedule of the user's, what a search remembered, an autoscheduler, or the default."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from schedules import Schedule
from schedules.automatic import AUTOSCHEDULERS, SCHEDULERS
from schedules.directives import Auto
from schedules.loops import one_of
from schedules.machine import Choices, Machine, assumed
from schedules.tuning import QUICK, settled
from tedsl.analysis.sizes import vars_of
from tedsl.backend.host.targets import Target, machine_of
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.scheduling.tuned_choices import recall
from tedsl.lang.errors import ScheduleError, warn_user
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["check_opt", "planner_for"]

OPTIONS = ("fast", "default", "best")
BEST = 10.0  # seconds of a search, where there was none before

# What searches stands above what is built, so it is asked by name, and when somebody asks.
SEARCH = "tedsl.backend.tune"


def planner_for(
    schedule: Any, outputs: tuple[Tensor, ...], target: Target, *, deterministic: bool, opt: str = "default"
) -> Planner:
    """The planner that follows `schedule=`, or `opt=` where the schedule is left to us."""
    check_opt(opt, "te.build")
    if opt != "default":
        if schedule is not None and schedule != "default":
            raise ValueError(
                f"te.build: opt={opt!r} says how much work the default schedule is worth, found schedule="
                f"{schedule!r:.40} beside it; leave one of the two out"
            )
        return _quick() if opt == "fast" else _searched(outputs, target)
    if isinstance(schedule, Schedule):
        choices = _choices_alone(schedule, target)
        if choices is not None:  # the default, with axes that go together as one
            return Planner(choices=choices, deterministic=deterministic)
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


def check_opt(opt: str, what: str) -> None:
    """Refuse what is no word for how much work the default schedule is worth."""
    if opt not in OPTIONS:
        raise ValueError(f"{what}: opt must be one of {', '.join(map(repr, OPTIONS))}, found {opt!r:.40}")


def _choices_alone(schedule: Schedule, target: Target) -> Choices | None:
    """What a schedule chooses that says no more than nothing, or `auto()` for this target; None for any other one."""
    if not schedule.directives:
        return assumed()
    first = schedule.directives[0]
    if not isinstance(first, Auto) or first.scheduler != "default":
        return None
    figures = dict(first.machine)
    machine = Machine.from_json(figures)
    if settled(machine_of(target), dict(machine.choices)) != machine.tuned():
        return None
    alone = Schedule(schedule.outputs).auto(machine=figures)
    return machine.choices if alone.directives == schedule.directives else None


def _of_schedule(schedule: Schedule, *, deterministic: bool) -> Planner:
    plan = schedule.plan
    given = {plan.program.current(t): t for t in (op.output(k) for op, k in plan.program.handles)}
    given.update(zip(plan.program.outputs, schedule.outputs, strict=True))
    return Planner(plan, given, plan.automatic, deterministic)


def _quick() -> Planner:
    """Small loop bodies, which are compiled sooner."""
    return Planner(choices=tuple(sorted({**QUICK, **dict(assumed())}.items())))


def _searched(outputs: tuple[Tensor, ...], target: Target) -> Planner:
    """What a search found before, or finds now."""
    if recall(outputs, target) is None:
        reason = _not_measured(outputs, target)
        if reason is not None:
            warn_user(f"te.build: opt='best' finds a schedule by measuring: {reason}; the default schedule is used")
            return Planner()
        import_module(SEARCH).tune(list(outputs), budget=BEST, target=target.name)
    return Planner(choices=tuple(sorted((recall(outputs, target) or {}).items())))


def _not_measured(outputs: tuple[Tensor, ...], target: Target) -> str | None:
    """Why a program cannot be run with arrays that are drawn."""
    extents = [e for op in stages_of(outputs) for t in op.outputs for e in t.extents]
    symbols = dict.fromkeys(v.name for e in extents for v in vars_of(e))
    if symbols:
        return f"the extent {next(iter(symbols))!r} is no number (te.tune takes sizes=)"
    if target.backend != "host" or target.problem is not None:
        return f"code for {target.name!r} does not run here"
    return None


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
        one_of(schedule, (*SCHEDULERS, "tuned"), "scheduler", "schedulers")
    except ScheduleError as error:
        return error
    raise AssertionError(schedule)
