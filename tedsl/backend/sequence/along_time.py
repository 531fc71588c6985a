"""Programs with scans cut along time, for less memory: the steps of a segment are forgotten when the next one begins.

The first turn goes through all segments and keeps, of each, the last steps of its scans. The second, as of gradients,
goes back: each segment is computed again from these, and then what reads it. With s segments of k steps, that holds s
ends and k steps instead of s * k, for at most twice the work. Segments that stay in the cache are the faster way, too:
where there is no second turn nothing is computed twice, and where there is one a step may cost less than its memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from schedules.default.recompute import LINE, instructions
from schedules.machine import Machine
from schedules.program import reading, rewritten_expressions
from tedsl.analysis.sizes import known_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import StepPlan, View
from tedsl.backend.compiling.forms import DENSE, STRIDED, ArrayLayout
from tedsl.backend.compiling.single_kernel import SingleKernel
from tedsl.backend.sequence.clock import Clock, Cut, Segment
from tedsl.backend.sequence.cutting import Cutter
from tedsl.backend.sequence.kept_steps import with_kept_steps
from tedsl.backend.sequence.segments import Given, SegmentProgram, Segments, at_the_end
from tedsl.backend.sequence.timeline import NotAlongTime, Timed, Timeline
from tedsl.backend.sequence.whole_time import over_all_of_time
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import fresh_axes
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import maximum, minimum
from tedsl.lang.locks import cached_property
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Compute, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["MOST_PROGRAMS", "Cuts", "compiled", "plan_in_cache"]

MOST_PROGRAMS = 12  # of segments, each compiled
ATTEMPTS = 3
SPARED = 0.96  # of what there is, in each further attempt: segments are of whole steps
LITTLE = 1 / 16  # of the time of a program, for which less memory is worth it
SPARE = 1.25  # times what the steps of a segment hold, for what its kernel needs beside them
AMPLE = 2  # times what should be needed at least
COPIED = 4  # times the least steps of a segment, so that few of them are copies
_TURNS = ("forwards", "backwards")


class Cuts:
    """The ways to cut a program along time, by the steps of a segment, and what a call of each holds; NotAlongTime: it
    has none. `peak_of`: what a call of a plan holds, which its schedule alone tells.
    """

    def __init__(self, program: Compilation, peak_of: Callable[[StepPlan], int]) -> None:
        self.program, self.peak = _keeping(program), peak_of
        self.line = Timeline(self.program.operations, self.program.outputs)
        self.clock = Clock(self.line)
        self.state, self.step = _bytes_of(self.clock)
        self.arrays = sum(map(_bytes, {*program.inputs, *program.outputs}))
        self._plans: dict[Cut, StepPlan] = {}
        self._needs: dict[Cut, int] = {}

    def plan(self, length: int) -> StepPlan:
        """In segments of so many steps."""
        cut = self.clock.cut(length)
        if cut not in self._plans:
            self._plans[cut] = _Plan(self.program, Segments(self.clock, cut)).plan()
        return self._plans[cut]

    def needs(self, length: int) -> int:
        """What a call in segments of so many steps holds, by its schedule."""
        cut = self.clock.cut(length)
        if cut not in self._needs:
            self._needs[cut] = self.peak(self.plan(length))
        return self._needs[cut]

    @cached_property
    def frugal(self) -> StepPlan:
        """In segments with which a call holds the least, whatever the limit is.

        Schedules store more or fewer stages of a segment than one guesses: so from the length that should need the
        least it goes to longer or to shorter ones, half as long again each, as long as these need less.
        """
        lengths = [self.clock.least]
        while (after := lengths[-1] + (lengths[-1] + 1) // 2) <= self.line.steps // 2:
            lengths.append(after)
        guess = _length(self.line.steps, self.state, self.step, 0)
        at = min(range(len(lengths)), key=lambda k: abs(math.log(lengths[k] / max(1, guess))))

        for way in (1, -1):
            first = at
            while 0 <= at + way < len(lengths) and self.needs(lengths[at + way]) < self.needs(lengths[at]):
                at += way
            if at != first:
                break
        return self.plan(lengths[at])

    def is_ample(self, most: int) -> bool:
        """Whether so many bytes are far more than the least that should be needed."""
        longest = max(self.clock.least, _length(self.line.steps, self.state, self.step, 0))
        return most >= AMPLE * (self.arrays + self.state * -(-self.line.steps // longest) + self.step * longest)

    def within(self, most: int) -> Iterator[StepPlan]:
        """In segments that should fit in so many bytes, then in shorter ones."""
        step, free, tried = self.step * SPARE, float(most - self.arrays), set[int]()
        for _ in range(ATTEMPTS):
            length = max(self.clock.least, _length(self.line.steps, self.state, step, free))
            if length not in tried:
                tried.add(length)
                yield self.plan(length)
                cut = self.clock.cut(length)
                state = self.state * len(cut.segments)
                step = max(step, (self.needs(length) - self.arrays - state) / cut.pattern.length)
            free *= SPARED


def compiled(plan: StepPlan) -> StepPlan:
    """The same, compiled where kernels are whole programs: what Halide refuses stores more than planned."""
    from concurrent.futures import ThreadPoolExecutor  # slow to load, and not needed for single kernels

    apart = (k for k in plan.kernels if isinstance(k, SingleKernel) and k.program.planner.part is None)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(SingleKernel.any_variant, apart))
    return plan


def plan_in_cache(program: Compilation) -> StepPlan | None:
    """The program in segments that stay in the cache, where it would hold many steps for little work; else None."""
    planner, machine = program.planner, program.planner.machine(program.target)
    if program.target.backend != "host" or not planner.is_free:
        return None
    scans = [op for op in program.operations if isinstance(op, Scan)]
    if sum(map(_bytes, (t for op in scans for t in op.outputs))) < machine.least.forgotten:
        return None
    try:
        program = _keeping(program)
        line = Timeline(program.operations, program.outputs)
        if any(t.is_scan and _is_scattered(t, machine.least.step_run) for t in line.timed.values()):
            return None
        held = _held(line)
        if sum(map(_bytes, held)) < machine.least.forgotten:
            return None
        clock = Clock(line)
        _, step = _bytes_of(clock)
        length = max(COPIED * clock.least, int(machine.l2 / step))
        if 2 * length > line.steps:
            return None
        cut = clock.cut(length)
        if not _pays(line, held, len(cut.segments), machine):
            return None
        return _Plan(program, Segments(clock, cut)).plan()
    except NotAlongTime:
        return None


def _keeping(program: Compilation) -> Compilation:
    """The program as it can be cut along time: over all of it, single steps that are read being kept."""
    try:
        outputs = over_all_of_time(program.inputs, program.outputs)
        return replace(program, outputs=with_kept_steps(program.inputs, outputs))
    except NotAlongTime:
        return program


def _pays(line: Timeline, held: set[Tensor], segments: int, machine: Machine) -> bool:
    """Whether a program takes no longer in so many segments, by vector instructions and bytes of vectors.

    Where all steps are held, a tensor is written after its lines were fetched, and each stage that reads it fetches
    them once more; the processor does so meanwhile where a stage computes for longer than that takes. In segments,
    scans are computed again, what is added up is copied from one to the next, and their kernels are called.
    """
    work = {op: flops_of(op, {}, instructions) * op.outputs[0].dtype.itemsize for op in line.timed}
    waits = 0
    for op, own in work.items():
        moved = sum(_bytes(t) for t in op.inputs if t in held) + 2 * sum(_bytes(t) for t in op.outputs if t in held)
        waits += max(0, LINE * moved - own)
    first = [op for op, timed in line.timed.items() if timed.is_scan and timed.turn == 0]
    again = sum(work[op] for op in first) if line.turns > 1 else 0
    sums = sum(_bytes(t) for op, timed in line.timed.items() if timed.is_sum for t in op.outputs)
    between = segments * (2 * LINE * sums + machine.least.segment * machine.vector_bytes)
    return again + between <= waits + LITTLE * sum(work.values())


def _held(line: Timeline) -> set[Tensor]:
    """The scans of which others read all steps, and which are no results."""
    read = {t for op, timed in line.timed.items() for t in timed.offsets if t.op is not op}
    return {t for t in read - line.results if line.timed[t.op].is_scan}


def _bytes(tensor: Tensor) -> int:
    """The size of a tensor; 0 where it is not known."""
    shape = known_shape(tensor)
    return 0 if shape is None else math.prod(shape) * tensor.dtype.itemsize


def _is_scattered(scan: Timed, least: int) -> bool:
    """Whether each step of a scan is many pieces of less than so many bytes: time lies along memory, in many rows."""
    state, dim = scan.op.outputs[0], scan.dim or 0
    rows, inside = (math.prod(number(n) or 1 for n in part) for part in (state.extents[:dim], state.extents[dim + 1 :]))
    return rows > 1 and inside * state.dtype.itemsize < least


def _layout(tensors: Iterable[tuple[Given, Tensor]]) -> ArrayLayout | None:
    """How arrays lie of which some are parts of others, in many pieces; None where all are in one."""
    pieces = [(tensor, given.dim) for given, tensor in tensors if given.kind == "window"]
    apart = [(t, dim) for t, dim in pieces if any(number(n) != 1 for n in t.extents[:dim])]
    if any(all(number(n) == 1 for n in t.extents[dim:]) for t, dim in apart):
        return STRIDED
    return DENSE if apart else None


def _bytes_of(clock: Clock) -> tuple[float, float]:
    """Bytes that a segment leaves to a later turn, and those of one step of everything."""
    segments = Segments(clock, clock.cut(clock.line.steps // 4))
    kept = each = 0.0
    for op, timed in clock.line.timed.items():
        if timed.is_sum:
            continue
        one = sum(map(_bytes, op.outputs)) / (timed.end - timed.begin)
        each += one
        if timed.is_scan and any(op in spans.of for (_, turn), spans in segments.spans.items() if turn > timed.turn):
            kept += one * segments.depths[op]
    return kept, each


def _length(steps: int, state: float, step: float, free: float) -> int:
    """The longest segments with which everything fits, or those that need the least."""
    inside = free * free - 4 * step * state * steps
    length = (free + math.sqrt(inside)) / (2 * step) if inside >= 0 and free > 0 else math.sqrt(state * steps / step)
    return min(int(length), steps // 2)


class _Plan:
    """The steps of a program in segments."""

    def __init__(self, program: Compilation, segments: Segments) -> None:
        self.program, self.line, self.segments = program, segments.line, segments
        self.cutter = Cutter(program, 1, again=True)
        self.new: dict[Tensor, Tensor] = {}  # results of stages that read single steps, as they are here
        self.finals: dict[Given, Tensor] = {}
        self.carries: dict[tuple[Tensor, int], int] = {}  # what scans left, and at which step
        self.kernels: dict[tuple[Segment, int], tuple[SingleKernel, SegmentProgram]] = {}
        self.equal: dict[str, SingleKernel] = {}  # kernels by the structure of their programs
        self.firsts: dict[Segment, int] = {}  # the steps of the first turn
        self.again: set[int] = set()

    def plan(self) -> StepPlan:
        others = [op for op in self.line.operations if op not in self.line.timed]
        for turn in range(self.line.turns):
            self._redirect(op for op in others if self.line.levels[op] == turn)
            self._compute(self._ready(turn), f"{self.program.name}_ready")
            for segment in self.segments.in_turn(turn):
                self._run(segment, turn)
        self._redirect(op for op in others if self.line.levels[op] == self.line.turns)
        self._compute(self.program.outputs, self.program.name)
        return replace(self.cutter.plan(), again=frozenset(self.again))

    def _redirect(self, operations: Iterable[Operation]) -> None:
        """Stages that read single steps of a scan read them from what its turn left."""

        def rule(node: Expr) -> Expr:
            timed = self.line.of(node.tensor) if isinstance(node, Read) else None
            if timed is None or timed.is_sum:
                return node
            assert isinstance(node, Read)
            return at_the_end(self.line, node, self.finals.__getitem__)

        for op in operations:
            made = reading(op, self.new)
            made = rewritten_expressions(made, rule) if isinstance(made, (Compute, Scan, Scatter)) else made
            if made is not op:
                self.new.update(zip(op.outputs, made.outputs, strict=True))

    def _ready(self, turn: int) -> list[Tensor]:
        """What a turn reads that is computed before it, and does not go along time."""
        read = dict.fromkeys(t for op in self.line.timed for t in op.inputs)
        return [t for t in read if t.op not in self.line.timed and self.line.levels.get(t.op, 0) <= turn]

    def _compute(self, wanted: Sequence[Tensor], name: str) -> None:
        """Steps for tensors that do not go along time."""
        missing = [t for t in wanted if t not in self.cutter.numbers]
        self.cutter.reach([self.new.get(t, t) for t in missing], name)
        self.cutter.numbers.update((t, self.cutter.numbers[self.new.get(t, t)]) for t in missing)

    def _run(self, segment: Segment, turn: int) -> None:
        """The step of a segment in a turn."""
        kernel, made = self._kernel(segment, turn)
        for given, (source, tensor) in made.passed.items():
            self._leave(given, tensor, self._cell(source, tensor, segment), segment, turn)
        if kernel is None:
            return
        inputs = [self._cell(given, tensor, segment) for given, tensor in made.inputs.items()]
        if turn == 0:
            self.firsts[segment] = len(self.cutter.steps)
        elif segment in self.firsts and self._computes_again(made):
            self.again.add(self.firsts[segment])
        outputs = [self._result(given, tensor, segment) for given, tensor in made.outputs.items()]
        self.cutter.call(kernel, inputs, outputs)
        for (given, tensor), cell in zip(made.outputs.items(), outputs, strict=True):
            self._leave(given, tensor, cell, segment, turn)

    def _leave(self, given: Given, tensor: Tensor, cell: int, segment: Segment, turn: int) -> None:
        """What a segment leaves to those that come later."""
        assert given.of is not None
        if given.kind == "final":
            self.finals[given] = tensor
            self.cutter.numbers[tensor] = cell
        elif given.kind == "carry":
            self.carries[given.of, segment.end if self.line.is_up(turn) else segment.begin] = cell
        elif given.kind == "sum":
            self.cutter.numbers[given.of] = cell

    def _computes_again(self, made: SegmentProgram) -> bool:
        """Whether a segment of a later turn has scans of the first one."""
        own = {timed.op.name for timed in self.line.timed.values() if timed.is_scan and timed.turn == 0}
        operations = operations_between(made.inputs.values(), made.outputs.values())
        return any(isinstance(op, Scan) and op.name in own for op in operations)

    def _kernel(self, segment: Segment, turn: int) -> tuple[SingleKernel | None, SegmentProgram]:
        """The kernel of a segment, which those that are alike share; None where nobody needs what it computes."""
        alike = self.segments.like(segment)
        if (alike, turn) not in self.kernels:
            if len(self.kernels) >= MOST_PROGRAMS:
                raise NotAlongTime("too many segments are unlike the others")
            made = self.segments.program(alike, turn)
            if not made.outputs:
                return None, made
            name = f"{self.program.name}_{_TURNS[turn]}"
            inputs, outputs = tuple(made.inputs.values()), tuple(made.outputs.values())
            program = Compilation(inputs, outputs, name, self.program.target, self.program.planner)
            layout = _layout((made.inputs | made.outputs).items())
            kernel = self.equal.setdefault(structural_key(outputs, inputs), SingleKernel(program, layout))
            self.kernels[alike, turn] = kernel, made
        return self.kernels[alike, turn]

    def _cell(self, given: Given, tensor: Tensor, segment: Segment) -> int:
        """The number of an input of a segment."""
        if given.kind in ("origin", "count"):
            place = self.segments.cut.alike.index(segment)
            numbers = self._origins if given.kind == "origin" else self._counts
            return self.cutter.view(View(numbers, 0, place, place + 1), tensor)
        assert given.of is not None
        if given.kind == "sum" and given.of not in self.cutter.numbers:
            return self._nothing(given.of)
        if given.kind == "carry":
            turn = self.line.timed[given.of.op].turn
            return self.carries[given.of, segment.begin if self.line.is_up(turn) else segment.end]
        cell = self.cutter.numbers[self.finals[given] if given.kind == "final" else given.of]
        return self._window(cell, given, tensor, segment) if given.kind == "window" else cell

    def _result(self, given: Given, tensor: Tensor, segment: Segment) -> int:
        """The number of an output of a segment."""
        if given.kind != "window" or given.of is None:
            return self.cutter.add(tensor)
        if given.of not in self.cutter.numbers:
            self.cutter.numbers[given.of] = self.cutter.add(given.of)
        return self._window(self.cutter.numbers[given.of], given, tensor, segment)

    def _window(self, cell: int, given: Given, tensor: Tensor, segment: Segment) -> int:
        moved = segment.begin - self.segments.like(segment).begin
        return self.cutter.view(View(cell, given.dim, given.begin + moved, given.end + moved), tensor)

    def _nothing(self, tensor: Tensor) -> int:
        """What a sum begins with."""
        op = tensor.op
        if isinstance(op, Scatter) and op.init is not None:
            return self.cutter.numbers[self.new.get(op.init, op.init)]
        kind = SCATTER_KINDS[op.kind] if isinstance(op, Scatter) else "sum"
        return self._computed(tensor.name, tensor.extents, lambda *_: BUILTIN[kind].identity_of(tensor.dtype))

    @cached_property
    def _origins(self) -> int:
        """Where all segments that are alike begin, as a tensor."""
        alike, length = self.segments.cut.alike, self.segments.cut.pattern.length
        first = alike[0].begin
        return self._numbers("origins", lambda k: maximum(k * length + alike[0].end - length, first))

    @cached_property
    def _counts(self) -> int:
        """How many steps they have."""
        first, length = self.segments.cut.alike[0].length, self.segments.cut.pattern.length
        return self._numbers("counts", lambda k: minimum(k * length + first, length))

    def _numbers(self, name: str, of: Callable[[Axis], Expr]) -> int:
        """A number for each of the segments that are alike, as a tensor."""
        return self._computed(name, (Const(len(self.segments.cut.alike), INT32),), of)

    def _computed(self, name: str, extents: tuple[Expr, ...], of: Callable[..., Expr]) -> int:
        axes = fresh_axes(extents)
        made = Compute(name=name, axes=axes, bodies=(of(*axes),)).output()
        self.cutter.reach([made], name)
        return self.cutter.numbers[made]
