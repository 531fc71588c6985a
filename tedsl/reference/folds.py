"""The builtin reductions, folded chunk by chunk: a state that keeps the array dimensions of the grid.

Sums and products of float32 run in float64, those of 16-bit floats in float32, and are rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tedsl.analysis.pointwise import Array, held_type, rounded
from tedsl.analysis.sizes import axis_length, evaluate_extent
from tedsl.lang.dtypes import DType
from tedsl.lang.expr import Axis, Reduce, Var

__all__ = ["Fold", "builtin_fold", "wide_type"]


class GridLike(Protocol):
    """What a fold needs to know of a grid: where the reduced axes lie, and their values."""

    @property
    def dims(self) -> Mapping[Axis, int]: ...
    @property
    def ranges(self) -> Mapping[Axis, tuple[int, int]]: ...
    @property
    def rank(self) -> int: ...


class Fold(Protocol):
    """A reduction under way."""

    def add(self, values: tuple[Array, ...], mask: Array, grid: Any) -> None: ...
    def result(self, index: int) -> Array: ...


def wide_type(dtype: DType) -> np.dtype[Any]:
    """The type in which sums and products of `dtype` accumulate."""
    if not dtype.is_float:
        return held_type(dtype)
    return np.dtype("float32" if dtype.bits == 16 else "float64")


def builtin_fold(reduce: Reduce, sizes: Mapping[Var, int]) -> Fold:
    return _Argument(reduce, sizes) if reduce.reducer.kind in ("argmax", "argmin") else _Ufunc(reduce)


_UFUNC: dict[str, Callable[..., Any]] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def _spread(array: Array, reduce: Reduce, grid: GridLike) -> Array:
    """The array at its full length along the reduced dimensions."""
    shape = list(array.shape)
    for axis in reduce.axes:
        begin, end = grid.ranges[axis]
        shape[grid.dims[axis]] = end - begin
    return np.broadcast_to(array, shape)


class _Ufunc:
    """sum, prod, max, min, any, all."""

    def __init__(self, reduce: Reduce) -> None:
        self.reduce = reduce
        self.ufunc: Any = _UFUNC[reduce.reducer.kind]
        accumulates = reduce.reducer.kind in ("sum", "prod")
        self.type = wide_type(reduce.dtype) if accumulates else held_type(reduce.dtype)
        self.identity = np.asarray(reduce.reducer.identity_of(reduce.dtype).value, self.type)
        self.state: Array = self.identity

    def add(self, values: tuple[Array, ...], mask: Array, grid: GridLike) -> None:
        used = values[0].astype(self.type, copy=False)
        used = np.ascontiguousarray(used if mask.all() else np.where(mask, used, self.identity))
        dims = tuple(grid.dims[a] for a in self.reduce.axes)
        part = self.ufunc.reduce(_spread(used, self.reduce, grid), axis=dims, keepdims=True, initial=self.identity)
        self.state = np.asarray(self.ufunc(self.state, part), self.type)

    def result(self, index: int) -> Array:
        return rounded(self.state, self.reduce.dtype)


_NOWHERE = np.int64(2**62)


class _Argument:
    """argmax, argmin: the first winner (or first NaN), counted row-major over the axes."""

    def __init__(self, reduce: Reduce, sizes: Mapping[Var, int]) -> None:
        self.reduce = reduce
        self.is_max = reduce.reducer.kind == "argmax"
        lengths = [axis_length(a, sizes) for a in reduce.axes]
        self.strides = [math.prod(lengths[d + 1 :]) for d in range(len(lengths))]
        self.begins = [evaluate_extent(a.begin, sizes) for a in reduce.axes]
        self.best: Array | None = None
        self.position: Array = np.asarray(_NOWHERE)

    def add(self, values: tuple[Array, ...], mask: Array, grid: GridLike) -> None:
        value, used = np.broadcast_arrays(_spread(values[0], self.reduce, grid), _spread(mask, self.reduce, grid))
        dims = tuple(grid.dims[a] for a in self.reduce.axes)
        if math.prod(value.shape[d] for d in dims) == 0:
            return
        lowest = _extreme(value.dtype, -1 if self.is_max else 1)
        pick: Any = np.max if self.is_max else np.min
        best = pick(np.where(used, value, lowest), axis=dims, keepdims=True)
        wins = used & ((value == best) | (np.isnan(best) & np.isnan(value)))
        position = np.where(wins, self._positions(grid), _NOWHERE).min(axis=dims, keepdims=True)
        self._merge(best, position)

    def _positions(self, grid: GridLike) -> Array:
        total = np.zeros((1,) * grid.rank, np.int64)
        for axis, stride, begin in zip(self.reduce.axes, self.strides, self.begins, strict=True):
            shape = [1] * grid.rank
            shape[grid.dims[axis]] = -1
            total = total + (np.arange(*grid.ranges[axis]) - begin).reshape(shape) * stride
        return total

    def _merge(self, best: Array, position: Array) -> None:
        if self.best is None:
            self.best, self.position = best, position
            return
        better = best > self.best if self.is_max else best < self.best
        better |= np.isnan(best) & ~np.isnan(self.best)
        take = (position != _NOWHERE) & (better | (self.position == _NOWHERE))
        self.best = np.where(take, best, self.best)
        self.position = np.where(take, position, self.position)

    def result(self, index: int) -> Array:
        found = np.where(self.position == _NOWHERE, 0, self.position)
        return found.astype(np.int32)


def _extreme(dtype: np.dtype[Any], sign: int) -> Any:
    if dtype.kind == "f":
        return dtype.type(sign * np.inf)
    if dtype.kind == "b":
        return np.bool_(sign > 0)
    info = np.iinfo(dtype)
    return dtype.type(info.max if sign > 0 else info.min)
