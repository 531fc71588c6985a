"""From a program to Halide's functions, scheduled: what a schedule says, and the default schedule for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from schedules.automatic import check_limits
from schedules.cutting.cuts import PlanPart, parts_of
from schedules.cutting.repetition import without_repetition
from schedules.default import Machine, completed, stored
from schedules.directives import Prefetch
from schedules.estimate.compiling import compile_ms
from schedules.known_places import with_known_places
from schedules.machine import Choices, assumed
from schedules.placing.ahead import is_asked_ahead
from schedules.placing.fused_reads import reads_in_fused_loops
from schedules.placing.pieces import planned_pieces
from schedules.placing.placement import placed
from schedules.placing.places import Placement
from schedules.placing.tiles import tiles_of
from schedules.placing.warming import held_reads
from schedules.placing.windows import mirrored_windows
from schedules.plan import Plan
from schedules.program import program_of
from schedules.tuning import settled
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.phases import phase
from tedsl.backend.host.targets import Target, machine_of
from tedsl.backend.lowering.natives import native_alone
from tedsl.backend.lowering.pipeline import Lowered, lower
from tedsl.backend.lowering.stages import ANY_ARRAYS, Arrays, PlannedLoops
from tedsl.backend.scheduling.apply import apply_plan, check_atomics, check_target, fix_sizes, shifts
from tedsl.backend.scheduling.autoschedulers import apply_autoscheduler
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Planner"]

SOON = 500.0  # milliseconds to compile a kernel: of what takes longer, all processors compile a part


def _fuses(machine: Machine) -> bool:
    """Whether the code goes through the passes over its assembly."""
    return machine.gpu is None and loads_objects()


def _knowing(plan: Plan, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[Plan, list[Tensor]]:
    """The plan for a program that says where its places are in bounds, and its outputs."""
    program, names = with_known_places(plan.program, inputs), plan.program.names
    if program is plan.program:
        return plan, list(outputs)
    return plan.over(program), [program.stages[names[t.op]].output(t.index) if t.op in names else t for t in outputs]


def _unfetched(plan: Plan) -> Plan:
    """A plan without its prefetches; itself where there are none."""
    kept = {key: tuple(s for s in steps if not isinstance(s.directive, Prefetch)) for key, steps in plan.loops.items()}
    return plan if kept == plan.loops else replace(plan, loops=kept)


@dataclass(frozen=True)
class Planner:
    """How a kernel is scheduled.

    `plan` is what the user says, and `given` the tensors that those of its program stand for; `automatic` one of
    Halide's autoschedulers; `choices` are those of the default scheduler; `merged`: outputs of one shape may share a
    loop nest, and small ones a kernel. `part`: what was decided for one part of a program that was cut. `simple`: every
    stage is stored, no loop is changed. `in_place`: outputs of one stage may lie in memory that it reads. `in_turn`: no
    stage has a thread of its own. `unfetched`: nothing is asked for ahead (`prefetch`). `is_over`: results may be
    written over what is given.
    """

    plan: Plan | None = None
    given: Mapping[Tensor, Tensor] = field(default_factory=dict, hash=False, compare=False)
    automatic: str = ""
    deterministic: bool = True
    choices: Choices = field(default_factory=assumed)
    merged: bool = True
    part: PlanPart | None = None
    simple: bool = False
    in_place: bool = False
    in_turn: bool = False
    unfetched: bool = False
    is_over: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether the user asked for this schedule, who is then told what is wrong with it."""
        return self.plan is not None or bool(self.automatic)

    @property
    def is_free(self) -> bool:
        """Whether nothing is said of loops and memory, by users or of a part."""
        return not (self.is_asked or self.part or self.simple or self.in_place) and self.merged

    @property
    def may_be_ahead(self) -> bool:
        """Whether a stage may have a thread of its own."""
        plan = self.plan if self.part is None else self.part.plan
        return plan is not None and not self.in_turn and any(is_asked_ahead(plan, name) for name in plan.storage)

    @property
    def fetches(self) -> bool:
        """Whether something may be asked for ahead."""
        plan = self.plan if self.part is None else self.part.plan
        return plan is not None and not self.unfetched and _unfetched(plan) is not plan

    def machine(self, target: Target) -> Machine:
        """The figures that a program is scheduled for."""
        return settled(machine_of(target), dict(self.choices))

    def lowered(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], added: Iterable[int], target: Target, *,
        plain: bool, trusted: bool = False, arrays: Arrays = ANY_ARRAYS,
    ) -> Lowered:  # fmt: skip
        """The functions that compute `outputs` from `inputs`; `plain`: without what holds for finite numbers only.

        `trusted`: somebody else sees to it that numbers are finite. `arrays`: what holds of the inputs.
        """
        machine = self.machine(target)
        added = tuple(added)
        if native_alone(inputs, outputs):  # which has no loops to schedule
            lowered = lower(inputs, outputs, added=added)
            for stage in lowered.stages:
                stage.func.compute_root()
            fix_sizes(lowered)
            return lowered
        if self.part is not None:
            if self.simple or (plain and self.part.plan.finite):
                there = self.part.given(inputs), self.part.given(outputs)
                return replace(self, plan=None, part=None).lowered(*there, added, target, plain=plain, arrays=arrays)
            return self._applied(self.part.wanting(outputs), inputs, added, machine, trusted=trusted, arrays=arrays)
        if self.automatic and not added:  # in a sum with what is there an element must not be computed twice
            return self._automatic(inputs, outputs, target, machine, arrays)
        plan = self.plan
        if plain and plan is not None and plan.finite:  # its program is another one where numbers are not finite
            inputs, outputs, plan = self._given(inputs), self._given(outputs), None
        if plan is None:
            outputs = without_repetition(inputs, outputs)
            plan = Plan(program_of(outputs))
        plan, outputs = _knowing(plan, inputs, outputs)
        self._check(plan, target)
        if self.simple:
            return self._applied(stored(plan), inputs, added, machine, arrays=arrays)
        options = {"plain": plain, "merged": self.merged, "together": self.in_place}
        with phase("schedule"):
            plan = completed(plan, inputs, outputs, machine, **options)
        return self._applied(plan, inputs, added, machine, arrays=arrays)

    def _applied(
        self, plan: Plan, inputs: Sequence[Tensor], added: Sequence[int], machine: Machine, *, trusted: bool = False,
        arrays: Arrays,
    ) -> Lowered:  # fmt: skip
        plan = _unfetched(plan) if self.unfetched else plan
        stages = plan.program.stages
        finite = [] if trusted else [stages[name].output() for name in plan.finite if name in stages]
        places = placed(plan)
        lowered = lower(
            inputs, plan.program.outputs, added=added, finite=finite, promised=self.is_asked,
            in_place=self.in_place, arrays=arrays, fuses=_fuses(machine),
            pieces=planned_pieces(plan, places), held=_held(plan, places),
            loops=_loops(plan, in_place=self.in_place), windows=mirrored_windows(plan, places),
            inlined={stages[name] for name, place in places.items() if place.kind == "inline"},
            twice={op for name, op in stages.items() if added and shifts(plan, name)},
        )  # fmt: skip
        apply_plan(plan, lowered, machine, in_turn=self.in_turn)
        return lowered

    def parts(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], target: Target, least: int = 1
    ) -> tuple[tuple[Tensor, ...], list[PlanPart]]:
        """The program cut at the tensors that its complete plan stores; the outputs as the parts know them.

        `least`: how many parts must be possible, and many where one kernel is soon compiled. With 1 there are as many
        as can be.
        """
        plan, wanted = _knowing(self.plan or Plan(program_of(outputs)), inputs, outputs)
        self._check(plan, target)
        machine = self.machine(target)
        plan = completed(plan, inputs, wanted, machine, merged=self.merged, apart=True, together=self.in_place)
        many = machine.least.kernels_beside_work
        if 1 < least < many and compile_ms(plan) < SOON:
            least = many
        stages, given = plan.program.stages, {t: t for t in inputs}
        for (op, k), (name, index) in plan.program.handles.items():
            given.setdefault(stages[name].output(index), op.output(k))
        given.update((now, self.given.get(t, t)) for now, t in zip(plan.program.outputs, outputs, strict=True))
        given.update((t, self.given.get(t, t)) for t in inputs)
        joined = least > 1 and self.merged
        return plan.program.outputs, parts_of(plan, inputs, given, least, joined=joined, is_over=self.is_over)

    def _check(self, plan: Plan, target: Target) -> None:
        """Refuse what the target cannot do, or what was forbidden."""
        check_target(plan, target.backend)
        check_atomics(plan, target.backend, deterministic=self.deterministic)

    def for_part(self, part: PlanPart) -> Planner:
        """What is decided already for a part."""
        return replace(self, part=part)

    def _given(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [self.given.get(t, t) for t in tensors]

    def _automatic(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], target: Target, machine: Machine, arrays: Arrays
    ) -> Lowered:
        """A program as one of Halide's autoschedulers schedules it."""
        check_limits(self.automatic, operations_between(inputs, outputs), (*inputs, *outputs))
        lowered = lower(inputs, outputs, arrays=arrays, fuses=_fuses(machine))
        apply_autoscheduler(self.automatic, lowered, target, machine, deterministic=self.deterministic)
        fix_sizes(lowered)
        return lowered


def _held(plan: Plan, places: Mapping[str, Placement]) -> dict[Read, tuple[int, ...]]:
    """The reads that are brought into what there is, and along which dimensions."""
    warmed, fused = held_reads(plan, places), reads_in_fused_loops(plan, places)
    return {read: tuple({*warmed.get(read, ()), *fused.get(read, ())}) for read in {**warmed, **fused}}


def _loops(plan: Plan, *, in_place: bool) -> dict[str, PlannedLoops]:
    """What lowering is told of the loops of scans, whose steps it writes as loops.

    `in_place`: no element is computed twice, whose inputs may be gone by then.
    """
    found: dict[str, PlannedLoops] = {}
    for name, op in plan.program.stages.items():
        if isinstance(op, Scan):
            tiles, order = tiles_of(plan, name)
            if in_place and any((number(a.extent) or 1) % count for a, count in tiles.items()):
                tiles, order = {}, ()
            lanes = {a: n for a, n in plan.lanes(name).items() if a not in tiles}
            found[name] = PlannedLoops(lanes, plan.is_in_order(name), tiles, order, name in plan.regrouped)
    return found
