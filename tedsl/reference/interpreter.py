"""`te.interpret`: a program evaluated stage after stage with NumPy, on boxes of points small enough for memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, overload

import numpy as np

from tedsl.analysis.arrays.feeds import Feeds, as_feeds, as_outputs, check_array, check_dtype, check_not_masked
from tedsl.analysis.calling import returned_by
from tedsl.analysis.messages import describe
from tedsl.analysis.overflow import check_limits, limits_of
from tedsl.analysis.pointwise import Array, held_type, rounded
from tedsl.analysis.sizes import NamedSizes, axis_length, bind_sizes, concrete_shape, evaluate_extent
from tedsl.lang.dtypes import DType
from tedsl.lang.expr import Axis, Expr, Read, Reduce, Var
from tedsl.lang.keywords import own_arguments
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.tensor import Compute, Constant, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import operations_between, topological
from tedsl.reference.folds import wide_type
from tedsl.reference.grid import PointGrid, ScanProgress, TensorKey, boxes, fold_over, unknown_array
from tedsl.reference.steps import StepWalk

__all__ = ["evaluate_stages", "interpret"]

# Points evaluated at once: a few megabytes for each node of an expression.
LIMIT = 1 << 20
WHAT = "te.interpret"


@overload
def interpret(outputs: Tensor, feeds: Feeds | None = None, sizes: NamedSizes | None = None) -> Array: ...
@overload
def interpret(
    outputs: Sequence[Tensor], feeds: Feeds | None = None, sizes: NamedSizes | None = None
) -> tuple[Array, ...]: ...
@own_arguments(hint="feeds are a dict, by tensors or names: {'x': a}")
def interpret(outputs: Any, feeds: Feeds | None = None, sizes: NamedSizes | None = None) -> Any:
    """The values of `outputs` for the arrays in `feeds`, by definition: `interpret(C, {A: a, B: b})`.

    One tensor gives one array, a list gives a tuple. A name may stand for a tensor in `feeds`. A computed tensor may be
    fed too; what is behind it is not evaluated then. `sizes={n: 3}`, or by names, gives the extents that no input
    carries.
    """
    tensors, several = as_outputs(outputs, WHAT)
    wanted = [t.dtype.numpy for t in tensors]  # bfloat16 without ml_dtypes is refused before the work
    given = as_feeds(feeds, tensors, WHAT)
    stages = operations_between(given, tensors)
    arrays = _checked_feeds(given, stages)
    bound = bind_sizes(list(arrays), [a.shape for a in arrays.values()], sizes, WHAT, tensors)
    values = evaluate_stages([op for op in stages if not isinstance(op, Placeholder)], arrays, bound)
    results = tuple(values[t].astype(kind) for t, kind in zip(tensors, wanted, strict=True))
    return results if several else results[0]


def evaluate_stages(
    stages: Sequence[Operation], known: Mapping[Tensor, Array], sizes: Mapping[Var, int]
) -> dict[Tensor, Array]:
    """The tensors of these stages, each before its users, beside those known already; in the types that hold them."""
    if sizes:
        check_limits(limits_of(stages), sizes, WHAT)
    values: dict[TensorKey, Array] = {(t.op, t.index): a.astype(held_type(t.dtype)) for t, a in known.items()}
    with np.errstate(all="ignore"):  # overflow and NaN are values here, as they are in a kernel
        for op in stages:
            for index, array in enumerate(_EVALUATE[type(op)](op, values, sizes)):
                values.setdefault((op, index), array)
    return {op.output(index): array for (op, index), array in values.items()}


def _checked_feeds(feeds: Mapping[Tensor, Any], stages: Sequence[Operation]) -> dict[Tensor, Array]:
    for op in stages:
        if isinstance(op, Placeholder) and not isinstance(op, Constant) and op.output() not in set(feeds):
            raise ValueError(
                f"{WHAT}: input {op.output()!r}, declared at {op.where}, is missing from feeds "
                f"(found: {', '.join(repr(t.name) for t in feeds) or 'none'})"
            )
    constants = {op.output(): op.array for op in stages if isinstance(op, Constant)}
    return {**constants, **{tensor: check_array(tensor, value, WHAT) for tensor, value in feeds.items()}}


class _Stage:
    """The ranges of a stage's axes, and grids over pieces of them."""

    def __init__(self, op: Operation, values: Mapping[TensorKey, Array], sizes: Mapping[Var, int]) -> None:
        self.op = op
        self.values = values
        self.sizes = sizes

    def lengths(self, axes: Sequence[Axis]) -> tuple[int, ...]:
        return tuple(axis_length(a, self.sizes, f"{WHAT}: {describe(self.op)}") for a in axes)

    def ranges(self, axes: Sequence[Axis], box: Sequence[tuple[int, int]]) -> dict[Axis, tuple[int, int]]:
        """The values of each axis on a box that counts positions from 0."""
        begins = [evaluate_extent(a.begin, self.sizes) for a in axes]
        return {a: (b + start, b + end) for a, b, (start, end) in zip(axes, begins, box, strict=True)}

    def grid(self, ranges: Mapping[Axis, tuple[int, int]], progress: ScanProgress | None = None) -> PointGrid:
        dims = {axis: d for d, axis in enumerate(ranges)}
        return PointGrid(self.op, self.values, self.sizes, dims, ranges, progress=progress)


def _compute(op: Compute, values: Mapping[TensorKey, Array], sizes: Mapping[Var, int]) -> list[Array]:
    stage = _Stage(op, values, sizes)
    lengths = stage.lengths(op.axes)
    results = [np.zeros(lengths, held_type(body.dtype)) for body in op.bodies]
    inner = stage.lengths(op.reduction.axes) if op.reduction is not None else ()
    order = topological(op.reduction.children if op.reduction is not None else op.bodies)
    for box in boxes(lengths, max(1, LIMIT // max(1, math.prod(inner)))):
        data = stage.ranges(op.axes, box)
        is_reduction = op.reduction is not None
        parts = _reduced(op, stage, data, inner, order) if is_reduction else _pointwise(op, stage, data, order)
        shape = tuple(end - start for start, end in box)
        for result, part in zip(results, parts, strict=True):
            result[tuple(slice(*piece) for piece in box)] = np.broadcast_to(part, shape or (1,)).reshape(shape)
    return results


def _pointwise(op: Compute, stage: _Stage, data: Mapping[Axis, tuple[int, int]], order: Sequence[Expr]) -> list[Array]:
    found = stage.grid(data).evaluate(dict.fromkeys(op.bodies), order)
    return [found[body] for body in op.bodies]


def _reduced(
    op: Compute, stage: _Stage, data: Mapping[Axis, tuple[int, int]], inner: tuple[int, ...], order: Sequence[Expr]
) -> list[Array]:
    """The components of one reduction on a piece of the data axes, the reduced axes in pieces too."""
    reduce = op.reduction
    assert reduce is not None
    points = math.prod(end - begin for begin, end in data.values())
    fold = fold_over(reduce, stage.grid({**data, **stage.ranges(reduce.axes, [(0, 0)] * len(inner))}))
    for box in boxes(inner, max(1, LIMIT // max(1, points))):
        grid = stage.grid({**data, **stage.ranges(reduce.axes, box)})
        found = grid.evaluate({**dict.fromkeys(reduce.values, reduce.where), reduce.where: None}, order)
        fold.add(tuple(found[v] for v in reduce.values), found[reduce.where], grid)
    parts = [fold.result(k) for k in range(len(op.bodies))]
    return [p.reshape(p.shape[: len(data)]) if p.ndim else p for p in parts]


# kind of scatter -> how values meet in one element
_MEET: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(op: Scatter, values: Mapping[TensorKey, Array], sizes: Mapping[Var, int]) -> list[Array]:
    shape = concrete_shape(op.output(), sizes, WHAT)
    # Where it is written is looked at as a read of the result would be, of which nothing is known yet.
    target = Read(op.output(), op.index)
    stage = _Stage(op, {**values, (op, 0): unknown_array(shape)}, sizes)
    dtype = op.dtype_of(0)
    kind = wide_type(dtype) if op.kind in ("add", "mul") else held_type(dtype)
    identity = BUILTIN[SCATTER_KINDS[op.kind]].identity_of(dtype).value
    start = np.full(shape, identity, kind) if op.init is None else values[op.init.op, op.init.index]
    result: Array = start.astype(kind)
    lengths = stage.lengths(op.axes)
    order = topological((target, op.value, op.guard))
    for box in boxes(lengths, LIMIT):
        grid = stage.grid(stage.ranges(op.axes, box))
        full = tuple(end - start for start, end in box) or (1,)
        found = grid.evaluate({**dict.fromkeys((target, op.value), op.guard), op.guard: None}, order)
        used = np.broadcast_to(found[op.guard], full)
        rows = [np.broadcast_to(found[row], full)[used] for row in op.index]
        terms = np.broadcast_to(found[op.value], full)[used].astype(kind)
        # NumPy combines several values in one element only where there is an index to repeat.
        place = tuple(row.astype(np.int64) for row in rows) if rows else (np.zeros(terms.shape, np.int64),)
        _MEET[op.kind].at(result if rows else result.reshape(1), place, terms)
    return [rounded(result, dtype)]


def _scan(op: Scan, values: Mapping[TensorKey, Array], sizes: Mapping[Var, int]) -> list[Array]:
    lengths = _Stage(op, values, sizes).lengths(op.axes)
    results = [np.zeros(lengths, held_type(body.dtype)) for body in op.bodies]
    own = {(state.op, 0): array for state, array in zip(op.states, results, strict=True)}
    stage = _Stage(op, {**values, **own}, sizes)
    inner = tuple(dict.fromkeys(a for node in op.nodes if isinstance(node, Reduce) for a in node.axes))
    whole = stage.ranges((*op.axes, *inner), [(0, length) for length in (*lengths, *stage.lengths(inner))])
    turn, walk = -1 if op.reverse else 1, StepWalk(op, sizes)
    for step in product(*(range(lengths[d])[::turn] for d in op.dims)):
        if 0 in lengths:
            break
        now = {axis: (whole[axis][0] + at, whole[axis][0] + at + 1) for axis, at in zip(op.steps, step, strict=True)}
        found = walk.values(stage.grid({**whole, **now}, walk.progress(step)), step)
        at = dict(zip(op.dims, step, strict=True))
        place = tuple(slice(at[d], at[d] + 1) if d in at else slice(None) for d in range(len(lengths)))
        for result, body in zip(results, op.bodies, strict=True):
            result[place] = found[body].reshape(found[body].shape[: len(lengths)])
    if op.kept is not None:
        last = slice(op.kept) if op.reverse else slice(-op.kept, None)
        return [result[(slice(None),) * op.dims[0] + (last,)] for result in results]
    return results


def _extern(op: Extern, values: Mapping[TensorKey, Array], sizes: Mapping[Var, int]) -> list[Array]:
    given = [np.array(values[t.op, t.index], t.dtype.numpy, order="C") for t in op.args]
    for array in given:
        array.flags.writeable = False
    returned = returned_by(op, given, sizes)
    several = isinstance(returned, (tuple, list))
    parts = list(returned) if several else [returned]
    if len(parts) != op.num_outputs:
        raise ValueError(f"{describe(op)}: the function returned {len(parts)} arrays, expected {op.num_outputs}")
    return [_extern_result(op, k, part, sizes) for k, part in enumerate(parts)]


def _extern_result(op: Extern, index: int, part: Any, sizes: Mapping[Var, int]) -> Array:
    place = f"{describe(op)}: result {index}"
    if not isinstance(part, (np.ndarray, np.generic)):
        raise TypeError(f"{place}: expected a NumPy array, found {type(part).__name__} ({part!r:.40})")
    check_not_masked(part, place)
    array = np.asarray(part)
    dtype: DType = op.dtypes[index]
    check_dtype(array, dtype, place)
    shape = concrete_shape(op.output(index), sizes, WHAT)
    if array.shape != shape:
        raise ValueError(f"{place}: expected shape {shape}, found {array.shape}")
    return array.astype(held_type(dtype))


_EVALUATE: dict[type, Callable[..., list[Array]]] = {Compute: _compute, Scatter: _scatter, Scan: _scan, Extern: _extern}
