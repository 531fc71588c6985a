"""The program of one segment of time: what goes along time over a part of its steps, from what segments before left.

A scan begins with the last steps of the segment before, which it copies, and leaves its own last ones; a sum adds to
what was added before. Where in time a segment lies is a number in the first and in the last one, whose borders are
special, and an input of all others, which are therefore one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from tedsl.backend.sequence.timeline import Timed, Timeline, offset_of
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import fresh_axes
from tedsl.lang.expr import Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.folding import select_node
from tedsl.lang.functions import clip
from tedsl.lang.locks import cached_property
from tedsl.lang.phases import decided_all
from tedsl.lang.tensor import Compute, Operation, Scan, ScanState, Scatter, Tensor
from tedsl.lang.traverse import stages_of, topological

__all__ = ["Given", "Segment", "SegmentProgram", "Segments", "at_the_end"]

Span = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """The steps from `begin` to before `end`, of so many."""

    begin: int
    end: int
    steps: int

    def begins(self, *, up: bool) -> bool:
        """Whether no other one comes before it in a turn, upwards or down."""
        return self.begin == 0 if up else self.end == self.steps

    def span(self, timed: Timed, shift: int) -> Span:
        """What a stage does of its own in this segment, a fixed number of steps before or behind it."""
        begin = timed.begin if self.begin == 0 else max(timed.begin, self.begin + shift)
        end = timed.end if self.end == self.steps else min(timed.end, self.end + shift)
        return begin, max(begin, end)


@dataclass(frozen=True)
class Given:
    """What a segment is given or makes: a tensor (`whole`), its elements from `begin` to `end` along `dim` (`window`),
    what goes from segment to segment (`carry`, `sum`), the steps in which a turn ends (`final`), or where it is
    (`origin`).
    """

    kind: str
    of: Tensor | None = None
    dim: int = 0
    begin: int = 0
    end: int = 0


@dataclass(frozen=True, eq=False)
class SegmentProgram:
    """A program over inputs that are given; its outputs are each a `carry`, a `sum`, a `final` or a `window`."""

    inputs: dict[Given, Tensor]
    outputs: dict[Given, Tensor]


@dataclass(eq=False)
class _Spans:
    """The steps over which each stage is computed in a segment, and those that are read of each tensor."""

    of: dict[Operation, Span] = field(default_factory=dict)
    read: dict[Operation, Span] = field(default_factory=dict)
    windows: dict[tuple[Tensor, int], Span] = field(default_factory=dict)  # of what lies ready, along a dimension
    is_cut: bool = False  # something ends with the whole of time

    def reaches(self, found: dict[Any, Span], key: Any, span: Span, whole: Span) -> None:
        """Take up what is read, as far as it exists."""
        own = max(whole[0], min(span[0], whole[1])), min(whole[1], max(span[1], whole[0]))
        self.is_cut |= own != span
        if own[0] < own[1]:
            known = found.get(key, own)
            found[key] = min(known[0], own[0]), max(known[1], own[1])


class Segments:
    """Time in segments: their programs, and how many steps scans leave to the next one."""

    def __init__(self, line: Timeline, segments: Sequence[Segment]) -> None:
        self.line, self.segments = line, tuple(segments)
        self.shifts = _shifts(line)
        self.spans = {(s, turn): self._spans(s, turn) for s in self.segments for turn in range(line.turns)}
        self.depths = {op: self._depth(op) for op, timed in line.timed.items() if timed.is_scan}

    @cached_property
    def alike(self) -> list[Segment]:
        """The segments that have one program."""
        return [s for s in self.segments if not any(self.spans[s, turn].is_cut for turn in range(self.line.turns))]

    def like(self, segment: Segment) -> Segment:
        """The first segment whose program this one has."""
        return self.alike[0] if segment in self.alike else segment

    @property
    def overlap(self) -> int:
        """How far a segment reads into others, at most."""
        return max(map(abs, (*self.depths.values(), *self.shifts.values())), default=0)

    @property
    def origins(self) -> Span:
        """Where segments that are alike begin, from the first to the last."""
        return self.alike[0].begin, self.alike[-1].begin

    def in_turn(self, turn: int) -> tuple[Segment, ...]:
        """The segments in the order of a turn."""
        return self.segments if self.line.is_up(turn) else self.segments[::-1]

    def first_of(self, timed: Timed) -> Segment:
        """The first segment in which a stage computes something."""
        return next(s for s in self.in_turn(timed.turn) if timed.op in self.spans[s, timed.turn].of)

    def program(self, segment: Segment, turn: int) -> SegmentProgram:
        """What is computed of a segment in one of the turns."""
        return _Writer(self, segment, turn).program()

    def _spans(self, segment: Segment, turn: int) -> _Spans:
        """By what sums and scans do, from readers to what they read."""
        spans = _Spans(is_cut=segment.begin == 0 or segment.end == segment.steps)
        self._reach_points(spans, segment, turn)
        for op, timed in reversed(self.line.timed.items()):
            span = self._span(segment, turn, timed, spans)
            if span is None or (timed.is_sum and span[0] >= span[1]):
                continue
            spans.of[op] = span
            for tensor, (low, high) in timed.offsets.items():
                before = self.line.timed[tensor.op]
                spans.reaches(spans.read, tensor.op, (span[0] + low, span[1] + high), (before.begin, before.end))
            for read in op.reads:
                place = self.line.window(timed, read)
                if place is not None:
                    dim, step = place
                    whole = (0, number(read.tensor.extents[dim]) or 0)
                    spans.reaches(spans.windows, (read.tensor, dim), (span[0] + step, span[1] + step), whole)
        return spans

    def _reach_points(self, spans: _Spans, segment: Segment, turn: int) -> None:
        """The single steps that are read where a turn ends."""
        if not segment.begins(up=not self.line.is_up(turn)):
            return
        for tensor, away in self.line.points.items():
            timed = self.line.timed[tensor.op]
            if timed.turn == turn:
                first = timed.end - away if self.line.is_up(turn) else timed.begin
                spans.reaches(spans.read, tensor.op, (first, first + away), (timed.begin, timed.end))

    def _span(self, segment: Segment, turn: int, timed: Timed, spans: _Spans) -> Span | None:
        wanted = spans.read.get(timed.op)
        is_result = timed.turn == turn and any(t.op is timed.op for t in self.line.results)
        if not timed.is_sum and not timed.is_scan and not is_result:
            return wanted
        if timed.turn > turn or (timed.turn < turn and wanted is None):
            return None
        shift = self.shifts[timed.op]
        begin, end = segment.span(timed, shift)
        spans.is_cut |= (begin, end) != (segment.begin + shift, segment.end + shift)
        if wanted is not None and is_result and not timed.is_scan:
            return min(begin, wanted[0]), max(end, wanted[1])
        if timed.turn == turn or wanted is None:
            return begin, end
        return (begin, max(begin, wanted[1])) if self.line.is_up(timed.turn) else (min(end, wanted[0]), end)

    def _depth(self, op: Operation) -> int:
        """The most steps of a scan that a segment reads of those before it, in the order of its turn."""
        timed, depth = self.line.timed[op], 0
        for (segment, _), spans in self.spans.items():
            if op not in spans.of or op not in spans.read or segment.begins(up=self.line.is_up(timed.turn)):
                continue
            (begin, end), (near, far) = spans.of[op], spans.read[op]
            depth = max(depth, begin - near if self.line.is_up(timed.turn) else far - end)
        return depth


def _shifts(line: Timeline) -> dict[Operation, int]:
    """How many steps each stage is behind its segment, since it reads later ones; in the second turn, before it."""
    away: dict[Operation, int] = {}
    for op, timed in line.timed.items():
        away[op] = 0
        for tensor, (low, high) in timed.offsets.items():
            if tensor.op is not op and line.timed[tensor.op].turn == timed.turn:
                away[op] = max(away[op], away[tensor.op] + (high if line.is_up(timed.turn) else -low))
    return {op: -n if line.is_up(line.timed[op].turn) else n for op, n in away.items()}


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
        if self.segment not in self.all.alike:
            return None
        read = Read(self._given(Given("origin")), (Const(0, INT32),))
        return clip(read, *self.all.origins)  # so that everyone knows that what is read at a step lies inside

    def program(self) -> SegmentProgram:
        outputs: dict[Given, Tensor] = {}
        for timed in self.ops:
            made = self._built(timed)
            for old, new in zip(timed.op.outputs, made.outputs, strict=True):
                begin = self.spans[timed.op][0]
                if timed.is_scan and self.line.is_up(timed.turn):
                    begin -= self._carried(timed)
                self.made[old] = new, begin
                if timed.turn == self.turn:
                    outputs |= self._left(timed, old, new, begin)
        used = {t for op in stages_of(outputs.values()) for t in op.inputs}
        return SegmentProgram({g: t for g, t in self.inputs.items() if t in used}, outputs)

    def _left(self, timed: Timed, old: Tensor, new: Tensor, begin: int) -> dict[Given, Tensor]:
        """What a scan or a sum leaves to those who come later."""
        if timed.is_sum:
            return {Given("sum", old): self._added(timed, old, new)}
        if timed.dim is None:
            return {}
        found: dict[Given, Tensor] = {}
        if old in self.line.results:
            first, last = self.segment.span(timed, self.all.shifts[timed.op])
            if first < last:
                part = _steps(new, timed.dim, first - begin, last - first)
                found[Given("window", old, timed.dim, first, last)] = part
        length = number(new.extents[timed.dim]) or 0
        kind, depth = "carry", self.all.depths.get(timed.op, 0)
        if self.segment.begins(up=not self.line.is_up(self.turn)):
            kind, depth = "final", self.line.points.get(old, 0)
        first = length - depth if self.line.is_up(self.turn) else 0
        if depth:
            found[Given(kind, old)] = _steps(new, timed.dim, first, depth)
        return found

    def _added(self, timed: Timed, old: Tensor, new: Tensor) -> Tensor:
        """A sum with what was added in the segments before."""
        if self._begins(timed) or isinstance(timed.op, Scatter):
            return new
        before, axes = self._given(Given("sum", old)), fresh_axes(new.extents)
        body = Read(before, axes) + Read(new, axes)
        return Compute(name=old.name, axes=axes, bodies=(body,)).output()

    def _begins(self, timed: Timed) -> bool:
        """Whether nothing was added to a sum before."""
        return self.segment is self.all.first_of(timed)

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
            return placeholder((1,), INT32, name="origin")
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
            return replace(op, axes=axes, states=tuple(states.values()), bodies=bodies, _outputs={})
        if isinstance(op, Scatter):
            *index, value, guard = exprs
            axes = tuple(axis if a is timed.axis else a for a in op.axes)
            if timed.dim is not None:
                index[timed.dim], extents = axis, _with(op.shape, timed.dim, extent)
                return replace(op, shape=extents, axes=axes, index=tuple(index), value=value, guard=guard, _outputs={})
            init = op.init
            if not self._begins(timed):
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
        up = self.line.is_up(timed.turn)
        first = 0 if up else own
        indices = tuple(axis - first if a is timed.axis else a for a in timed.op.axes)
        is_copy = Expr._apply(Fn.LT, axis, Const(depth, INT32)) if up else _at_least(axis, own)
        return select_node(is_copy, Read(carry, indices), body)

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
                made = made.with_axes(tuple(axis if a is timed.axis else a for a in made.axes))
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
                return Const(
                    False if read.dtype.is_bool else 0, read.dtype
                )  # none of its steps are here: it is not used
            tensor, begin = (states[read.tensor], start) if read.tensor in states else self.made[read.tensor]
            return Read(tensor, _with(indices, dim, _plus(axis, start + step - begin)))
        place = self.line.window(timed, read)
        if place is None or (read.tensor, place[0]) not in self.windows:
            return Read(self._given(Given("whole", read.tensor)), indices)
        begin, end = self.windows[read.tensor, place[0]]
        window = self._given(Given("window", read.tensor, place[0], begin, end))
        return Read(window, _with(indices, place[0], _plus(axis, start + place[1] - begin)))


def at_the_end(line: Timeline, read: Read, given: Callable[[Given], Tensor]) -> Read:
    """A read of a single step of a scan, of those in which its turn ended."""
    timed = line.timed[read.tensor.op]
    dim = timed.dim or 0
    first = timed.end - line.points[read.tensor] if line.is_up(timed.turn) else timed.begin
    step = number(simplify_extent(read.indices[dim])) or 0
    return Read(given(Given("final", read.tensor)), _with(read.indices, dim, Const(step - first, INT32)))


def _with(indices: tuple[Expr, ...], dim: int, index: Expr) -> tuple[Expr, ...]:
    return (*indices[:dim], index, *indices[dim + 1 :])


def _plus(axis: Axis, steps: int) -> Expr:
    moved: Expr = axis + steps if steps else axis
    return moved


def _at_least(axis: Axis, low: int) -> Expr:
    condition: Expr = Expr._apply(Fn.GE, axis, Const(low, INT32))
    return condition


def _steps(tensor: Tensor, dim: int, begin: int, count: int) -> Tensor:
    """Some steps of a tensor."""
    if count == number(tensor.extents[dim]):
        return tensor
    axes = fresh_axes((*tensor.extents[:dim], Const(count, INT32), *tensor.extents[dim + 1 :]))
    indices = tuple(a + begin if d == dim and begin else a for d, a in enumerate(axes))
    return Compute(name=f"{tensor.name}_left", axes=axes, bodies=(Read(tensor, indices),)).output()
