"""Stages over a part of time go over all of it, so that what they read of a step is read in that step.

    y[i] = f(u[i + 400])  for 600 i    ->    y[t] = select(t >= 400, f(u[t]), 0)  for 1000 t
    z = sum(y[i] for 600 i)            ->    z = sum(y[t] for 1000 t where t >= 400)

Without that, `y` would be computed 400 steps behind its segment, which would need all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schedules.program import reading, rewritten_expressions
from tedsl.backend.sequence.timeline import SHORT, axes_along, longest, offset_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.folding import select_node
from tedsl.lang.functions import logical_and
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between, rebuild, substitute, topological

__all__ = ["over_all_of_time"]

MUCH = 50  # nodes of an expression that is not written out for who reads it
LAG = 2  # steps by which a stage may differ from all of time and remain as it is


def over_all_of_time(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of the program whose stages along time go over all steps."""
    new = _Rewriter(operations_between(inputs, outputs), set(outputs)).new
    return tuple(new.get(t, t) for t in outputs)


@dataclass(frozen=True, eq=False)
class _Clock:
    """An axis of a stage that is at step `axis + lag`, and one over all steps in place of it."""

    axis: Axis
    lag: int
    steps: int
    whole: Axis

    @property
    def at(self) -> Expr:
        """What the axis is."""
        return self.whole - self.lag if self.lag else self.whole

    @property
    def inside(self) -> Expr:
        """Whether that is one of the places that there were."""
        first = (number(self.axis.begin) or 0) + self.lag
        last = first + (number(self.axis.extent) or 0)
        after, before = self.whole >= first, self.whole < last
        return logical_and(after, before) if first > 0 and last < self.steps else after if first > 0 else before

    def is_part(self) -> bool:
        """Whether it leaves out so many steps that it matters, and has none before the first step or after the last."""
        first = (number(self.axis.begin) or 0) + self.lag
        after = self.steps - first - (number(self.axis.extent) or 0)
        return min(first, after) >= 0 and max(first, after) > LAG


class _Rewriter:
    """The program being rewritten, each stage after what it reads."""

    def __init__(self, operations: Sequence[Operation], outputs: set[Tensor]) -> None:
        self.steps, _ = longest([op for op in operations if not isinstance(op, Placeholder)])
        written = (Compute, Scan, Scatter)
        self.fixed = outputs | {t for op in operations if not isinstance(op, written) for t in op.inputs}
        self.fixed |= {op.init for op in operations if isinstance(op, Scatter) and op.init is not None}
        self.new: dict[Tensor, Tensor] = {}
        self.lags: dict[Tensor, tuple[int, int]] = {}  # of what goes along time: its dimension, and its first step
        for op in operations:
            made = self._made(op) if isinstance(op, written) else reading(op, self.new)
            if made is not op:
                self.new.update(zip(op.outputs, made.outputs, strict=True))

    def _made(self, op: Operation) -> Operation:
        if isinstance(op, Scan):
            if number(op.steps[0].extent) == self.steps and op.kept is None:
                self.lags |= dict.fromkeys(op.outputs, (op.dims[0], 0))
            return self._rewritten(op, None)
        clock = self._clock(op)
        dim = None if clock is None else next((d for d, a in axes_along(op).items() if a is clock.axis), None)
        if clock is None or (dim is not None and op.output(0) in self.fixed):
            return self._rewritten(op, None)
        is_part = clock.is_part()
        if dim is not None:
            self.lags |= dict.fromkeys(op.outputs, (dim, clock.lag if is_part else 0))
        return self._rewritten(op, clock if is_part else None)

    def _clock(self, op: Operation) -> _Clock | None:
        """The axis along which a stage goes through time, if that is one."""
        found: dict[Axis, int] = {}
        for read in op.reads:
            if read.tensor not in self.lags:
                continue
            dim, lag = self.lags[read.tensor]
            index = read.indices[dim] + lag
            for axis in free_axes(index):
                step = offset_of(index, axis)
                if step is not None and SHORT * (number(axis.extent) or 0) > self.steps:
                    found[axis] = min(found.get(axis, step), step, key=abs)
        for index in self._added_to(op):
            for axis in free_axes(index):
                if (step := offset_of(index, axis)) is not None and (axis in found or not found):
                    found[axis] = step
        if len(found) != 1:
            return None
        ((axis, lag),) = found.items()
        whole = Axis(axis.name, Const(self.steps, INT32), is_reduce=axis.is_reduce)
        return _Clock(axis, lag, self.steps, whole)

    def _added_to(self, op: Operation) -> list[Expr]:
        """The indices at which a stage adds to steps."""
        if not isinstance(op, Scatter):
            return []
        return [index for n, index in zip(op.shape, op.index, strict=True) if number(n) == self.steps]

    def _rewritten(self, op: Operation, clock: _Clock | None) -> Operation:
        """The stage with its reads redirected, by another clock if one is given."""
        own = op.axes if isinstance(op, (Compute, Scan, Scatter)) else ()
        times = [clock.whole] if clock is not None else [a for a in own if number(a.extent) == self.steps]

        def rule(node: Expr) -> Expr:
            if isinstance(node, Read):
                dim, lag = self.lags.get(node.tensor, (0, 0))
                moved = tuple(i + lag if d == dim and lag else i for d, i in enumerate(node.indices))
                read = Read(self.new.get(node.tensor, node.tensor), moved)
                return read if node.tensor in self.lags else _inlined(read, times)
            if clock is None:
                return node
            if isinstance(node, Reduce) and any(a is clock.axis for a in node.axes):
                axes = tuple(clock.whole if a is clock.axis else a for a in node.axes)
                return Reduce(node.reducer, node.values, axes, logical_and(clock.inside, node.where), node.index)
            return clock.at if node is clock.axis else node

        made = rewritten_expressions(op, rule)
        if isinstance(made, Scatter):
            made = made if made.init is None else replace(made, init=self.new.get(made.init, made.init), _outputs={})
        return made if clock is None else _over_all(made, clock)


def _over_all(op: Operation, clock: _Clock) -> Operation:
    """A stage whose expressions are by the clock, over all steps if its own axis is the clock's."""
    assert isinstance(op, (Compute, Scatter))
    if not any(a is clock.axis for a in op.axes):
        return op
    axes = tuple(clock.whole if a is clock.axis else a for a in op.axes)
    if isinstance(op, Scatter):
        guard = logical_and(clock.inside, op.guard)
        index = tuple(clock.whole if offset_of(i, clock.whole) == 0 else i for i in op.index)
        return replace(op, axes=axes, index=index, guard=guard, _outputs={})
    return replace(op, axes=axes, bodies=tuple(_guarded(body, clock) for body in op.bodies), facts=None, _outputs={})


def _inlined(read: Read, times: Sequence[Axis]) -> Expr:
    """An element of a stage that reads nothing along time and goes over a part of it: what it is, if that is short."""
    op = read.tensor.op
    if not isinstance(op, Compute) or op.reduction is not None or len(op.bodies) != 1:
        return read
    is_part = any(
        number(own.extent) != number(axis.extent) and offset_of(index, axis) is not None
        for own, index in zip(op.axes, read.indices, strict=True)
        for axis in times
    )
    if not is_part or len(topological(op.bodies)) > MUCH:
        return read
    body = substitute(op.bodies[0], dict(zip(op.axes, read.indices, strict=True)))
    return rebuild(body, lambda node: _inlined(node, times) if isinstance(node, Read) else node)


def _guarded(body: Expr, clock: _Clock) -> Expr:
    if isinstance(body, Reduce):
        where = logical_and(clock.inside, body.where)
        return Reduce(body.reducer, body.values, body.axes, where, body.index)
    return select_node(clock.inside, body, Const(False if body.dtype.is_bool else 0, body.dtype))
