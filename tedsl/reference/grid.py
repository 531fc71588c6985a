"""Scalar expressions evaluated at every point of a box at once, with NumPy arrays that have one dimension per axis.

Values are total: outside its tensor an index is clamped, a zero divisor gives 0. Only afterwards, and only if something
went wrong somewhere, the points at which each value is *needed* are computed (`select` and `where=` guard their
branches), and what went wrong at such a point is raised: where a lazy evaluation, point by point, would raise it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Any

import numpy as np

from tedsl.analysis.messages import Overrun, describe
from tedsl.analysis.pointwise import Array, apply_numpy, held_type, rounded
from tedsl.analysis.sizes import evaluate_extent
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, DType
from tedsl.lang.errors import ZeroDivisorError
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Formal, Read, Reduce, Var
from tedsl.lang.tensor import Operation, Scan, Scatter
from tedsl.lang.traverse import free_axes, topological
from tedsl.reference.folds import Fold, builtin_fold

__all__ = ["PointGrid", "ScanProgress", "TensorKey", "boxes", "fold_over", "unknown_array"]

TensorKey = tuple[Operation, int]
# Where a root is needed: everywhere, where another root is true, or at the points given.
Use = Expr | Array | None


@dataclass(frozen=True)
class ScanProgress:
    """How far a scan is: its states may be read at steps before `step` (after it if `reverse`).

    A step is a place along the dimensions `dims`, the first of which is the slowest.
    """

    states: frozenset[Operation]
    dims: tuple[int, ...]
    step: tuple[int, ...]
    reverse: bool

    def not_yet(self, place: Sequence[Array]) -> Array:
        """Whether a place along the dimensions is the present step, or a coming one."""
        late: Array = np.array(True)
        for index, step in reversed(list(zip(place, self.step, strict=True))):
            beyond = index < step if self.reverse else index > step
            late = beyond | ((index == step) & late)
        return late

    def __str__(self) -> str:
        return str(self.step[0]) if len(self.step) == 1 else str(self.step)


@dataclass(frozen=True)
class PointGrid:
    """A box of points: for each axis its array dimension and its values [begin, end); and what names stand for."""

    op: Operation
    tensors: Mapping[TensorKey, Array]
    sizes: Mapping[Var, int]
    dims: Mapping[Axis, int]
    ranges: Mapping[Axis, tuple[int, int]]
    formals: Mapping[Formal, Array] = field(default_factory=dict)
    progress: ScanProgress | None = None

    @property
    def rank(self) -> int:
        return max(1, len(self.dims))

    def evaluate(self, roots: Mapping[Expr, Use], order: Sequence[Expr] | None = None) -> dict[Expr, Array]:
        """The value of every node below the roots, each with the condition under which it is needed."""
        value, fault = self.tried(roots, order)
        if fault is not None:
            raise fault.error() if isinstance(fault, Overrun) else fault
        return value

    def tried(
        self, roots: Mapping[Expr, Use], order: Sequence[Expr] | None = None
    ) -> tuple[dict[Expr, Array], Overrun | Exception | None]:
        """The values, and the first fault where it matters."""
        order = topological(roots) if order is None else order
        value: dict[Expr, Array] = {}
        wrong: list[tuple[Expr, int, Array]] = []
        for node in order:
            value[node] = self._value(node, value, wrong)
        if wrong:
            need = _needed(order, roots, value)
            for node, dim, bad in wrong:
                if (bad & need[node]).any():
                    return value, self._fault(node, dim, bad, need, value)
        return value, None

    def _value(self, node: Expr, value: dict[Expr, Array], wrong: list[tuple[Expr, int, Array]]) -> Array:
        if isinstance(node, Const):
            return self._scalar(node.value, node.dtype)
        if isinstance(node, Var):
            return self._scalar(self.sizes[node], INT32)
        if isinstance(node, Axis):
            shape = [1] * self.rank
            shape[self.dims[node]] = -1
            return np.arange(*self.ranges[node], dtype=np.int32).reshape(shape)
        if isinstance(node, Formal):
            return self.formals[node]
        if isinstance(node, Read):
            return self._gather(node, value, wrong)
        if isinstance(node, Reduce):
            fold = fold_over(node, self)
            fold.add(tuple(value[v] for v in node.values), value[node.where], self)
            return fold.result(node.index)
        assert isinstance(node, Apply)
        args = [value[a] for a in node.args]
        bad = _undefined(node, args)
        if bad is not None and bad.any():
            wrong.append((node, -1, bad))
        return apply_numpy(node.fn, args, node.dtype)

    def _scalar(self, number: bool | int | float, dtype: DType) -> Array:
        return rounded(np.full((1,) * self.rank, number, held_type(dtype)), dtype)

    def _gather(self, node: Read, value: dict[Expr, Array], wrong: list[tuple[Expr, int, Array]]) -> Array:
        array = self.tensors[node.tensor.op, node.tensor.index]
        where: list[Array] = []
        for dim, (expr, extent) in enumerate(zip(node.indices, self._bounds(node, array), strict=True)):
            index = _wide(value[expr])
            bad = (index < 0) | (index >= extent)
            is_outside = bad.any()
            where.append(np.clip(index, 0, max(extent - 1, 0)) if is_outside else index)
            if self.progress is not None and self._is_state(node) and dim == max(self.progress.dims):
                place = [_wide(value[node.indices[d]]) for d in self.progress.dims]
                bad = bad | self.progress.not_yet(place)
                is_outside = bad.any()
            if is_outside:
                wrong.append((node, dim, bad))
        if array.size == 0:
            return np.zeros(np.broadcast_shapes((1,) * self.rank, *(w.shape for w in where)), array.dtype)
        return array[tuple(where)] if where else array.reshape((1,) * self.rank)

    def _bounds(self, node: Read, array: Array) -> tuple[int, ...]:
        """The extents of what is read."""
        if isinstance(self.op, Scan) and self.op.parts and self._is_state(node):
            return tuple(evaluate_extent(e, self.sizes) for e in self.op.bounds_of(node))
        return array.shape

    def _is_state(self, node: Read) -> bool:
        return self.progress is not None and node.tensor.op in self.progress.states

    def _fault(
        self, node: Expr, dim: int, bad: Array, need: Mapping[Expr, Array], value: Mapping[Expr, Array]
    ) -> Overrun | Exception:
        """What is wrong at the first point at which it matters."""
        failing = bad & need[node]
        first = tuple(np.argwhere(failing)[0])
        point = {a.name: self._at(a, first) for a in free_axes(node.children) if a in self.dims}
        if isinstance(node, Apply):
            return _undefined_error(node, self.op, point)
        assert isinstance(node, Read)
        index = np.broadcast_to(value[node.indices[dim]], failing.shape)
        extent = self._bounds(node, self.tensors[node.tensor.op, node.tensor.index])[dim]
        found = index[np.broadcast_to(need[node], failing.shape)]
        progress = self.progress if self._is_state(node) else None
        return Overrun(
            self.op, node.tensor, dim, node.indices[dim], int(index[first]), extent, point,
            low=int(found.min()), high=int(found.max()),
            writes=isinstance(self.op, Scatter) and node.tensor.op is self.op,
            step=str(progress) if progress and dim in progress.dims else None,
            reverse=bool(progress and progress.reverse),
            part=self.op.part_of(node) if isinstance(self.op, Scan) else None,
            elements=self._elements(node.indices[dim], first, need, value),
        )  # fmt: skip

    def _elements(
        self, index: Expr, point: tuple[int, ...], need: Mapping[Expr, Array], value: Mapping[Expr, Array]
    ) -> dict[str, Any]:
        """The elements that an index is read from at a point."""

        def at(array: Array) -> Any:
            return array[tuple(0 if n == 1 else p for p, n in zip(point, array.shape, strict=True))].item()

        reads = [e for e in topological((index,)) if isinstance(e, Read) and at(need[e])]
        own = self.op.parts if isinstance(self.op, Scan) else ()  # a packed state is no tensor that the user knows
        named = [e for e in reads if not (own and self._is_state(e))]
        places = [", ".join(str(at(value[i])) for i in e.indices) or "()" for e in named]
        return {f"{e.tensor.name}[{place}]": at(value[e]) for e, place in zip(named, places, strict=True)}

    def _at(self, axis: Axis, position: tuple[int, ...]) -> int:
        return self.ranges[axis][0] + int(position[self.dims[axis]])


def unknown_array(shape: tuple[int, ...]) -> Array:
    """What stands for a tensor of which only the shape matters; it takes no memory."""
    return np.broadcast_to(np.zeros((), np.int8), shape)


def _wide(index: Array) -> Array:
    """An index as int64; a uint64 beyond it stays out of bounds."""
    if index.dtype == np.uint64:
        index = np.minimum(index, np.uint64(2**63 - 1))
    return index.astype(np.int64, copy=False)


def _undefined(node: Apply, args: Sequence[Array]) -> Array | None:
    """Where an integer operation has no value: a zero divisor, a negative exponent."""
    if not node.args[-1].dtype.is_integer:
        return None
    if node.fn in (Fn.FLOORDIV, Fn.MOD):
        zero: Array = args[1] == 0
        return zero
    if node.fn is Fn.POW:
        negative: Array = args[1] < 0
        return negative
    return None


def _undefined_error(node: Apply, op: Operation, point: Mapping[str, int]) -> Exception:
    at = ", ".join(f"{name} = {value}" for name, value in point.items())
    where = f" at {at}" if at else ""
    if node.fn is Fn.POW:
        return ValueError(
            f"{describe(op)}: the integer power `{node}` has a negative exponent{where}; te.cast the base to a float"
        )
    return ZeroDivisorError(
        f"{describe(op)}: integer {node.fn.value} by zero in `{node}`{where}; guard it with te.select or where="
    )


def _needed(order: Sequence[Expr], roots: Mapping[Expr, Use], value: Mapping[Expr, Array]) -> dict[Expr, Array]:
    """For each node, the points at which its value is used."""
    everywhere = np.ones((1,) * next(iter(value.values())).ndim, bool)
    need: dict[Expr, Array] = {}
    for root, use in roots.items():
        need[root] = everywhere if use is None else value[use] if isinstance(use, Expr) else use
    for node in reversed(order):
        for child, condition in _uses(node, value):
            here = _along(value[child], need[node] if condition is None else need[node] & condition)
            need[child] = here if child not in need else need[child] | here
    return need


def _along(value: Array, need: Array) -> Array:
    """Where elements of a value are needed: the same for all points that it is one value for.

    Else what several sums have in common would be asked for at each point of all their loops together.
    """
    one = tuple(d for d, (n, own) in enumerate(zip(need.shape, value.shape, strict=True)) if own == 1 < n)
    return np.asarray(need.any(axis=one, keepdims=True)) if one else need


def _uses(node: Expr, value: Mapping[Expr, Array]) -> Iterator[tuple[Expr, Array | None]]:
    """The operands of a node, each with the points at which the node uses it."""
    if isinstance(node, Apply) and node.fn is Fn.SELECT:
        condition, taken, other = node.args
        yield condition, None
        yield taken, value[condition]
        yield other, ~value[condition]
    elif isinstance(node, Reduce):
        yield node.where, None
        yield from ((v, value[node.where]) for v in node.values)
    else:
        yield from ((child, None) for child in node.children)


def fold_over(reduce: Reduce, grid: PointGrid) -> Fold:
    """The running state of a reduction on the points of a grid."""
    if not reduce.reducer.is_custom:
        return builtin_fold(reduce, grid.sizes)
    return _CustomFold(reduce, grid)


class _CustomFold:
    """A user's reducer: the identity combined with one value after another, left to right in axis order."""

    def __init__(self, reduce: Reduce, grid: PointGrid) -> None:
        self.reduce = reduce
        identities = reduce.reducer.identity
        self.state = tuple(rounded(np.full((1,) * grid.rank, c.value, held_type(c.dtype)), c.dtype) for c in identities)

    def add(self, values: tuple[Array, ...], mask: Array, grid: PointGrid) -> None:
        dims = [grid.dims[a] for a in self.reduce.axes]
        lengths = [end - begin for begin, end in (grid.ranges[a] for a in self.reduce.axes)]
        for position in np.ndindex(*lengths):
            at = dict(zip(dims, position, strict=True))
            self._combine(tuple(_slice(v, at) for v in values), _slice(mask, at), grid)

    def _combine(self, values: tuple[Array, ...], mask: Array, grid: PointGrid) -> None:
        reducer = self.reduce.reducer
        formals = dict(zip((*reducer.left, *reducer.right), (*self.state, *values), strict=True))
        scope = PointGrid(grid.op, grid.tensors, grid.sizes, grid.dims, grid.ranges, formals, grid.progress)
        new = scope.evaluate(dict.fromkeys(reducer.results, mask))
        self.state = tuple(
            np.where(mask, new[result], old) for result, old in zip(reducer.results, self.state, strict=True)
        )

    def result(self, index: int) -> Array:
        return self.state[index]


def _slice(array: Array, at: Mapping[int, int]) -> Array:
    """One position along some dimensions, which stay with length 1."""
    return array[
        tuple(slice(at[d], at[d] + 1) if d in at and array.shape[d] > 1 else slice(None) for d in range(array.ndim))
    ]


def boxes(lengths: Sequence[int], limit: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Row-major pieces of a box, each of at most `limit` points: whole inner dimensions, slices of one outer."""
    budget = limit
    pieces: list[list[tuple[int, int]]] = []
    for length in reversed(lengths):
        step = max(1, min(length, budget))
        pieces.insert(0, [(start, min(start + step, length)) for start in range(0, length, step)])
        budget = budget // step if step == length else 1
    yield from product(*pieces)
