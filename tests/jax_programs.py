"""Programs evaluated by JAX, one operation after another, so that it differentiates what nobody here has.

Like `te.interpret` on boxes, with indices that are clamped and choices between values that are there on both sides: of
programs whose branches are finite everywhere, the gradients are right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from tedsl.analysis.pointwise import apply_numpy
from tedsl.analysis.sizes import axis_length
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.tensor import Compute, Constant, Operation, Placeholder, Scan, Tensor
from tedsl.lang.traverse import stages_of, topological

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

__all__ = ["evaluated", "pulled_back"]

Array = Any
_FUNCTIONS: dict[Fn, Callable[..., Array]] = {
    Fn.ADD: jnp.add, Fn.SUB: jnp.subtract, Fn.MUL: jnp.multiply, Fn.DIV: jnp.divide, Fn.NEG: jnp.negative,
    Fn.FLOORDIV: jnp.floor_divide, Fn.MOD: jnp.remainder, Fn.ABS: jnp.abs, Fn.MINIMUM: jnp.minimum,
    Fn.MAXIMUM: jnp.maximum, Fn.CLIP: jnp.clip, Fn.RELU: lambda x: jnp.maximum(x, 0),
    Fn.EQ: jnp.equal, Fn.NE: jnp.not_equal, Fn.LT: jnp.less, Fn.LE: jnp.less_equal, Fn.GT: jnp.greater,
    Fn.GE: jnp.greater_equal, Fn.AND: jnp.logical_and, Fn.OR: jnp.logical_or, Fn.NOT: jnp.logical_not,
    Fn.SELECT: jnp.where, Fn.CAST: lambda x: x, Fn.EXP: jnp.exp, Fn.LOG: jnp.log, Fn.SQRT: jnp.sqrt,
    Fn.SIN: jnp.sin, Fn.COS: jnp.cos, Fn.TANH: jnp.tanh, Fn.SIGMOID: jax.nn.sigmoid,
}  # fmt: skip
_FOLDS: dict[str, Callable[..., Array]] = {
    "sum": jnp.sum, "prod": jnp.prod, "max": jnp.max, "min": jnp.min, "any": jnp.any, "all": jnp.all,
    "argmax": jnp.argmax, "argmin": jnp.argmin,
}  # fmt: skip


def pulled_back(
    outputs: Sequence[Tensor], feeds: Mapping[Tensor, Array], inputs: Sequence[Tensor], heads: Sequence[Array]
) -> list[Array]:
    """What the gradients of `outputs` by `inputs` are to JAX."""

    def forward(*given: Array) -> list[Array]:
        return evaluated(outputs, {**feeds, **dict(zip(inputs, given, strict=True))})

    with jax.enable_x64(True):
        _, pull = jax.vjp(forward, *(jnp.asarray(feeds[t]) for t in inputs))
        return [np.asarray(g) for g in pull([jnp.asarray(h) for h in heads])]


def evaluated(outputs: Sequence[Tensor], feeds: Mapping[Tensor, Array]) -> list[Array]:
    """The values of tensors."""
    known: dict[tuple[Operation, int], Array] = {(t.op, t.index): jnp.asarray(a) for t, a in feeds.items()}
    for op in stages_of(outputs):
        if isinstance(op, Constant):
            known[op, 0] = jnp.asarray(op.array)
        elif not isinstance(op, Placeholder):
            assert isinstance(op, (Compute, Scan)), f"{op.name}: not for JAX"
            results = _scan(op, known) if isinstance(op, Scan) else _compute(op, known)
            known.update(((op, k), result) for k, result in enumerate(results))
    return [known[t.op, t.index] for t in outputs]


def _compute(op: Compute, known: Mapping[tuple[Operation, int], Array]) -> list[Array]:
    lengths = [axis_length(a, {}) for a in op.axes]
    found = _values(op.bodies, dict(zip(op.axes, ((0, n) for n in lengths), strict=True)), known)
    return [jnp.broadcast_to(v, lengths) for v in found]


def _scan(op: Scan, known: Mapping[tuple[Operation, int], Array]) -> list[Array]:
    lengths = [axis_length(a, {}) for a in op.axes]
    results = [jnp.ones(lengths, str(b.dtype)) for b in op.bodies]  # what is divided by is finite
    for step in product(*(range(lengths[d])[:: -1 if op.reverse else 1] for d in op.dims)):
        now = dict(zip(op.dims, step, strict=True))
        box = [(now[d], now[d] + 1) if d in now else (0, n) for d, n in enumerate(lengths)]
        own = {(s.op, 0): a for s, a in zip(op.states, results, strict=True)}
        found = _values(op.bodies, dict(zip(op.axes, box, strict=True)), {**known, **own})
        place = tuple(slice(*ends) for ends in box)
        shape = [end - begin for begin, end in box]
        results = [r.at[place].set(jnp.broadcast_to(v, shape)) for r, v in zip(results, found, strict=True)]
    if op.kept is not None:
        last = slice(op.kept) if op.reverse else slice(-op.kept, None)
        results = [r[(slice(None),) * op.dims[0] + (last,)] for r in results]
    return results


def _values(
    bodies: Sequence[Expr],
    ranges: Mapping[Axis, tuple[int, int]],
    known: Mapping[tuple[Operation, int], Array],
) -> list[Array]:
    """The bodies on a box, with a dimension for each of its axes."""
    order = topological(bodies)
    inner = dict.fromkeys(a for node in order if isinstance(node, Reduce) for a in node.axes)
    begins = {a: int(a.begin.value) for a in inner if isinstance(a.begin, Const)}
    ends = {a: (begins[a], begins[a] + axis_length(a, {})) for a in inner}
    grid = _Grid({**ranges, **ends}, known)
    value: dict[Expr, Array] = {}
    for node in order:
        value[node] = grid.value(node, value)
    return [value[b].reshape(value[b].shape[: len(ranges)]) if ranges else value[b].reshape(()) for b in bodies]


def _within(index: Array, extent: int) -> Array:
    return (np if isinstance(index, np.ndarray) else jnp).clip(index, 0, extent - 1)


class _Grid:
    """A box of points: of each axis its dimension and its range."""

    def __init__(self, ranges: Mapping[Axis, tuple[int, int]], known: Mapping[tuple[Operation, int], Array]) -> None:
        self.ranges, self.known = ranges, known
        self.dims = {a: d for d, a in enumerate(ranges)}

    def value(self, node: Expr, value: Mapping[Expr, Array]) -> Array:
        if isinstance(node, Const):
            return np.full((1,) * len(self.dims), node.value, str(node.dtype))
        if isinstance(node, Axis):
            shape = [-1 if a is node else 1 for a in self.dims]
            return np.arange(*self.ranges[node], dtype="int32").reshape(shape)
        if isinstance(node, Read):
            array = self.known[node.tensor.op, node.tensor.index]
            place = [_within(value[i], n) for i, n in zip(node.indices, array.shape, strict=True)]
            return array[tuple(place)] if place else array.reshape((1,) * len(self.dims))
        if isinstance(node, Reduce):
            return self._folded(node, value)
        assert isinstance(node, Apply)
        args = [value[a] for a in node.args]
        if all(isinstance(a, np.ndarray) for a in args):  # places and conditions on them, which JAX need not know
            return apply_numpy(node.fn, args, node.dtype)
        if node.fn in (Fn.FLOORDIV, Fn.MOD):
            args[1] = jnp.where(args[1] == 0, 1, args[1])
        return _FUNCTIONS[node.fn](*args).astype(str(node.dtype))

    def _folded(self, node: Reduce, value: Mapping[Expr, Array]) -> Array:
        dims = tuple(self.dims[a] for a in node.axes)
        (part,), where = (value[v] for v in node.values), value[node.where]
        shape = list(np.broadcast_shapes(part.shape, where.shape))
        for axis, dim in zip(node.axes, dims, strict=True):
            shape[dim] = self.ranges[axis][1] - self.ranges[axis][0]
        kind = node.reducer.kind
        if kind in ("argmax", "argmin"):
            (dim,) = dims
            nothing = -np.inf if kind == "argmax" else np.inf
            used = jnp.where(jnp.broadcast_to(where, shape), part.astype("float64"), nothing)
            return _FOLDS[kind](used, axis=dim, keepdims=True).astype("int32")
        identity = node.reducer.identity_of(node.dtype).value
        used = jnp.where(where, jnp.broadcast_to(part, shape), jnp.asarray(identity, part.dtype))
        return _FOLDS[kind](used, axis=dims, keepdims=True).astype(str(node.dtype))
