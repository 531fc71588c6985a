"""The program that runs behind a kernel: found in this process or on the disk, cut into steps, or compiled."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from schedules import Schedule
from schedules.automatic import AUTOSCHEDULERS
from tedsl.analysis.messages import describe
from tedsl.backend.building.request import BuildRequest
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import Executable, Shared
from tedsl.backend.compiling.memory_cache import cached_core
from tedsl.backend.sequence.restored import executable_for
from tedsl.backend.sequence.steps import Steps, finest
from tedsl.lang.errors import ScheduleError

__all__ = ["made_for", "shared_executable"]


def made_for(request: BuildRequest, program: Compilation) -> Shared:
    """The executable of what was asked for; `program` may be planned in another way than the request says."""
    if request.options.is_saving:
        return Shared(_saving(request, program))
    schedule = request.options.schedule
    if isinstance(schedule, Schedule):
        _check_outputs(schedule, program)
        if program.planner.is_asked:  # one that says no more than `auto()` leaves all to us
            return Shared(_scheduled(schedule, program))
    return shared_executable(program)


def shared_executable(program: Compilation) -> Shared:
    """One that equal programs share."""
    return cached_core(program, partial(executable_for, program))


def _saving(request: BuildRequest, program: Compilation) -> Executable:
    """A program in as many steps as it can be cut into, some of which run again."""
    options, schedule = request.options, request.options.schedule
    if isinstance(schedule, Schedule) or program.target.backend != "host" or schedule in AUTOSCHEDULERS:
        raise ScheduleError(
            "te.build: memory= and checkpoint= need the default schedule (or 'tuned') and target='host'; "
            "a te.Schedule says itself what is stored and what is computed again"
        )
    from tedsl.backend.sequence.memory_limit import refuse_sizes, save_memory  # slow to load, and seldom needed

    refuse_sizes(program, options.memory)
    plan = finest(program).plan
    return Steps(program, save_memory(program, plan, options.memory, options.checkpoint))


def _scheduled(schedule: Schedule, program: Compilation) -> Executable:
    """The executable for a user's schedule, compiled at once, so that what it refuses is refused here."""
    planned = schedule.plan.program
    made = dict(zip(schedule.outputs, planned.outputs, strict=True))
    inputs, outputs = tuple(map(planned.current, program.inputs)), tuple(made[t] for t in program.outputs)
    core = executable_for(replace(program, inputs=inputs, outputs=outputs))
    with suppress(IndexError):  # for the call to say, as without a schedule: it may have no points
        core.compile()
    return core


def _check_outputs(schedule: Schedule, program: Compilation) -> None:
    known = set(schedule.outputs)
    for tensor in program.outputs:
        if tensor not in known:
            listed = ", ".join(f"{t.name} ({describe(t.op)})" for t in schedule.outputs)
            raise ScheduleError(
                f"te.build: output {tensor!r}, {describe(tensor.op)}, is not one of the schedule's outputs: {listed}"
            )
