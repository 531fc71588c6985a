"""Which stages of a program go along time: along the steps of its longest scans, read by read.

A stage goes along time if it reads what does at `t + c`, for an axis t of its own and numbers c; where t is reduced, it
is a sum over time. There are two turns: all scans in the direction of the first one, then those that go back, as of
gradients. A stage belongs to the first turn in which all that it reads is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from tedsl.backend.lowering.scans import can_lower_scan
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes

__all__ = ["NEAR", "SHORT", "NotAlongTime", "Timed", "Timeline", "axes_along", "longest", "offset_of"]

SHORT = 16  # what goes over less than this part of time is no stage along it
NEAR = 64  # steps from the end of its turn within which a single step of a scan may be read
_INSTEAD = "; steps are read at `t + c`, or at numbers, lists, slices and inputs that name fewer than half of them"


class NotAlongTime(Exception):
    """Why a program cannot be cut along time."""


@dataclass(eq=False)
class Timed:
    """A stage that goes along time by `axis`, which is dimension `dim` of its outputs; None: it is summed over."""

    op: Operation
    axis: Axis
    dim: int | None
    turn: int
    offsets: dict[Tensor, tuple[int, int]] = field(default_factory=dict)  # of what it reads along time, itself too

    @property
    def begin(self) -> int:
        return number(self.axis.begin) or 0

    @property
    def end(self) -> int:
        return self.begin + (number(self.axis.extent) or 0)

    @property
    def is_sum(self) -> bool:
        return self.dim is None

    @property
    def is_scan(self) -> bool:
        return isinstance(self.op, Scan)


class Timeline:
    """The stages of a program that go along time, each after what it reads; NotAlongTime where they are in the way."""

    def __init__(self, operations: Sequence[Operation], outputs: Sequence[Tensor]) -> None:
        self.operations = [op for op in operations if not isinstance(op, Placeholder)]
        self.timed: dict[Operation, Timed] = {}
        self.readers = _readers(self.operations)
        self.outputs = set(outputs)
        self.points: dict[Tensor, int] = {}  # how far before the end of its turn a single step is read
        self.levels: dict[Operation, int] = {}  # of other stages: the turns that must be over
        self.steps, self.is_up_first = longest(self.operations)
        for op in self.operations:
            found = self._link(op)
            if found is not None:
                self.timed[op] = found
        self._widen()
        self.timed = {op: self.timed[op] for op in self.operations if op in self.timed}
        for op in self.operations:
            self._order(op)
        self.turns = max(timed.turn for timed in self.timed.values()) + 1
        self.results = {t for t in outputs if (timed := self.of(t)) is not None and not timed.is_sum}

    def is_up(self, turn: int) -> bool:
        """Whether a turn begins with the first step."""
        return self.is_up_first == (turn == 0)

    def of(self, tensor: Tensor) -> Timed | None:
        """The stage along time that computes a tensor."""
        return self.timed.get(tensor.op)

    def is_along(self, timed: Timed, tensor: Tensor) -> bool:
        """Whether a tensor is computed along time, by others or by the stage itself."""
        own = set(timed.op.states) if isinstance(timed.op, Scan) else set()
        before = self.of(tensor)
        return tensor in own or (before is not None and not before.is_sum)

    def window(self, timed: Timed, read: Read) -> tuple[int, int] | None:
        """The dimension along which a stage reads something that lies ready, and how many steps away."""
        if self.is_along(timed, read.tensor):
            return None
        dims = [d for d, index in enumerate(read.indices) if timed.axis in set(free_axes(index))]
        if len(dims) != 1 or number(read.tensor.extents[dims[0]]) is None:
            return None
        step = offset_of(read.indices[dims[0]], timed.axis)
        return None if step is None else (dims[0], step)

    def _link(self, op: Operation) -> Timed | None:
        """How a stage goes along time, by what it reads."""
        if isinstance(op, Scan) and not can_lower_scan(op):
            raise NotAlongTime(f"{op.name!r} adds up sums over its own states, which no kernel does")
        if isinstance(op, Scan) and number(op.steps[0].extent) == self.steps and op.kept is None:
            timed = Timed(op, op.steps[0], op.dims[0], int(op.reverse == self.is_up_first))
        else:
            axis = next((a for a, _, _ in self._reads(op) if a is not None), None)
            if axis is None:
                return None
            timed = Timed(op, axis, self._dimension(op, axis), 0)
        own = dict(zip(op.states, op.outputs, strict=True)) if isinstance(op, Scan) else {}
        for read in op.reads:
            if read.tensor in own:
                self._reach(timed, own[read.tensor], offset_of(read.indices[timed.dim or 0], timed.axis), read)
        for axis, step, read in self._reads(op):
            if axis is not None and axis is not timed.axis:
                raise NotAlongTime(f"{op.name!r} reads steps of {read.tensor.name!r} for each of its own")
            if axis is not None:
                self._reach(timed, read.tensor, step, read)
        return timed

    def _reach(self, timed: Timed, tensor: Tensor, step: int | None, read: Read) -> None:
        if step is None:
            raise NotAlongTime(f"{timed.op.name!r} reads `{read}`, which is no fixed number of steps away{_INSTEAD}")
        low, high = timed.offsets.get(tensor, (step, step))
        timed.offsets[tensor] = min(low, step), max(high, step)

    def _reads(self, op: Operation) -> Iterator[tuple[Axis | None, int, Read]]:
        """What a stage reads of those along time: by which axis, how many steps away; or a single step."""
        for read in op.reads:
            timed = self.timed.get(read.tensor.op)
            if timed is None or timed.dim is None:
                continue
            index = read.indices[timed.dim]
            step = number(simplify_extent(index))
            if step is not None:
                yield None, step, read
                continue
            axis = next((a for a in free_axes(index) if offset_of(index, a) is not None), None)
            if axis is None:
                raise NotAlongTime(f"{op.name!r} reads `{read}`, which is no fixed number of steps away{_INSTEAD}")
            yield axis, offset_of(index, axis) or 0, read

    def _dimension(self, op: Operation, axis: Axis) -> int | None:
        """Which dimension of a stage an axis is; None for one that is summed over."""
        dim = next((d for d, a in axes_along(op).items() if a is axis), None)
        if isinstance(op, Scatter) and dim is not None and not self._is_read_along(op, dim):
            dim = None
        if dim is not None:
            return dim
        bound: tuple[Axis, ...] = ()
        if isinstance(op, Scatter):
            bound = op.axes
        elif isinstance(op, Compute) and op.reduction is not None and _is_sum(op):
            bound = op.reduction.axes
        if not any(a is axis for a in bound):
            raise NotAlongTime(f"{op.name!r} takes steps together by something other than a sum")
        return None

    def _widen(self) -> None:
        """Stages that are read along time and by nobody else are computed along it too, though they read nothing so."""
        apart = {t.op for op in self.operations if not isinstance(op, (Compute, Scan, Scatter)) for t in op.inputs}
        apart |= {op.init.op for op in self.operations if isinstance(op, Scatter) and op.init is not None}
        for op in reversed(self.operations):
            if op in self.timed or op in apart or self.outputs & set(op.outputs):
                continue
            dims = {self._place(reader, read) for reader, read in self.readers.get(op, ())}
            if len(dims) != 1 or (dim := dims.pop()) is None or (axis := axes_along(op).get(dim)) is None:
                continue
            if SHORT * (number(axis.extent) or 0) < self.steps:
                continue
            self.timed[op] = Timed(op, axis, dim, 0)
            for reader, read in self.readers[op]:
                timed = self.timed[reader]
                self._reach(timed, read.tensor, offset_of(read.indices[dim], timed.axis), read)

    def _is_read_along(self, op: Operation, dim: int) -> bool:
        """Whether all who read a stage read what lies a number of steps away along a dimension."""
        readers = self.readers.get(op, ())
        along = all(any(offset_of(read.indices[dim], a) is not None for a in free_axes(read)) for _, read in readers)
        others = (other for other in self.operations if op.output() in set(other.inputs))
        return along and {reader for reader, _ in readers} == set(others)

    def _place(self, reader: Operation, read: Read) -> int | None:
        """The dimension at which somebody along time reads what lies fixed numbers of steps away, alone."""
        timed = self.timed.get(reader)
        if timed is None:
            return None
        found = [d for d, index in enumerate(read.indices) if timed.axis in set(free_axes(index))]
        long = [d for d in found if offset_of(read.indices[d], timed.axis) is not None]
        return found[0] if len(found) == 1 and found == long else None

    def _order(self, op: Operation) -> None:
        """The turn of a stage along time; of another one, how many turns must be over."""
        over = 0
        whole = set(op.inputs).difference(read.tensor for read in op.reads)
        for tensor in op.inputs:
            before = self.timed.get(tensor.op)
            if before is None:
                over = max(over, self.levels.get(tensor.op, 0))
            elif before.is_sum:
                over = max(over, before.turn + 1)
            elif tensor in whole:
                raise NotAlongTime(f"{op.name!r} takes all steps of {tensor.name!r} at once")
        for axis, step, read in self._reads(op):
            before = self.timed[read.tensor.op]
            if axis is None:
                over = max(over, before.turn + 1)
                self._point(before, read, step)
        timed = self.timed.get(op)
        if timed is None:
            self.levels[op] = over
            return
        turns = [self.timed[t.op].turn for t in timed.offsets if t.op is not op]
        wanted = max([timed.turn, over, *turns])
        if wanted > 1 or (isinstance(op, Scan) and wanted != timed.turn):
            raise NotAlongTime(
                f"{op.name!r} goes along time once more, after what depends on all of its steps; in place of a "
                "far step that every step reads (`u[t] - u[0]`), read what it is computed from"
            )
        timed.turn = wanted

    def _point(self, timed: Timed, read: Read, step: int) -> None:
        away = timed.end - step if self.is_up(timed.turn) else step + 1
        if timed.is_sum or not 1 <= away <= NEAR:
            raise NotAlongTime(f"`{read}` is a single step of it, far from where its turn ends")
        self.points[read.tensor] = max(away, self.points.get(read.tensor, 0))


def _scattered_along(op: Scatter) -> dict[int, Axis]:
    """The dimensions along which a scatter goes in order, place by place, and the axes that are its indices there."""
    found: dict[int, Axis] = {}
    for dim, index in enumerate(op.index if op.kind == "add" and op.init is None else ()):
        others = set(free_axes([other for d, other in enumerate(op.index) if d != dim]))
        if isinstance(index, Axis) and index in set(op.axes) - others and _is_all_of(index, op.shape[dim]):
            found[dim] = index
    return found


def _is_all_of(axis: Axis, extent: Expr) -> bool:
    return number(axis.begin) == 0 and axis.extent is not None and number(axis.extent) == number(extent)


def axes_along(op: Operation) -> Mapping[int, Axis]:
    """The axes of a stage that are dimensions of what it computes."""
    if isinstance(op, Compute):
        return dict(enumerate(op.axes))
    return _scattered_along(op) if isinstance(op, Scatter) else {}


def _readers(operations: Iterable[Operation]) -> dict[Operation, list[tuple[Operation, Read]]]:
    """Who reads each stage, and how."""
    readers: dict[Operation, list[tuple[Operation, Read]]] = {}
    for op in operations:
        for read in op.reads:
            readers.setdefault(read.tensor.op, []).append((op, read))
    return readers


def offset_of(index: Expr, axis: Axis) -> int | None:
    """c, where an index is the axis and c."""
    return number(simplify_extent(index - axis)) if index.dtype is axis.dtype else None


def longest(operations: Sequence[Operation]) -> tuple[int, bool]:
    """The most steps of a scan, and whether the first one with so many goes upwards."""
    scans = [op for op in operations if isinstance(op, Scan) and op.kept is None]
    steps = [number(op.steps[0].extent) or 0 for op in scans]
    if not any(steps):
        raise NotAlongTime("it has no te.scan of a known number of steps")
    return max(steps), not scans[steps.index(max(steps))].reverse


def _is_sum(op: Compute) -> bool:
    return all(isinstance(body, Reduce) and body.reducer.kind == "sum" for body in op.bodies)
