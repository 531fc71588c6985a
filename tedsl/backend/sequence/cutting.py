"""From a program to the steps that compute it.

Before each stage that no kernel computes comes what it reads. What lies between is cut where it is large, at tensors
that its schedule stores anyway: kernels that are equal, as those of repeated layers, are then compiled once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from schedules.cutting.cuts import PlanPart
from schedules.cutting.windows import Windowed, windowed
from schedules.known_places import with_known_places
from schedules.program import program_of
from tedsl.analysis.read_boxes import ReadBox
from tedsl.analysis.sizes import known_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import BoxView, CompiledKernel, KernelStep, StepPlan, View
from tedsl.backend.compiling.memory_cache import shared_kernel
from tedsl.backend.compiling.single_kernel import SingleKernel
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.targets import Target
from tedsl.backend.lowering.natives import is_native
from tedsl.backend.lowering.scans import can_lower_scan
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence.ordering import in_little_memory
from tedsl.lang.tensor import Extern, Operation, Placeholder, Scan, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Cutter", "cut_program", "is_apart", "is_routine", "least_kernels", "shared_key"]

FEW = 64  # elements
MUCH = 1 << 20  # operations
LONG = 1 << 25  # operations that take far longer than to call a few kernels


def is_apart(op: Operation) -> bool:
    """Whether a stage is one that no kernel computes."""
    return isinstance(op, Extern) or (isinstance(op, Scan) and not can_lower_scan(op))


def is_routine(op: Operation, target: Target) -> bool:
    """Whether a stage calls code of the library's in a kernel of its own; elsewhere it is a Python function."""
    return is_native(op) and target.backend == "host" and loads_objects()


def least_kernels(program: Compilation) -> int:
    """How many kernels must be possible for a program to be cut; fewer where calls are nothing beside them."""
    least, operations = program.planner.machine(program.target).least, program.operations
    if len(operations) < 2:
        return least.kernels
    if _is_on_rows(program):  # beside whose stages those of a few numbers, as an optimizer's, are nothing
        return least.kernels + sum(_has_few_elements(op) for op in operations)
    if program.sizes:
        return least.kernels
    flops = [flops_of(op, {}) for op in operations]
    if sum(flops) >= LONG and sum(n >= MUCH for n in flops) > 1:
        return min(least.kernels, 2)
    is_many = len(operations) >= least.kernels_beside_work
    return least.kernels_beside_work if is_many and sum(flops) >= MUCH else least.kernels


def _has_few_elements(op: Operation) -> bool:
    shapes = [known_shape(t) for t in op.outputs]
    return all(shape is not None and math.prod(shape) <= FEW for shape in shapes)


def _is_on_rows(program: Compilation) -> bool:
    """Whether its pixels are rows of numbers, which they are in one kernel: parts of a cut one keep axes as written."""
    merging = program.facts.merging
    return merging is not None and merging.is_of_rows


def cut_program(program: Compilation, least: int) -> StepPlan:
    """The steps of a program, cut where at least so many kernels are possible; 1: as many as can be."""
    begin, program = time.perf_counter(), _knowing(program)
    cutter = Cutter(program, least, again=least == 1)
    cutter.reach(program.outputs, program.name)
    return replace(cutter.plan(), schedule_ms=(time.perf_counter() - begin) * 1e3)


def _knowing(program: Compilation) -> Compilation:
    """The program with what its stages show of places, which a kernel does not see whose places a routine finds."""
    if program.planner.is_asked or not any(isinstance(op, Extern) for op in program.operations):
        return program
    known = with_known_places(program_of(program.outputs), program.inputs)
    return replace(program, outputs=known.outputs)


def shared_key(digest: str, program: Compilation) -> tuple[object, ...]:
    """What programs share a kernel by."""
    planner = program.planner
    return digest, program.target, planner.is_asked, planner.deterministic, planner.in_place


class Cutter:
    """The steps so far.

    `again`: any step may run a second time, which what it reads is kept for by its number: no kernel is given boxes.
    """

    def __init__(self, program: Compilation, least: int, *, again: bool = False) -> None:
        self.program, self.least, self.again = program, least, again
        self.steps: list[KernelStep] = []
        self.tensors: list[Tensor] = list(program.inputs)
        self.numbers = {t: k for k, t in enumerate(self.tensors)}  # of what is known
        self.stored: dict[Tensor, int] = {}
        self.users: dict[int, Tensor] = {}
        self.views: dict[View | BoxView, int] = {}  # tensors that are parts of others

    def plan(self) -> StepPlan:
        results = tuple(self.numbers[t] for t in self.program.outputs)
        return StepPlan(
            tuple(self.tensors), tuple(self.steps), results, numbers={**self.stored, **self.numbers}, users=self.users,
            views={k: view for view, k in self.views.items()}, is_finest=self.least == 1,
        )  # fmt: skip

    def reach(self, wanted: Sequence[Tensor], name: str) -> None:
        """Steps for some tensors and all that they need, those that no kernel computes too."""
        for op in operations_between(self.numbers.keys(), wanted):
            if is_apart(op):
                self._compute([t for t in op.inputs if t not in self.numbers], f"{self.program.name}_{op.name}")
                self._add_apart(op)
        self._compute([t for t in dict.fromkeys(wanted) if t not in self.numbers], name)

    def call(self, kernel: CompiledKernel, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """A step that calls a kernel, by the numbers of what it reads and makes."""
        self.steps.append(KernelStep(kernel, None, tuple(inputs), tuple(outputs)))

    def add(self, tensor: Tensor) -> int:
        """The number of one more tensor, which may be another one's, too."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _add_apart(self, op: Operation) -> None:
        """A step that is no kernel."""
        read, target = tuple(self.numbers[t] for t in op.inputs), self.program.target
        if is_routine(op, target):
            wanted = self._wanted(op)
            alone = Compilation(tuple(op.inputs), wanted, op.name, target, Planner())
            self.steps.append(KernelStep(SingleKernel(alone), None, read, self._numbered(wanted)))
        else:
            self.steps.append(KernelStep(None, op, read, self._numbered(op.outputs)))

    def _wanted(self, op: Operation) -> tuple[Tensor, ...]:
        """The results of a stage that somebody reads."""
        read = {t for other in self.program.operations for t in other.inputs}.union(self.program.outputs)
        return tuple(t for t in op.outputs if t in read)

    def _compute(self, wanted: Sequence[Tensor], name: str) -> None:
        """Steps that compute some tensors from those that are known, by kernels."""
        if not wanted:
            return
        known = _frontier(list(self.numbers), wanted)
        here = Compilation(tuple(known), tuple(wanted), name, self.program.target, self.program.planner)
        found: tuple[Tensor, ...] = tuple(wanted)
        parts: list[PlanPart] = []
        if self._may_cut(here):
            found, parts = here.planner.parts(known, wanted, here.target, self.least)
        if not parts or not all(part.is_closed for part in parts if part.plan.finite):
            read = tuple(self.numbers[t] for t in known)
            self.steps.append(KernelStep(SingleKernel(here), None, read, self._numbered(wanted)))
            return
        boxes = windowed(parts, self._whole()) if self._may_be_given_boxes(here) else {}
        for part in in_little_memory(parts, set(known), set(found)):
            self._add_part(part, boxes.get(part, Windowed(part, {})), is_sized=bool(here.sizes))
        self.numbers.update((t, self.numbers[now]) for t, now in zip(wanted, found, strict=True))

    def _add_part(self, part: PlanPart, made: Windowed, *, is_sized: bool) -> None:
        """The step of one part, by a kernel that equal parts share; `made`: as it is compiled."""
        title = "_".join(dict.fromkeys(t.name for t in part.outputs[:2]))
        planner = self.program.planner.for_part(made.part)
        mine = Compilation(made.part.inputs, made.part.outputs, title, self.program.target, planner)
        core = shared_kernel(shared_key(made.part.digest, self.program), lambda: SingleKernel(mine))
        theirs, ours = (p.sizes if is_sized else [] for p in (core.program, mine))
        own = all(a is b for a, b in zip(theirs, ours, strict=True))
        sizes = {} if own else dict(zip(theirs, ours, strict=True))
        read = tuple(self._window(self.numbers[t], made.boxes.get(k)) for k, t in enumerate(part.inputs))
        self.steps.append(KernelStep(core, None, read, self._numbered(part.outputs), sizes))
        self.stored.update((part.users[t], self.numbers[t]) for t in part.outputs)
        self.users.update((self.numbers[t], part.users[t]) for t in part.outputs)

    def _window(self, number: int, box: ReadBox | None) -> int:
        """The number of a box of a tensor, or of all of it."""
        return number if box is None else self.view(BoxView(number, box.begins, box.shape), self.tensors[number])

    def view(self, view: View | BoxView, tensor: Tensor) -> int:
        """The number of a part of a tensor, which is like another one."""
        if view not in self.views:
            self.views[view] = self.add(tensor)
        return self.views[view]

    def _may_cut(self, here: Compilation) -> bool:
        if here.target.backend != "host" or here.planner.automatic or self.program.facts.is_always_empty:
            return False
        between = here.operations
        return len(between) >= self.least and not any(isinstance(op, Placeholder) for op in between)

    def _may_be_given_boxes(self, here: Compilation) -> bool:
        """Whether kernels may read boxes."""
        return not self.again and not here.sizes and not here.planner.is_asked

    def _whole(self) -> set[Tensor]:
        """The tensors that are parts of others, of which there are no boxes."""
        parts = set(self.views.values())
        return {t for t, k in self.numbers.items() if k in parts}

    def _numbered(self, tensors: Sequence[Tensor]) -> tuple[int, ...]:
        """Numbers for tensors that are computed now."""
        for tensor in tensors:
            self.numbers[tensor] = self.add(tensor)
        return tuple(self.numbers[t] for t in tensors)


def _frontier(known: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """The known tensors that the outputs read."""
    read = {t for op in operations_between(known, outputs) for t in op.inputs} | set(outputs)
    return [t for t in known if t in read]
