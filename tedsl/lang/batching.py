"""A program with one more axis in front: what `vmap` makes of an operator, without a loop in Python.

Every stage that depends on a batched input gets the batch axis and reads batched tensors along it; the others stay as
they are, computed once. Within a scan whose states are too short for vectors the axis comes last, so that examples are
the lanes; who reads that finds it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from tedsl.lang.dataclass import dataclass
from tedsl.lang.elements import tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Apply, Axis, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.native import Native
from tedsl.lang.packing import CHEAP
from tedsl.lang.step import present_step
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, ScanState, Scatter, StepStage, Tensor
from tedsl.lang.traverse import free_axes, operations_between, rebuild_all

__all__ = ["batched", "broadcast"]


LEAST = 8  # examples that fill vectors
SHORT = 8  # elements along memory that fill none, or sums over so few that it does not matter which loop is inside
SHORT_PARTS, SHORT_ROWS = 17, 32  # the same where a step is made of parts of several shapes, and of a row's neighbors
FEW = 12  # operations of a step that cost less than to turn what it reads


@dataclass(eq=False)
class _Batch:
    """What was made of the tensors of one example; the axis of those `at_end` is the last one, of others the first."""

    new: dict[Tensor, Tensor]
    extent: Expr
    at_end: set[Tensor] = field(default_factory=set)

    def moved(self, roots: Iterable[Expr], axis: Axis) -> tuple[Expr, ...]:
        """Expressions that read, at one example, what was made of tensors."""

        def rule(node: Expr) -> Expr:
            if not isinstance(node, Read) or node.tensor not in self.new:
                return node
            made = self.new[node.tensor]
            return Read(made, (*node.indices, axis) if made in self.at_end else (axis, *node.indices))

        return rebuild_all(roots, rule)

    def in_front(self, tensor: Tensor) -> Tensor:
        """What was made of a tensor, with the axis first."""
        if tensor not in self.new:
            return broadcast(tensor, self.extent)
        made = self.new[tensor]
        if made not in self.at_end:
            return made
        return tensor_of((self.extent, *tensor.extents), lambda b, *axes: Read(made, (*axes, b)), f"{made.name}_each")


def batched(outputs: Iterable[Tensor], given: Mapping[Tensor, Tensor], extent: Expr) -> tuple[Tensor, ...]:
    """The outputs with a leading axis of `extent`, where each tensor of `given` is replaced by one that has it."""
    wanted = tuple(outputs)
    batch = _Batch(dict(given), extent)
    for op in operations_between(batch.new, wanted):
        if any(t in batch.new for t in op.inputs):
            rule = _RULES[type(op)]
            if rule is not _compute:
                _check_no_step(op, batch.new)
            made = rule(op, batch)
            batch.new.update(zip(op.outputs, made.outputs, strict=True))
    return tuple(batch.in_front(t) for t in wanted)


def _check_no_step(op: Operation, new: Mapping[Tensor, Tensor]) -> None:
    step = present_step()
    if step is not None and any(t in new and step.has_made(new[t]) for t in op.inputs):
        raise ValueError(
            f"te.vmap at {user_location()}: {type(op).__name__.lower()} {op.name!r} ({op.where}) reads what a step of "
            "a te.scan computes; write it for all examples, as loops over an axis of its own"
        )


def broadcast(tensor: Tensor, extent: Expr) -> Tensor:
    """The same elements at every place of a new leading axis."""
    return tensor_of((extent, *tensor.extents), lambda b, *axes: Read(tensor, axes), f"{tensor.name}_each")


def _compute(op: Compute | StepStage, batch: _Batch) -> Operation:
    axis = Axis("b", batch.extent)
    bodies, step = batch.moved(op.bodies, axis), present_step()
    if step is not None and step.makes(bodies):
        return step.stage((axis, *op.axes), bodies, op.name, op.names)
    assert isinstance(op, Compute)
    facts = None if op.facts is None else replace(op.facts, axis=op.facts.axis + 1, inverse=None)
    return replace(op, axes=(axis, *op.axes), bodies=bodies, facts=facts, _outputs={})


def _scan(op: Scan, batch: _Batch) -> Operation:
    axis, extent, is_last = Axis("b", batch.extent), batch.extent, _fills_vectors(op, batch)
    shapes = [(*s.extents, extent) if is_last else (extent, *s.extents) for s in op.states]
    states = tuple(
        ScanState(name=s.name, where=s.op.where, shape=shape, dtype=s.dtype).output()
        for s, shape in zip(op.states, shapes, strict=True)
    )
    batch.new.update(zip(op.states, states, strict=True))
    if not is_last:
        bodies, dims = batch.moved(op.bodies, axis), tuple(d + 1 for d in op.dims)
        return replace(op, axes=(axis, *op.axes), states=states, bodies=bodies, dims=dims, _outputs={})
    batch.at_end.update(states)
    parts = tuple(replace(p, extents=(*p.extents, extent)) for p in op.parts)
    bodies = batch.moved(op.bodies, axis)
    made = replace(op, axes=(*op.axes, axis), states=states, bodies=bodies, parts=parts, _outputs={})
    batch.at_end.update(made.outputs)
    return made


def _fills_vectors(op: Scan, batch: _Batch) -> bool:
    """Whether examples fill the vectors of a scan's steps better than its own elements do."""
    examples, others = number(batch.extent), [a for d, a in enumerate(op.axes) if d not in op.dims]
    if examples is not None and examples < LEAST:
        return False
    if not others:
        return len(op.dims) > 1 or not _is_cheap(op) or not _reads_along(op, batch.new)
    elements, own = number(others[-1].extent), set(op.states)
    if elements is None:
        return False
    if op.parts:
        return elements < SHORT_PARTS
    if any(isinstance(n, Reduce) for n in op.nodes):
        return elements < SHORT
    places = [r.indices for r in op.reads if r.tensor in own]
    moves = any(index is not op.axes[d] for at in places for d, index in enumerate(at) if d not in op.dims)
    return elements < (SHORT_ROWS if moves else SHORT)


def _is_cheap(op: Scan) -> bool:
    nodes = [n for n in op.nodes if isinstance(n, Apply)]
    return len(nodes) <= FEW and all(n.fn in CHEAP for n in nodes)


def _reads_along(op: Scan, new: Mapping[Tensor, Tensor]) -> bool:
    """Whether each step reads elements of its own from what differs between examples."""
    steps = set(op.steps)
    return any(r.tensor in new and not steps.isdisjoint(free_axes(r.indices)) for r in op.reads)


def _scatter(op: Scatter, batch: _Batch) -> Operation:
    axis = Axis("b", batch.extent, is_reduce=True)
    *index, value, guard = batch.moved(op.expressions, axis)
    init = None if op.init is None else batch.in_front(op.init)
    return replace(
        op, shape=(batch.extent, *op.shape), axes=(axis, *op.axes), index=(axis, *index), value=value, guard=guard,
        init=init, _outputs={},
    )  # fmt: skip


def _extern(op: Extern, batch: _Batch) -> Operation:
    flags = tuple(t in batch.new for t in op.args)
    shapes = tuple((batch.extent, *shape) for shape in op.shapes)
    if isinstance(op.function, Native):
        args = tuple(batch.in_front(t) for t in op.args)
        return replace(op, function=op.function.batched(), args=args, shapes=shapes, _outputs={})
    args = tuple(batch.in_front(t) if t in batch.new else t for t in op.args)
    return replace(op, function=_looped(op.function, flags), args=args, shapes=shapes, _outputs={})


def _looped(function: Callable[..., Any], flags: tuple[bool, ...]) -> Callable[..., Any]:
    """A Python function called once for each place of the leading axis of the arrays that have one."""

    def each(*arrays: Any) -> Any:
        count = next(len(a) for a, flag in zip(arrays, flags, strict=True) if flag)
        results = [
            function(*(a[b] if flag else a for a, flag in zip(arrays, flags, strict=True))) for b in range(count)
        ]
        if isinstance(results[0], (tuple, list)):
            return tuple(np.stack(part) for part in zip(*results, strict=True))
        return np.stack(results)

    return each


_RULES: dict[type[Operation], Callable[..., Operation]] = {
    Compute: _compute, StepStage: _compute, Scan: _scan, Scatter: _scatter, Extern: _extern,
}  # fmt: skip
