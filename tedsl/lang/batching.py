"""A program with one more axis in front: what `vmap` makes of an operator, without a loop in Python.

Every stage that depends on a batched input gets the batch axis and reads batched tensors along it; the others stay as
they are, computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tedsl.lang.elements import tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.native import Native
from tedsl.lang.step import present_step
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, ScanState, Scatter, StepStage, Tensor
from tedsl.lang.traverse import operations_between, rebuild_all

__all__ = ["batched", "broadcast"]


def batched(outputs: Iterable[Tensor], given: Mapping[Tensor, Tensor], extent: Expr) -> tuple[Tensor, ...]:
    """The outputs with a leading axis of `extent`, where each tensor of `given` is replaced by one that has it."""
    wanted = tuple(outputs)
    new = dict(given)
    for op in operations_between(new, wanted):
        if any(t in new for t in op.inputs):
            rule = _RULES[type(op)]
            if rule is not _compute:
                _check_no_step(op, new)
            made = rule(op, new, extent)
            new.update(zip(op.outputs, made.outputs, strict=True))
    return tuple(new[t] if t in new else broadcast(t, extent) for t in wanted)


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


def _moved(roots: Iterable[Expr], new: Mapping[Tensor, Tensor], axis: Axis) -> tuple[Expr, ...]:
    def rule(node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor in new:
            return Read(new[node.tensor], (axis, *node.indices))
        return node

    return rebuild_all(roots, rule)


def _compute(op: Compute | StepStage, new: Mapping[Tensor, Tensor], extent: Expr) -> Operation:
    axis = Axis("b", extent)
    bodies, step = _moved(op.bodies, new, axis), present_step()
    if step is not None and step.makes(bodies):
        return step.stage((axis, *op.axes), bodies, op.name, op.names)
    assert isinstance(op, Compute)
    facts = None if op.facts is None else replace(op.facts, axis=op.facts.axis + 1, inverse=None)
    return replace(op, axes=(axis, *op.axes), bodies=bodies, facts=facts, _outputs={})


def _scan(op: Scan, new: Mapping[Tensor, Tensor], extent: Expr) -> Operation:
    axis = Axis("b", extent)
    states = tuple(
        ScanState(name=s.name, where=s.op.where, shape=(extent, *s.extents), dtype=s.dtype).output() for s in op.states
    )
    bodies = _moved(op.bodies, {**new, **dict(zip(op.states, states, strict=True))}, axis)
    return replace(
        op, axes=(axis, *op.axes), states=states, bodies=bodies, dims=tuple(d + 1 for d in op.dims), _outputs={}
    )


def _scatter(op: Scatter, new: Mapping[Tensor, Tensor], extent: Expr) -> Operation:
    axis = Axis("b", extent, is_reduce=True)
    *index, value, guard = _moved(op.expressions, new, axis)
    init = None if op.init is None else new[op.init] if op.init in new else broadcast(op.init, extent)
    return replace(
        op, shape=(extent, *op.shape), axes=(axis, *op.axes), index=(axis, *index), value=value, guard=guard, init=init,
        _outputs={},
    )  # fmt: skip


def _extern(op: Extern, new: Mapping[Tensor, Tensor], extent: Expr) -> Operation:
    flags = tuple(t in new for t in op.args)
    args = tuple(new.get(t, t) for t in op.args)
    shapes = tuple((extent, *shape) for shape in op.shapes)
    if isinstance(op.function, Native):
        args = tuple(new[t] if t in new else broadcast(t, extent) for t in op.args)
        return replace(op, function=op.function.batched(), args=args, shapes=shapes, _outputs={})
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
