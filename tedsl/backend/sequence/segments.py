"""The program of one segment of time: what goes along time over a part of its steps, from what segments before left.

A scan begins with the last steps of the segment before, which it copies, and leaves its own last ones; a sum adds to
what was added before. Where in time a segment lies is a number in the first and in the last one, whose borders are
special, and an input of all others, which are therefore one program. The first of these may have fewer steps than the
program goes over: it makes some of the next one's too, and neither adds nor leaves these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tedsl.backend.sequence.clock import Clock, Cut, Segment
from tedsl.backend.sequence.timeline import Timed, Timeline, offset_of
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, DType
from tedsl.lang.elements import fresh_axes
from tedsl.lang.expr import Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.folding import select_node
from tedsl.lang.functions import clip, logical_and
from tedsl.lang.locks import cached_property
from tedsl.lang.phases import decided_all
from tedsl.lang.tensor import Compute, Operation, Scan, ScanState, Scatter, Tensor
from tedsl.lang.traverse import stages_of, topological

__all__ = ["Given", "SegmentProgram", "Segments", "at_the_end"]


@dataclass(frozen=True)
class Given:
    """What a segment is given or makes: a tensor (`whole`), its elements from `begin` to `end` along `dim` (`window`),
    what goes from segment to segment (`carry`, `sum`), the steps in which a turn ends (`final`), where it is
    (`origin`), or how many steps it has (`count`).
    """

    kind: str
    of: Tensor | None = None
    dim: int = 0
    begin: int = 0
    end: int = 0


@dataclass(frozen=True, eq=False)
class SegmentProgram:
    """A program over inputs that are given; its outputs are each a `carry`, a `sum`, a `final` or a `window`.

    `passed`: outputs that are what it is given, and are not computed.
    """

    inputs: dict[Given, Tensor]
    outputs: dict[Given, Tensor]
    passed: dict[Given, tuple[Given, Tensor]]


class Segments:
    """Time in segments: their programs, and how many steps scans leave to the next one."""

    def __init__(self, clock: Clock, cut: Cut) -> None:
        self.clock, self.line, self.cut = clock, clock.line, cut
        unlike = dict.fromkeys(map(self.like, cut.segments))
        self.spans = {(s, turn): clock.spans(s, turn) for s in unlike for turn in range(self.line.turns)}
        self.depths = {op: self._depth(op) for op, timed in self.line.timed.items() if timed.is_scan}

    def like(self, segment: Segment) -> Segment:
        """The segment whose program this one has."""
        return self.cut.pattern if segment in self.cut.alike else segment

    def in_turn(self, turn: int) -> tuple[Segment, ...]:
        """The segments in the order of a turn."""
        return self.cut.segments if self.line.is_up(turn) else self.cut.segments[::-1]

    def begins(self, timed: Timed, segment: Segment) -> bool:
        """Whether nothing is added to a sum before a segment; what several have in common adds to what there is."""
        order = map(self.like, self.in_turn(timed.turn))
        first = next(s for s in order if timed.op in self.spans[s, timed.turn].of)
        return segment is first and segment is not self.cut.pattern

    def program(self, segment: Segment, turn: int) -> SegmentProgram:
        """What is computed of a segment in one of the turns."""
        return _Writer(self, self.like(segment), turn).program()

    def _depth(self, op: Operation) -> int:
        """The most steps of a scan that a segment reads of those before it, in the order of its turn."""
        timed, depth = self.line.timed[op], 0
        for (segment, _), spans in self.spans.items():
            if op not in spans.of or op not in spans.read or segment.begins(up=self.line.is_up(timed.turn)):
                continue
            (begin, end), (near, far) = spans.of[op], spans.read[op]
            depth = max(depth, begin - near if self.line.is_up(timed.turn) else far - end)
        return depth


class _Writer:
    """The program of a segment being written."""

    def __init__(self, segments: Segments, segment: Segment, turn: int) -> None:
        self.all, self.line, self.segment, self.turn = segments, segments.line, segment, turn
        self.spans = segments.spans[segment, turn].of
        self.ops = [timed for op, timed in self.line.timed.items() if op in self.spans]
        self.inputs: dict[Given, Tensor] = {}
        self.made: dict[Tensor, tuple[Tensor, int]] = {}  # a tensor along time -> that here, and where it begins
        self.windows = segments.spans[segment, turn].windows

    @cached_property
    def origin(self) -> Expr | None:
        """Where the segment begins, if it is one of many."""
        if self.segment is not self.all.cut.pattern:
            return None
        alike = self.all.cut.alike
        return self._number("origin", alike[0].begin, alike[-1].begin)

    @cached_property
    def count(self) -> Expr | None:
        """How many steps are those of the segment, if it may have fewer than its program goes over."""
        cut = self.all.cut
        if self.segment is not cut.pattern or cut.is_even:
            return None
        return self._number("count", cut.alike[0].length, cut.pattern.length)

    def _number(self, kind: str, least: int, most: int) -> Expr:
        """A number that a segment is given, with its range, so that everyone knows that what is read lies inside."""
        return clip(Read(self._given(Given(kind)), (Const(0, INT32),)), least, most)

    def program(self) -> SegmentProgram:
        outputs: dict[Given, Tensor] = {}
        for timed in self.ops:
            made = self._built(timed)
            for old, new in zip(timed.op.outputs, made.outputs, strict=True):
                begin = self.spans[timed.op][0]
                if timed.is_scan and self.line.is_up(timed.turn):
                    begin -= self._carried(timed)
                self.made[old] = new, begin
                if timed.turn == self.turn and not (timed.is_sum and _adds_nothing(made)):
                    outputs |= self._left(timed, old, new, begin)
        given = {t: g for g, t in self.inputs.items() if g.kind == "carry"}
        left = {g: t for g, t in outputs.items() if g.kind in ("carry", "final")}
        passed = {g: (given[copied], copied) for g, t in left.items() if (copied := _copied_by(t)) in given}
        outputs = {g: t for g, t in outputs.items() if g not in passed}
        used = {t for op in stages_of(outputs.values()) for t in op.inputs}
        return SegmentProgram({g: t for g, t in self.inputs.items() if t in used}, outputs, passed)

    def _left(self, timed: Timed, old: Tensor, new: Tensor, begin: int) -> dict[Given, Tensor]:
        """What a scan or a sum leaves to those who come later."""
        if timed.is_sum:
            return {Given("sum", old): self._added(timed, old, new)}
        if timed.dim is None:
            return {}
        found: dict[Given, Tensor] = {}
        if old in self.line.results:
            first, last = self.segment.span(timed, self.all.clock.shifts[timed.op])
            if first < last:
                part = _steps(new, timed.dim, first - begin, last - first)
                found[Given("window", old, timed.dim, first, last)] = part
        kind, depth = "carry", self.all.depths.get(timed.op, 0)
        if self.segment.begins(up=not self.line.is_up(self.turn)):
            kind, depth = "final", self.line.points.get(old, 0)
        if depth:
            begins = self._own(number(new.extents[timed.dim]) or 0) - depth if self.line.is_up(self.turn) else 0
            found[Given(kind, old)] = _steps(new, timed.dim, begins, depth)
        return found

    def _added(self, timed: Timed, old: Tensor, new: Tensor) -> Tensor:
        """A sum with what was added in the segments before."""
        if self.all.begins(timed, self.segment) or isinstance(timed.op, Scatter):
            return new
        before, axes = self._given(Given("sum", old)), fresh_axes(new.extents)
        body = Read(before, axes) + Read(new, axes)
        return Compute(name=old.name, axes=axes, bodies=(body,)).output()

    def _own(self, end: int) -> int | Expr:
        """Where steps end that end with the segment, if its program may go further."""
        return end if self.count is None else self.count + (end - self.segment.length)

    def _carried(self, timed: Timed) -> int:
        """The steps that a scan copies."""
        return 0 if self.segment.begins(up=self.line.is_up(timed.turn)) else self.all.depths[timed.op]

    def _given(self, given: Given) -> Tensor:
        """The tensor of an input."""
        if given not in self.inputs:
            self.inputs[given] = self._placeholder(given)
        return self.inputs[given]

    def _placeholder(self, given: Given) -> Tensor:
        tensor = given.of
        if tensor is None:
            return placeholder((1,), INT32, name=given.kind)
        if given.kind == "whole":
            return tensor
        shape = list(tensor.extents)
        if given.kind == "window":
            shape[given.dim] = Const(given.end - given.begin, INT32)
        elif given.kind != "sum":
            timed = self.line.timed[tensor.op]
            depth = self.all.depths[tensor.op] if given.kind == "carry" else self.line.points[tensor]
            shape[timed.dim or 0] = Const(depth, INT32)
        suffix = "" if given.kind in ("window", "sum") else f"_{given.kind}"
        return placeholder(tuple(shape), tensor.dtype, name=f"{tensor.name}{suffix}")

    def _built(self, timed: Timed) -> Operation:
        """A stage over its steps here."""
        op, (begin, end) = timed.op, self.spans[timed.op]
        carried = self._carried(timed) if timed.is_scan else 0
        start = begin - carried if self.line.is_up(timed.turn) else begin  # the step of the axis at 0
        extent = Const(end - begin + carried, INT32)
        axis = Axis(timed.axis.name, extent, is_reduce=timed.axis.is_reduce)
        states: dict[Tensor, Tensor] = {}
        if isinstance(op, Scan):
            shape = list(op.states[0].extents)
            shape[op.dims[0]] = extent
            for state in op.states:
                made = ScanState(name=state.name, where=state.op.where, shape=tuple(shape), dtype=state.dtype)
                states[state] = made.output()
        exprs = self._expressions(timed, axis, start, states)
        if isinstance(op, Scan):
            bodies = tuple(
                self._copied(timed, t, axis, end - begin, body) for t, body in zip(op.outputs, exprs, strict=True)
            )
            axes = tuple(axis if a is timed.axis else a for a in op.axes)
            return replace(op, axes=axes, states=tuple(states.values()), bodies=decided_all(bodies), _outputs={})
        if isinstance(op, Scatter):
            *index, value, guard = exprs
            axes = tuple(axis if a is timed.axis else a for a in op.axes)
            if timed.dim is not None:
                index[timed.dim], extents = axis, _with(op.shape, timed.dim, extent)
                return replace(op, shape=extents, axes=axes, index=tuple(index), value=value, guard=guard, _outputs={})
            init = op.init
            guard = self._counted(axis, guard)
            if not self.all.begins(timed, self.segment):
                init = self._given(Given("sum", op.output()))
            elif init is not None:
                init = self._given(Given("whole", init))
            return replace(op, axes=axes, index=tuple(index), value=value, guard=guard, init=init, _outputs={})
        assert isinstance(op, Compute)
        axes = tuple(axis if a is timed.axis else a for a in op.axes)
        return replace(op, axes=axes, bodies=exprs, facts=None, _outputs={})

    def _copied(self, timed: Timed, tensor: Tensor, axis: Axis, own: int, body: Expr) -> Expr:
        """The body of a scan that copies the steps of the segment before, and then makes its own."""
        depth = self._carried(timed)
        if not depth or not isinstance(timed.op, Scan):
            return body
        carry = self._given(Given("carry", tensor))
        up, first = self.line.is_up(timed.turn), self._own(own)
        place = axis if up else axis - first if self.count is None else clip(axis - first, 0, depth - 1)
        indices = tuple(place if a is timed.axis else a for a in timed.op.axes)
        is_copy = axis < depth if up else axis >= first
        return select_node(is_copy, Read(carry, indices), body)

    def _counted(self, axis: Axis, where: Expr) -> Expr:
        """Where a sum over the steps of a segment adds something."""
        return where if self.count is None else logical_and(axis < self.count, where)

    def _expressions(self, timed: Timed, axis: Axis, start: int, states: dict[Tensor, Tensor]) -> tuple[Expr, ...]:
        """The expressions of a stage, whose axis is 0 at the step `start`."""
        moved: Expr = axis + start if self.origin is None else axis + (self.origin + (start - self.segment.begin))
        new: dict[Expr, Expr] = {timed.axis: moved if start or self.origin is not None else axis}
        for node in topological(timed.op.expressions):
            if node in new:
                continue
            children = tuple([new[c] for c in node.children])
            if isinstance(node, Read):
                new[node] = self._read(timed, node, children, axis, start, states)
                continue
            same = all(a is b for a, b in zip(children, node.children, strict=True))
            made = node if same else node.with_children(children)
            if isinstance(made, Reduce) and any(a is timed.axis for a in made.axes):
                axes = tuple(axis if a is timed.axis else a for a in made.axes)
                made = Reduce(made.reducer, made.values, axes, self._counted(axis, made.where), made.index)
            new[node] = made
        return decided_all([new[e] for e in timed.op.expressions])

    def _read(
        self, timed: Timed, read: Read, indices: tuple[Expr, ...], axis: Axis, start: int, states: dict[Tensor, Tensor]
    ) -> Expr:
        """A read of what there is in this segment."""
        if self.line.is_along(timed, read.tensor):
            before = timed if read.tensor in states else self.line.timed[read.tensor.op]
            dim = before.dim or 0
            step = offset_of(read.indices[dim], timed.axis)
            if step is None:
                return at_the_end(self.line, Read(read.tensor, indices), self._given)
            if read.tensor not in states and read.tensor not in self.made:
                return _zero(read.dtype)  # none of its steps are here: it is not used
            tensor, begin = (states[read.tensor], start) if read.tensor in states else self.made[read.tensor]
            return Read(tensor, _with(indices, dim, _plus(axis, start + step - begin)))
        place = self.line.window(timed, read)
        begin, end = (0, 0) if place is None else self.windows.get((read.tensor, place[0]), (0, 0))
        if place is None or not 0 <= begin < end <= (number(read.tensor.extents[place[0]]) or 0):
            return Read(self._given(Given("whole", read.tensor)), indices)
        window = self._given(Given("window", read.tensor, place[0], begin, end))
        return Read(window, _with(indices, place[0], _plus(axis, start + place[1] - begin)))


def _copied_by(tensor: Tensor) -> Tensor | None:
    """What a scan repeats, element by element."""
    op = tensor.op
    body = op.bodies[tensor.index] if isinstance(op, Scan) else None
    if not isinstance(op, Scan) or not isinstance(body, Read) or len(body.indices) != len(op.axes):
        return None
    is_same = all(i is a for i, a in zip(body.indices, op.axes, strict=True))
    return body.tensor if is_same and body.tensor.shape == tensor.shape else None


def _adds_nothing(op: Operation) -> bool:
    """Whether all that a sum over time would add is left out."""
    if isinstance(op, Scatter):
        return isinstance(op.guard, Const) and not op.guard.value
    return not any(isinstance(body, Reduce) for body in op.expressions)


def at_the_end(line: Timeline, read: Read, given: Callable[[Given], Tensor]) -> Read:
    """A read of a single step of a scan, of those in which its turn ended."""
    timed = line.timed[read.tensor.op]
    dim = timed.dim or 0
    first = timed.end - line.points[read.tensor] if line.is_up(timed.turn) else timed.begin
    step = number(simplify_extent(read.indices[dim])) or 0
    return Read(given(Given("final", read.tensor)), _with(read.indices, dim, Const(step - first, INT32)))


def _with(indices: tuple[Expr, ...], dim: int, index: Expr) -> tuple[Expr, ...]:
    return (*indices[:dim], index, *indices[dim + 1 :])


def _plus(axis: Axis, steps: int | Expr) -> Expr:
    return axis + steps if isinstance(steps, Expr) or steps else axis


def _steps(tensor: Tensor, dim: int, begin: int | Expr, count: int) -> Tensor:
    """Some steps of a tensor; before its first and after its last one are steps that nobody uses."""
    length = number(tensor.extents[dim]) or 0
    if count == length:
        return tensor
    axes = fresh_axes((*tensor.extents[:dim], Const(count, INT32), *tensor.extents[dim + 1 :]))
    step = _plus(axes[dim], begin)
    if not isinstance(begin, Expr) and (begin < 0 or begin + count > length):
        step = clip(step, 0, length - 1)
    body = Read(tensor, _with(axes, dim, step)) if length else _zero(tensor.dtype)
    return Compute(name=f"{tensor.name}_left", axes=axes, bodies=(body,)).output()


def _zero(dtype: DType) -> Const:
    """What stands where nothing is used."""
    return Const(False if dtype.is_bool else 0, dtype)
