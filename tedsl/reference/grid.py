"""Scalar expressions evaluated at every point of a box at once, with NumPy arrays that have one dimension per axis.

Values are total: outside its tensor an index is clamped, a zero divisor gives 0. Only afterwards, and only if something
went wrong somewhere, the points at which each value is *needed* are computed (`select` and `where=` guard their
branches), and what went wrong at such a point is raised: where a lazy evaluation, point by point, would raise it.
What no point of the box needs is not evaluated: a step of a scan computes one of its stages at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Any

import numpy as np

from tedsl.analysis.messages import Overrun, describe
from tedsl.analysis.pointwise import Array, apply_numpy, held_type, rounded
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
# A node, the dimension of a read or -1, and the points at which it has no value.
Wrong = tuple[Expr, int, Array]
_Place = int | slice | Array


@dataclass(frozen=True)
class ScanProgress:
    """How far a scan is: its states may be read at steps before `step` (after it if `reverse`).

    A step is a place along the dimensions `dims`, the first of which is the slowest.
    """

    states: frozenset[Operation]
    dims: tuple[int, ...]
    step: tuple[int, ...]
    reverse: bool
    bounds: Mapping[Read, tuple[int, ...]]  # the extents of what reads of packed states lie in

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
        """The value of every node that is needed for the roots, each of which is under a condition."""
        value, wrong = self.walked(roots)
        self.check(roots, order, value, wrong)
        return value

    def tried(self, roots: Mapping[Expr, Use]) -> tuple[dict[Expr, Array], Overrun | Exception | None]:
        """The values, and the first fault where it matters."""
        value, wrong = self.walked(roots)
        return value, self._first_fault(roots, topological(roots), value, wrong)

    def check(
        self, roots: Mapping[Expr, Use], order: Sequence[Expr] | None, value: Mapping[Expr, Array], wrong: list[Wrong]
    ) -> None:
        """Raise the first fault that matters."""
        fault = self._first_fault(roots, order or topological(roots), value, wrong) if wrong else None
        if fault is not None:
            raise fault.error() if isinstance(fault, Overrun) else fault

    def walked(
        self, roots: Iterable[Expr], known: Mapping[Expr, Array] | None = None
    ) -> tuple[dict[Expr, Array], list[Wrong]]:
        """What is known, the roots and what they need, in the order of evaluation; and what is wrong with it."""
        value: dict[Expr, Array] = dict(known or {})
        wrong: list[Wrong] = []
        stack = list(roots)[::-1]
        while stack:
            node = stack[-1]
            missing = () if node in value else [child for child in _operands(node, value) if child not in value]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            if node not in value:
                value[node] = self._value(node, value, wrong)
        return value, wrong

    def _first_fault(
        self, roots: Mapping[Expr, Use], order: Sequence[Expr], value: Mapping[Expr, Array], wrong: Iterable[Wrong]
    ) -> Overrun | Exception | None:
        """Of what is wrong, the first in order at a point at which it matters."""
        place = {node: at for at, node in enumerate(order)}
        need = _needed([node for node in order if node in value], roots, value)
        for node, dim, bad in sorted(wrong, key=lambda fault: place[fault[0]]):
            if (bad & need[node]).any():
                return self._fault(node, dim, bad, need, value)
        return None

    def _value(self, node: Expr, value: dict[Expr, Array], wrong: list[Wrong]) -> Array:
        if isinstance(node, Apply):
            return self._applied(node, value, wrong)
        if isinstance(node, Read):
            return self._gather(node, value, wrong)
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
        assert isinstance(node, Reduce)
        fold, where = fold_over(node, self), value[node.where]
        if where.any():
            fold.add(tuple(value[v] for v in node.values), where, self)
            return fold.result(node.index)
        reduced = {self.dims[axis] for axis in node.axes}
        return np.broadcast_to(fold.result(node.index), [1 if d in reduced else n for d, n in enumerate(where.shape)])

    def _applied(self, node: Apply, value: Mapping[Expr, Array], wrong: list[Wrong]) -> Array:
        branch = _branch(node, value) if node.fn is Fn.SELECT else None
        if branch is not None:  # of all points that the condition is asked at
            found, shape = value[branch], value[node.args[0]].shape
            return found if math.prod(shape) == 1 else np.broadcast_to(found, np.broadcast_shapes(found.shape, shape))
        args = [value[a] for a in node.args]
        bad = _undefined(node, args)
        if bad is not None and bad.any():
            wrong.append((node, -1, bad))
        return apply_numpy(node.fn, args, node.dtype)

    def _scalar(self, number: bool | int | float, dtype: DType) -> Array:
        return rounded(np.full((1,) * self.rank, number, held_type(dtype)), dtype)

    def _gather(self, node: Read, value: Mapping[Expr, Array], wrong: list[Wrong]) -> Array:
        array = self.tensors[node.tensor.op, node.tensor.index]
        progress = self.progress if self._is_state(node) else None
        places: list[_Place] = []
        for dim, (expr, extent) in enumerate(zip(node.indices, self._bounds(node, array), strict=True)):
            place, bad = self._place(expr, value[expr], extent)
            if progress is not None and dim == max(progress.dims):
                late = progress.not_yet([_wide(value[node.indices[d]]) for d in progress.dims])
                bad = late if bad is None else bad | late
            if bad is not None and bad.any():
                wrong.append((node, dim, bad))
            places.append(place)
        if array.size == 0:
            shapes = [value[expr].shape for expr in node.indices]
            return np.zeros(np.broadcast_shapes((1,) * self.rank, *shapes), array.dtype)
        return self._picked(array, list(zip(node.indices, places, strict=True)), value)

    def _place(self, expr: Expr, index: Array, extent: int) -> tuple[_Place, Array | None]:
        """Where a dimension is read, clamped to what there is; and where that lies outside."""
        if index.size == 1:
            number = int(index.item())
            if 0 <= number < extent:
                return number, None
        if isinstance(expr, Axis):
            begin, end = self.ranges[expr]
            if 0 <= begin < end <= extent:
                return slice(begin, end), None
        index = _wide(index)
        bad = (index < 0) | (index >= extent)
        return (np.clip(index, 0, max(extent - 1, 0)) if bad.any() else index), bad

    def _picked(self, array: Array, places: Sequence[tuple[Expr, _Place]], value: Mapping[Expr, Array]) -> Array:
        """The elements at these places: a view where they are numbers and axes, turned as the dimensions lie here."""
        part = np.asarray(array[tuple(p if isinstance(p, int) else slice(None) for _, p in places)])
        rest = [(expr, p) for expr, p in places if not isinstance(p, int)]
        dims = {self.dims[expr]: k for k, (expr, p) in enumerate(rest) if isinstance(expr, Axis)}
        if len(dims) < len(rest) or not all(isinstance(p, slice) for _, p in rest):
            return np.asarray(part[tuple(_wide(value[expr]) if isinstance(p, slice) else p for expr, p in rest)])
        box: Array = np.asarray(part[tuple(p for _, p in rest)])
        shape = [1] * self.rank
        for d, k in dims.items():
            shape[d] = box.shape[k]
        return np.reshape(box.transpose([dims[d] for d in sorted(dims)]), shape)

    def _bounds(self, node: Read, array: Array) -> tuple[int, ...]:
        """The extents of what is read."""
        return array.shape if self.progress is None else self.progress.bounds.get(node, array.shape)

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

        reads = [e for e in topological((index,)) if isinstance(e, Read) and e in need and at(need[e])]
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
        if node not in need:  # of another step
            continue
        for child, condition in _uses(node, value):
            if child in value:
                here = _along(value[child], need[node] if condition is None else need[node] & condition)
                need[child] = here if child not in need else need[child] | here
    return need


def _along(value: Array, need: Array) -> Array:
    """Where elements of a value are needed: the same for all points that it is one value for.

    Else what several sums have in common would be asked for at each point of all their loops together.
    """
    one = tuple(d for d, (n, own) in enumerate(zip(need.shape, value.shape, strict=True)) if own == 1 < n)
    return np.asarray(need.any(axis=one, keepdims=True)) if one else need


def _branch(node: Apply, value: Mapping[Expr, Array]) -> Expr | None:
    """The branch that a choice takes at all points, if it is one."""
    condition, taken, other = node.args
    found = value[condition]
    if found.size == 1:
        return taken if found else other
    return taken if found.all() else None if found.any() else other


def _operands(node: Expr, value: Mapping[Expr, Array]) -> Sequence[Expr]:
    """What is to be known before a node: nothing that no point needs."""
    if isinstance(node, Reduce):
        return node.children if node.where in value and value[node.where].any() else (node.where,)
    if not (isinstance(node, Apply) and node.fn is Fn.SELECT):
        return node.children
    condition, taken, other = node.args
    if condition not in value:
        return (condition,)
    branch = _branch(node, value)
    return (taken, other) if branch is None else (branch,)


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
