"""Scans whose steps are kernels: a step that does much is a program of its own, scheduled as if there were no others.

One function for all steps would keep what a step computes in boxes of one shape, its sums in a single order of loops. A
kernel for a step costs a call, and knows only by data which step it is; so scans are cut where steps hold sums, or
stages, and enough of them. What later steps, or readers, ask for lies in tensors of all steps, of which each call gets
its part; what only neighbours ask for, in memory that steps share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from schedules.default.neighbors import is_along
from schedules.default.patterns.scans import parts_read_through, rows_summed_alike, steps_asked_for
from schedules.program import reading, rewritten_expressions
from tedsl.analysis.checks import read_checks
from tedsl.analysis.iteration import is_stepped
from tedsl.analysis.sizes import known_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import CompiledKernel, StepPlan, View
from tedsl.backend.compiling.memory_cache import shared_kernel
from tedsl.backend.compiling.single_kernel import SingleKernel
from tedsl.backend.sequence.cutting import Cutter
from tedsl.backend.sequence.step_programs import Member, StepInput, StepProgram, StepWriter, members_of
from tedsl.backend.sequence.step_stages import sums_ahead
from tedsl.backend.sequence.timeline import offset_of
from tedsl.lang.compute import placeholder
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.functions import as_expr, clip
from tedsl.lang.intervals import range_of
from tedsl.lang.locks import cached_property
from tedsl.lang.phases import part_shown
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import operations_between, reads_of, stages_of, topological

__all__ = ["plan_step_by_step"]

FARTHEST = 4  # steps that a step may look back
TO_SHARE = 1 << 16  # elements of a step, from which on threads that sleep between two of them are woken
MOST_NODES = 400  # of the bodies of a scan: what is larger takes seconds to compile in any case
ROWS, IN_TILES = 8, 1 << 20  # of a step's products, and its operations: from both on they gain by packed factors
IN_VECTORS, TO_MEMORY = 0.5, 2  # of an operation done for several elements at once, and of a byte of new memory


def plan_step_by_step(program: Compilation) -> StepPlan | None:
    """The program with a kernel for each step of some scans; None where that does not pay."""
    planner = program.planner
    scans = [op for op in program.operations if isinstance(op, Scan)]
    if not scans or program.target.backend != "host" or not planner.is_free or program.sizes:
        return None
    if any(len(topological(op.bodies)) > MOST_NODES for op in scans):
        return None
    least = planner.machine(program.target).least.step_kernels
    parts = parts_read_through(program.operations, program.outputs)
    few = steps_asked_for(program.operations, program.outputs, parts)
    found = [op for op in scans if _is_possible(op) and _amount(op, is_kept=op not in few) >= least]
    return _Plan(program, found).plan() if found else None


def _is_possible(op: Scan) -> bool:
    """Whether all that a step of a scan reads lies a number of steps away."""
    steps = number(op.axes[0].extent) or 0
    if op.kept is not None or op.dims != tuple(range(1 + bool(op.parts))) or steps < FARTHEST:
        return False
    if any(known_shape(t) is None for t in (*op.inputs, *op.outputs)):
        return False
    own = set(map(id, op.states))
    back = [offset_of(r.indices[0], op.axes[0]) for r in op.reads if id(r.tensor) in own]
    return not any(b is None or abs(b) > FARTHEST for b in back) and all(c.status != "run" for c in read_checks(op))


def _amount(op: Scan, *, is_kept: bool) -> float:
    """What a step costs in one kernel with all others, in operations done one by one; 0 where that is the better way.

    `is_kept`: each lies in memory of its own then.
    """
    own = set(map(id, op.states))
    rows = rows_summed_alike(op)
    if rows and (rows < ROWS or flops_of(op, {}) < (number(op.axes[0].extent) or 1) * IN_TILES):
        return 0
    along = is_along([r for r in op.reads if id(r.tensor) in own], op.axes[-1])  # what others hold is turned before
    has_sums = any(isinstance(node, Reduce) for node in op.nodes)
    if not is_stepped(op) or (along and not op.parts and not has_sums):
        return 0
    steps = number(op.axes[0].extent) or 1
    stored = sum(math.prod(known_shape(t) or (0,)) * t.dtype.itemsize for t in op.outputs) / steps
    return flops_of(op, {}) / steps * (IN_VECTORS if along else 1) + (stored * TO_MEMORY if is_kept else 0)


class _Loop:
    """A scan step by step: what its steps compute, and which of that is asked for from outside."""

    def __init__(self, op: Scan) -> None:
        self.op, self.members = op, members_of(op)
        self.steps = number(op.axes[0].extent) or 0
        self.elements = max(math.prod(known_shape(m.handle) or ()) for m in self.members) // max(1, self.steps)
        self.by_handle = {m.handle: m for m in self.members}
        self.stacked: set[Tensor] = set()  # handles of which all steps are asked for
        self.single: set[tuple[Tensor, int]] = set()  # and single steps of handles
        back = {r.tensor: 0 for m in self.members for r in reads_of((m.body,)) if r.tensor in self.by_handle}
        for read in (r for m in self.members for r in reads_of((m.body,)) if r.tensor in back):
            back[read.tensor] = max(back[read.tensor], abs(offset_of(read.indices[0], op.axes[0]) or 0))
        self.carried = {handle for handle, steps in back.items() if steps}  # those that later steps read
        self.depth = max(back.values(), default=0)

    @property
    def order(self) -> range:
        """The steps."""
        return range(self.steps - 1, -1, -1) if self.op.reverse else range(self.steps)

    def is_asked(self, handle: Tensor) -> bool:
        """Whether somebody beside the step itself reads a member."""
        return handle in self.stacked or handle in self.carried or any(h is handle for h, _ in self.single)


class _Plan:
    """The steps of a program, those of some scans one by one."""

    def __init__(self, program: Compilation, scans: Sequence[Scan]) -> None:
        self.program = program
        self.loops: dict[Operation, _Loop] = {op: _Loop(op) for op in scans}
        self.outputs = set(program.outputs)
        self.cutter = Cutter(program, 1)
        self.new: dict[Tensor, Tensor] = {}
        self.cells: dict[tuple[Tensor, int], int] = {}  # of members, by their step
        self.readers: dict[Tensor, set[Operation]] = {}
        self.handles = {h: m for loop in self.loops.values() for h, m in loop.by_handle.items()}
        for op in program.operations:
            for tensor in op.inputs:
                self.readers.setdefault(tensor, set()).add(op)
            self._ask(op)

    def plan(self) -> StepPlan:
        for op in self.program.operations:
            if op in self.loops:
                self._run(self.loops[op])
            elif not isinstance(op, Placeholder):
                self._moved(op)
        self._compute(self.program.outputs, self.program.name)
        return self.cutter.plan()

    # What is asked for.

    def member(self, read: Read) -> tuple[Member, tuple[Expr, ...]] | None:
        """The member that a read is of, and its indices."""
        if read.tensor in self.handles:
            return self.handles[read.tensor], read.indices
        loop = self.loops.get(read.tensor.op)
        if loop is None:
            return None
        if not loop.op.parts:
            return loop.members[read.tensor.index], read.indices
        written = loop.op.as_written(read)
        return (self.handles[written.tensor], written.indices) if written.tensor in self.handles else None

    def _ask(self, op: Operation) -> None:
        """Take up which steps of the scans a stage reads."""
        read = set()
        for r in op.reads:
            found = self.member(r)
            read.add(r.tensor)
            if found is None or found[0].scan is op:
                continue
            member, indices = found
            loop, step = self.loops[member.scan], _step_of(indices[0])
            if step is None:
                loop.stacked.add(member.handle)
            else:
                loop.single.add((member.handle, step))
        for tensor in set(op.inputs) - read | ({t for t in self.program.outputs if t.op is op}):
            loop_of = self.loops.get(tensor.op)
            if loop_of is not None:
                loop_of.stacked.add(loop_of.members[tensor.index].handle)

    def moves(self, tensor: Tensor) -> bool:
        """Whether a stage is written for the steps that read it."""
        op = tensor.op
        return (
            isinstance(op, Compute)
            and op.reduction is None
            and tensor not in self.cutter.numbers
            and tensor not in self.outputs
            and all(len(self.readers.get(t, ())) <= 1 for t in op.outputs)
            and all(known_shape(t) is not None for t in op.inputs)
        )

    # Stages beside the scans.

    def _moved(self, op: Operation) -> None:
        """A stage that reads of the scans what their steps have left."""

        def rule(node: Expr) -> Expr:
            found = self.member(node) if isinstance(node, Read) else None
            if found is None:
                return node
            member, indices = found
            step = _step_of(indices[0])
            if step is None or member.handle in self.loops[member.scan].stacked:
                return Read(member.stack, indices)
            return Read(self._alone(member, step), indices[1:])

        shown = part_shown(op)
        if shown is not None and shown[0] in self.loops and isinstance(op, Compute):
            (body,) = op.bodies
            found = self.member(body) if isinstance(body, Read) else None
            if found is not None and list(map(id, found[1])) == list(map(id, op.axes)):
                self.new[op.output()] = found[0].stack
                return
        made = rewritten_expressions(op, rule) if isinstance(op, (Compute, Scan, Scatter)) else op
        made = reading(made, self.new)
        if made is not op:
            self.new.update(zip(op.outputs, made.outputs, strict=True))

    def _alone(self, member: Member, step: int) -> Tensor:
        """A single step of a member as a tensor."""
        cell = self._cell(member, step)
        tensor = self.cutter.tensors[cell]
        self.cutter.numbers[tensor] = cell
        return tensor

    def _compute(self, wanted: Sequence[Tensor], name: str) -> None:
        """Steps for tensors beside the scans."""
        missing = [t for t in wanted if t not in self.cutter.numbers]
        self.cutter.reach([self.new.get(t, t) for t in missing], name)
        self.cutter.numbers.update((t, self.cutter.numbers[self.new.get(t, t)]) for t in missing)

    # Scans.

    def _run(self, loop: _Loop) -> None:
        for member in loop.members:
            if member.handle in loop.stacked:
                self.cutter.numbers[member.stack] = self.cutter.add(member.stack)
        if not loop.op.parts:
            self.new.update((t, m.stack) for t, m in zip(loop.op.outputs, loop.members, strict=True))
        for group in self._groups(loop):
            self._run_group(loop, group)

    def _run_group(self, loop: _Loop, group: Sequence[int]) -> None:
        """Steps that have one program: the kernels that it is cut into, for each of them."""
        wanted = [m for m in loop.members if loop.is_asked(m.handle)]
        made = self._written(loop, group)
        results = [made.made[m.handle] for m in wanted]
        sums = sums_ahead(results, made.columns)
        columns = sorted((t for t in made.columns if t in _needed([*sums, *results])), key=_alone)
        given = {tensor: g for g, tensor in made.inputs.items()}
        ahead = {t: self.cutter.add(t) for t in (*columns, *sums)}
        calls = [self._kernel(loop, o, {*given, *ahead}) for o in (columns, sums, results) if o]
        self._compute_given(loop, [given[t] for _, own in calls for t in own.inputs if t in given])
        for step in group:
            cells = ahead | dict(zip(results, (self._cell(m, step) for m in wanted), strict=True))
            for kernel, own in calls:
                read = [ahead[t] if t in ahead else self._input(given[t], t, step) for t in own.inputs]
                self.cutter.call(kernel, read, [cells[t] for t in own.outputs])

    def _kernel(self, loop: _Loop, outputs: Sequence[Tensor], known: set[Tensor]) -> tuple[CompiledKernel, Compilation]:
        """A kernel of a step, of what is known, and the program of the step: others may have the kernel, too."""
        between = operations_between(known - set(outputs), outputs)
        read = [t for t in dict.fromkeys(t for op in between for t in op.inputs) if t in known]
        name, planner = f"{self.program.name}_{loop.op.name}", self.program.planner
        if loop.elements < TO_SHARE:
            planner = replace(planner, choices=tuple({**dict(planner.choices), "cores": 1}.items()))
        own = Compilation(tuple(read), tuple(outputs), name, self.program.target, planner)
        if own.facts.checks_indices:  # and its errors tell of its own tensors
            return SingleKernel(own), own
        key = "step", structural_key(outputs, read, between=True), own.target, own.planner
        return shared_kernel(key, lambda: SingleKernel(own)), own

    def _compute_given(self, loop: _Loop, given: Iterable[StepInput]) -> None:
        """What steps read that is no step of a scan, before the first of them."""
        whole = [g.of for g in given if g.kind in ("whole", "row") and g.of is not None]
        self._compute(list(dict.fromkeys(whole)), f"{self.program.name}_before_{loop.op.name}")

    def _groups(self, loop: _Loop) -> list[list[int]]:
        """Steps that follow one another and have one program, in their order."""
        asked: dict[tuple[int, int], None] = {}

        def note(extent: int, step: int) -> bool:
            asked[extent, step] = None
            return True

        StepWriter(Const(loop.steps // 2, INT32), self.member, self.moves, note).program(loop.members)
        groups: list[list[int]] = []
        before: tuple[bool, ...] | None = None
        for t in loop.order:
            now = tuple(0 <= t + step < extent for extent, step in asked)
            if now != before:
                groups.append([])
            groups[-1].append(t)
            before = now
        return groups

    def _written(self, loop: _Loop, group: Sequence[int]) -> StepProgram:
        now: Expr = Const(group[0], INT32)
        number_of_step = placeholder((1,), INT32, name="now")
        if len(group) > 1:
            now = clip(Read(number_of_step, (Const(0, INT32),)), min(group), max(group))
        writer = StepWriter(now, self.member, self.moves, lambda extent, step: 0 <= group[0] + step < extent)
        made = writer.program(loop.members)
        return StepProgram({**made.inputs, StepInput("now"): number_of_step}, made.made, made.columns)

    def _input(self, given: StepInput, tensor: Tensor, t: int) -> int:
        """The number of what a step is given."""
        if given.kind == "now":
            return self.cutter.view(View(self._times, 0, t, t + 1), tensor)
        assert given.of is not None
        if given.kind == "step":
            return self._cell(self.handles[given.of], t + given.step)
        if given.kind == "at":
            return self._cell(self.handles[given.of], given.step)
        cell = self.cutter.numbers[given.of]
        if given.kind == "row":
            return self.cutter.view(View(cell, 0, t + given.step, t + given.step + 1, is_single=True), tensor)
        return cell

    def _cell(self, member: Member, step: int) -> int:
        """The number of what a step makes of a member."""
        loop = self.loops[member.scan]
        is_kept = member.handle in loop.stacked or (member.handle, step) in loop.single
        key = member.handle, step if is_kept else -1 - step % (loop.depth + 1)
        if key not in self.cells:
            tensor = placeholder(member.shape, member.stack.dtype, name=member.handle.name)
            if member.handle in loop.stacked:
                view = View(self.cutter.numbers[member.stack], 0, step, step + 1, is_single=True)
                self.cells[key] = self.cutter.view(view, tensor)
            else:
                self.cells[key] = self.cutter.add(tensor)
        return self.cells[key]

    @cached_property
    def _times(self) -> int:
        """The numbers of all steps, as a tensor."""
        axis = Axis("t", Const(max(loop.steps for loop in self.loops.values()), INT32))
        times = Compute(name="times", axes=(axis,), bodies=(as_expr(axis),)).output()
        self.cutter.reach([times], "times")
        return self.cutter.numbers[times]


def _step_of(index: Expr) -> int | None:
    """The only step that an index reaches."""
    low, high = range_of(index)
    return int(low) if low == high else None


def _alone(tensor: Tensor) -> str:
    """What a tensor is by itself: in an order by this, steps that are alike have one program."""
    return structural_key(tensor, tensor.op.inputs, between=True)


def _needed(outputs: Sequence[Tensor]) -> set[Tensor]:
    return {t for op in stages_of(outputs) for t in op.inputs}
