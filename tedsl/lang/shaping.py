"""Operations that only move elements: transpose, flip, roll, triangles and diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import as_tensor, normal_axes, normal_axis, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.reshaping import ravel, reshape
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["as_int", "diagonal", "flip", "moveaxis", "roll", "swapaxes", "transpose", "tril", "triu"]

_ZERO = Const(0, INT32)


@takes_variables
def transpose(x: Any, *axes: Any) -> Tensor:
    """The axes in another order: result axis d is axis axes[d] of `x`; reversed when none is given."""
    source, what = as_tensor(x, "te.transpose"), "te.transpose"
    chosen: Any = axes or None
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        chosen = axes[0]
    order = tuple(reversed(range(source.ndim))) if chosen is None else normal_axes(tuple(chosen), source.ndim, what)
    if len(order) != source.ndim:
        raise ValueError(
            f"{what} at {user_location()}: expected {source.ndim} axes for {source!r}, found {len(order)}: {axes}"
        )
    if order == tuple(range(source.ndim)):
        return source
    place = {d: p for p, d in enumerate(order)}
    return tensor_of(
        tuple(source.extents[d] for d in order),
        lambda *new: Read(source, tuple(new[place[d]] for d in range(source.ndim))),
        f"{source.name}_T",
    )


@takes_variables
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    source = as_tensor(x, "te.swapaxes")
    order = list(range(source.ndim))
    a, b = (normal_axis(v, source.ndim, "te.swapaxes") for v in (axis1, axis2))
    order[a], order[b] = b, a
    return transpose(source, order) if order else source


@takes_variables
def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """Axes `source` moved to the places `destination`, the others kept in order."""
    tensor, what = as_tensor(x, "te.moveaxis"), "te.moveaxis"
    moved, places = (normal_axes(v, tensor.ndim, what) for v in (source, destination))
    if len(moved) != len(places):
        raise ValueError(f"{what} at {user_location()}: {len(moved)} source axes for {len(places)} destinations")
    order = [d for d in range(tensor.ndim) if d not in moved]
    for place, d in sorted(zip(places, moved, strict=True)):
        order.insert(place, d)
    return transpose(tensor, order)


@takes_variables
def flip(x: Any, axis: Any = None) -> Tensor:
    """Reversed along the axes named (all when None)."""
    source = as_tensor(x, "te.flip")
    turned = set(normal_axes(axis, source.ndim, "te.flip"))
    return tensor_of(
        source.extents,
        lambda *axes: Read(source, tuple(source.extents[d] - 1 - a if d in turned else a for d, a in enumerate(axes))),
        f"{source.name}_flip",
    )


@takes_variables
def roll(x: Any, shift: Any, axis: Any = None) -> Tensor:
    """Shifted by `shift` along the axes named, wrapping around (through the flat order when axis is None)."""
    source, what = as_tensor(x, "te.roll"), "te.roll"
    if axis is None:
        return reshape(roll(ravel(source), shift, 0), source.extents)
    dims = normal_axes(axis, source.ndim, what)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(dims)
    if len(shifts) != len(dims):
        raise ValueError(f"{what} at {user_location()}: {len(shifts)} shifts for {len(dims)} axes")
    by = {d: as_int(s, f"{what}, shift") for d, s in zip(dims, shifts, strict=True)}
    return tensor_of(
        source.extents,
        lambda *axes: Read(source, tuple(_rolled(a, by.get(d, 0), source.extents[d]) for d, a in enumerate(axes))),
        f"{source.name}_roll",
    )


def _rolled(axis: Axis, shift: int, extent: Expr) -> Expr:
    if isinstance(extent, Const):
        shift = shift % int(extent.value) if extent.value else 0
        return (axis + (int(extent.value) - shift)) % extent if shift else axis
    return (axis - shift) % fn.maximum(extent, 1) if shift else axis


def as_int(value: Any, what: str) -> int:
    """A Python or NumPy integer argument."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what} at {user_location()}: expected an integer, found {value!r:.40}")
    return int(value)


def _band(x: Any, k: Any, what: str, keep: Any) -> Tensor:
    source, offset = as_tensor(x, what), as_int(k, what)
    if source.ndim < 2:
        raise ValueError(f"{what} at {user_location()}: expected 2 dimensions or more, found {source!r}")
    return tensor_of(
        source.extents,
        lambda *axes: fn.select(keep(axes[-1] - axes[-2], offset), Read(source, axes), fn.convert(0, source.dtype)),
        f"{source.name}_{what[3:]}",
    )


@takes_variables
def tril(x: Any, k: int = 0) -> Tensor:
    """The last two axes with everything above diagonal `k` set to 0."""
    return _band(x, k, "te.tril", lambda distance, offset: distance <= offset)


@takes_variables
def triu(x: Any, k: int = 0) -> Tensor:
    """The last two axes with everything below diagonal `k` set to 0."""
    return _band(x, k, "te.triu", lambda distance, offset: distance >= offset)


@takes_variables
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements x[..., t, ..., t + offset, ...] of two axes, as a last axis."""
    source, what = as_tensor(x, "te.diagonal"), "te.diagonal"
    if source.ndim < 2:
        raise ValueError(f"{what} at {user_location()}: expected 2 dimensions or more, found {source!r}")
    shift = as_int(offset, what)
    row, column = normal_axes((axis1, axis2), source.ndim, what)
    down, right = max(0, -shift), max(0, shift)
    length = _shorter(source.extents[row] - down, source.extents[column] - right)
    rest = [d for d in range(source.ndim) if d not in (row, column)]

    def element(*axes: Axis) -> Expr:
        at: dict[int, Expr] = dict(zip(rest, axes[:-1], strict=True))
        at[row], at[column] = axes[-1] + down, axes[-1] + right
        return Read(source, tuple(at[d] for d in range(source.ndim)))

    return tensor_of((*(source.extents[d] for d in rest), length), element, f"{source.name}_diagonal")


def _shorter(a: Expr, b: Expr) -> Expr:
    """The smaller of two lengths, 0 where it would be negative."""
    if same_extent(a, b):
        return simplify_extent(a)
    least = simplify_extent(fn.minimum(a, b))
    return _ZERO if isinstance(least, Const) and least.value < 0 else least
