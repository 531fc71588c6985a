"""`te.build` and `te.evaluate`: from tensors to a kernel, and from tensors and arrays to arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from schedules import Schedule
from schedules.automatic import AUTOSCHEDULERS, SCHEDULERS
from schedules.loops import one_of
from tedsl.analysis.feeds import as_outputs
from tedsl.analysis.messages import describe
from tedsl.backend.calling.accumulate import Accumulating, addends
from tedsl.backend.calling.aliasing import alias_positions, check_proof, hazards_in
from tedsl.backend.calling.donation import Donations, donated_positions, donations_of
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling.core import Core
from tedsl.backend.compiling.memory_cache import cached_core
from tedsl.backend.host.targets import Target, parse_target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.scheduling.tuned_choices import recall
from tedsl.backend.sequence.memory_limit import save_memory
from tedsl.backend.sequence.restored import made_core
from tedsl.backend.sequence.steps import finest
from tedsl.lang.constants import constants_of
from tedsl.lang.errors import AliasError, ScheduleError, warn_user
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Constant, Placeholder, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Schedule", "build", "evaluate", "made_kernel"]

_Made = tuple[Core, dict[Var, Var] | None]  # a core, and its variables for those of the program, if they differ


def build(
    inputs: Any,
    outputs: Any,
    schedule: Any = None,
    target: str = "host",
    alias: Mapping[Tensor, Tensor] | None = None,
    donate: Any = None,
    on_hazard: Any = None,
    deterministic: bool = True,
    name: str | None = None,
    checkpoint: Any = None,
    memory: int | str | None = None,
) -> Kernel:
    """A kernel that computes `outputs` from arrays for `inputs`; one tensor gives one array, a list gives a tuple.

    It is compiled here, for arrays whose last axis is contiguous; other layouts compile when a call first brings one.
    `alias` {output: input} writes outputs into the memory of inputs, `donate` lists inputs whose memory may be taken
    for any output or intermediate result that it fits; both are proven safe here. `on_hazard` says what to do where
    there is no proof: "error" (the default for those two), or "copy" (through a temporary; the default where arrays
    given to out= overlap inputs; a donation that cannot be used is a warning then). `deterministic` forbids schedules
    that add with atomics, whose sums are rounded in another order in every run.

    `checkpoint` lists tensors to keep: what they are made of is computed again where somebody needs it later, as the
    gradients of a network do. `memory`, bytes or "512MB", lets as much be computed again as makes a call fit.
    `kernel.program` tells the peak of memory, and the extra work.
    """
    if on_hazard not in (None, "copy", "error"):
        raise ValueError(f"te.build: on_hazard must be 'copy' or 'error', found {on_hazard!r}")
    kernel = _kernel(inputs, outputs, schedule, target, alias, on_hazard, name, donate, deterministic,
                     saving=(memory, checkpoint))  # fmt: skip
    kernel.compile()
    return kernel


def _kernel(
    inputs: Any,
    outputs: Any,
    schedule: Any = None,
    target: str = "host",
    alias: Mapping[Tensor, Tensor] | None = None,
    on_hazard: str | None = None,
    name: str | None = None,
    donate: Any = None,
    deterministic: bool = True,
    what: str = "te.build",
    saving: tuple[Any, Any] = (None, None),
) -> Kernel:
    results, several = as_outputs(outputs, what)
    if not results:
        raise ValueError(f"{what}: outputs is empty; name at least one tensor to compute")
    named = _checked_inputs(inputs, results, what)
    constants = constants_of(named, results)
    given = (*named, *constants)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{what}: name is a string, found {type(name).__name__} ({name!r:.40})")
    if name is not None and not name.strip():
        raise ValueError(f"{what}: the name of a kernel has letters, found {name!r:.40}; leave it out, or give one")
    title = name or "_".join(dict.fromkeys(t.name for t in results[:3]))
    if alias is not None and not isinstance(alias, Mapping):
        raise TypeError(f"te.build: alias is a dict {{output: input}}, found {type(alias).__name__}")
    places = alias_positions(alias or {}, named, results)
    wanted = donated_positions(donate, named)
    request = _Request(given, results, title, parse_target(target), schedule, deterministic, saving)
    accumulating = _accumulating(request, places) if request.is_default else None
    core, sizes = request.core(request.planner)
    if places and accumulating is None:
        core, sizes = _proven(request, core, sizes, places, on_hazard)
    donations = donations_of(core, wanted, places, given, results)
    if donations.in_turn and accumulating is None:
        core, sizes, donations = _together(request, core, sizes, donations, wanted, places)
    if donations.refused:
        cut, donations = _cut_for_donations(core, donations, wanted, places, given, results)
        accumulating = accumulating if cut is core else None
        core = cut
    donations.check(given, on_hazard)
    places.update({p: k for k, p in donations.taken.items()})
    return Kernel(core, named, results, several, places, sizes, on_hazard, accumulating, donations, constants=constants)


@dataclass(frozen=True, eq=False)
class _Request:
    """What a kernel is asked to be."""

    given: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    title: str
    target: Target
    schedule: Any
    deterministic: bool
    saving: tuple[Any, Any]  # memory, checkpoint

    @property
    def is_saving(self) -> bool:
        """Whether some of it may be computed again."""
        return any(asked is not None for asked in self.saving)

    @property
    def is_default(self) -> bool:
        """Whether all of it is left to us."""
        return not self.is_saving and (self.schedule is None or self.schedule == "default")

    @cached_property
    def planner(self) -> Planner:
        """How it is to be scheduled."""
        if isinstance(self.schedule, Schedule):
            return _of_schedule(self.schedule, self.deterministic)
        if self.schedule == "tuned":
            return _remembered(self.results, self.target)
        return _planner(self.schedule, self.deterministic)

    def core(self, planner: Planner) -> _Made:
        """The program, scheduled by a planner that may differ from its own in what the user did not ask for."""
        parts = self.given, self.results, self.title, self.target
        if self.is_saving:
            return _saving(*parts, self.schedule, planner, *self.saving), None
        if isinstance(self.schedule, Schedule):
            return _scheduled(*parts, self.schedule, planner), None
        return _cached(*parts, planner)


def _cut_for_donations(
    core: Core, donations: Donations, wanted: Sequence[int], places: Mapping[int, int],
    given: tuple[Tensor, ...], results: tuple[Tensor, ...],
) -> tuple[Core, Donations]:  # fmt: skip
    """The program in as many kernels as it can be cut into, if what passes between them uses what nothing else can."""
    if core.is_finest or core.target.backend != "host" or core.is_always_empty:
        return core, donations
    cut = finest(core.inputs, core.outputs, core.name, core.target, core.planner)
    with suppress(AliasError):
        check_proof(cut, places, results, given)
        found = donations_of(cut, wanted, places, given, results)
        if len(cut.steps) > 1 and len(found.refused) < len(donations.refused):
            return cut, found
        if len(cut.steps) > 1:
            return core, found
    return core, donations


def _saving(
    given: tuple[Tensor, ...], results: tuple[Tensor, ...], title: str, target: Target, schedule: Any,
    planner: Planner, memory: Any, checkpoint: Any,
) -> Core:  # fmt: skip
    """A program in as many steps as it can be cut into, some of which run again."""
    if isinstance(schedule, Schedule) or target.backend != "host" or schedule in AUTOSCHEDULERS:
        raise ScheduleError(
            "te.build: memory= and checkpoint= need the default schedule (or 'tuned') and target='host'; "
            "a te.Schedule says itself what is stored and what is computed again"
        )
    core = finest(given, results, title, target, planner)
    save_memory(core, memory, checkpoint)
    return core


def _remembered(results: tuple[Tensor, ...], target: Target) -> Planner:
    """What te.tune found for a program; the default schedule, with a warning, where it found nothing."""
    choices = recall(results, target)
    if choices is None:
        names = ", ".join(t.name for t in results)
        warn_user(
            f"te.build: schedule='tuned': nothing is remembered for {names} on this machine; the default schedule is "
            f"used (te.tune([{names}], budget=60) searches for a better one)"
        )
    return Planner(choices=tuple(sorted((choices or {}).items())))


def _proven(
    request: _Request, core: Core, sizes: dict[Var, Var] | None, places: Mapping[int, int], on_hazard: str | None
) -> _Made:
    """The core, or another one for the program, that may write outputs on inputs; AliasError without one.

    Where outputs of one stage are in each other's way, they are stored together; or else, where the schedule is left to
    us, each output gets a loop nest of its own.
    """
    found: list[tuple[int, _Made]] = []
    for planner in (core.planner, *([replace(core.planner, merged=False)] if request.is_default else [])):
        made = request.core(planner) if found else (core, sizes)
        hazards = hazards_in(made[0], places)
        if hazards and all(h.in_turn for h in hazards.values()):
            made = request.core(replace(planner, in_place=True))
            hazards = hazards_in(made[0], places)
        if not hazards:
            return made
        found.append((len(hazards), made))
    if on_hazard != "copy":
        check_proof(found[0][1][0], places, request.results, request.given)
    return min(found, key=lambda item: item[0])[1]


def _together(
    request: _Request, core: Core, sizes: dict[Var, Var] | None, donations: Donations, wanted: Sequence[int],
    places: Mapping[int, int],
) -> tuple[Core, dict[Var, Var] | None, Donations]:  # fmt: skip
    """The program with the outputs of each stage stored together, if more of what is donated can be used then."""
    made, names = request.core(replace(core.planner, in_place=True))
    found = donations_of(made, wanted, places, request.given, request.results)
    if (
        len(found.refused) < len(donations.refused)
        and hazards_in(made, places).keys() <= hazards_in(core, places).keys()
    ):
        return made, names, found
    return core, sizes, donations


def _accumulating(request: _Request, places: Mapping[int, int]) -> tuple[Accumulating, dict[Var, Var] | None] | None:
    """The program that adds in place, where all outputs with memory of inputs are such sums."""
    given, results = request.given, request.results
    parts, previous = addends(given, results, places)
    if not parts or set(parts) != set(places):
        return None
    outputs = tuple(parts.get(p, t) for p, t in enumerate(results))
    kept = tuple(k for k in range(len(given)) if k not in previous.values())
    core, sizes = _cached(tuple(given[k] for k in kept), outputs, request.title, request.target, Planner())
    return Accumulating(core, kept, previous), sizes


def evaluate(outputs: Any, feeds: Mapping[Tensor, Any] | None = None, sizes: Mapping[Var, int] | None = None) -> Any:
    """The values of `outputs` for the arrays in `feeds`, compiled: `evaluate(C, {A: a, B: b})`."""
    feeds = {} if feeds is None else feeds
    if not isinstance(feeds, Mapping):
        raise TypeError(f"te.evaluate: feeds is a dict {{tensor: array}}, found {type(feeds).__name__}")
    kernel = _kernel(list(feeds), outputs, what="te.evaluate")
    kernel.core.keep()
    return kernel(*feeds.values(), sizes=sizes)


def _cached(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], name: str, target: Target, planner: Planner
) -> tuple[Core, dict[Var, Var] | None]:
    options = name, target, planner
    return cached_core(inputs, outputs, options, lambda key: made_core(inputs, outputs, name, target, planner, key))


def made_kernel(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], name: str, target: Target, planner: Planner
) -> Kernel:
    """A kernel of its own, compiled, that is found by nobody else."""
    kernel = Kernel(_core(inputs, outputs, name, target, planner), inputs, outputs, True)
    kernel.compile()
    return kernel


def _core(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], name: str, target: Target, planner: Planner) -> Core:
    return made_core(inputs, outputs, name, target, planner)


def _scheduled(
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    name: str,
    target: Target,
    schedule: Schedule,
    planner: Planner,
) -> Core:
    """The core for a user's schedule, compiled at once, so that what it refuses is refused here."""
    program = schedule.plan.program
    made = dict(zip(schedule.outputs, program.outputs, strict=True))
    for tensor in outputs:
        if tensor not in made:
            listed = ", ".join(f"{t.name} ({describe(t.op)})" for t in schedule.outputs)
            raise ScheduleError(
                f"te.build: output {tensor!r}, {describe(tensor.op)}, is not one of the schedule's outputs: {listed}"
            )
    current = tuple(map(program.current, inputs))
    core = _core(current, tuple(made[t] for t in outputs), name, target, planner)
    with suppress(IndexError):  # for the call to say, as without a schedule: it may have no points
        core.compile()
    return core


def _of_schedule(schedule: Schedule, deterministic: bool) -> Planner:
    plan = schedule.plan
    given = {plan.program.current(t): t for t in (op.output(k) for op, k in plan.program.handles)}
    given.update(zip(plan.program.outputs, schedule.outputs, strict=True))
    return Planner(plan, given, plan.automatic, deterministic)


def _checked_inputs(inputs: Any, outputs: tuple[Tensor, ...], what: str) -> tuple[Tensor, ...]:
    given = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{what}: inputs are tensors, found {type(tensor).__name__} ({tensor!r:.60})")
    for position, tensor in enumerate(given):
        if tensor in set(given[:position]):
            raise ValueError(f"{what}: input {tensor!r} is listed twice")
    for op in operations_between(given, outputs):
        if isinstance(op, Placeholder) and not isinstance(op, Constant):
            listed = ", ".join(describe(t.op) if t.name == op.name else t.name for t in given) or "none"
            raise ValueError(f"{what}: the outputs read {describe(op)}, which is not among the inputs ({listed})")
    return given


def _planner(schedule: Any, deterministic: bool) -> Planner:
    if schedule is None or schedule == "default":
        return Planner()
    if isinstance(schedule, str) and schedule in AUTOSCHEDULERS:
        return Planner(automatic=schedule, deterministic=deterministic)
    if not isinstance(schedule, str):
        raise TypeError(
            f"te.build: schedule must be a te.Schedule, None or the name of a scheduler, found {schedule!r:.40}"
        )
    raise ScheduleError(f"te.build: {_unknown(schedule)}")


def _unknown(schedule: str) -> ScheduleError:
    try:
        one_of(schedule, SCHEDULERS, "scheduler", "schedulers")
    except ScheduleError as error:
        return error
    raise AssertionError(schedule)
