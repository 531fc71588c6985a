"""Operations that only move elements: reshape, transpose, flip, roll, diagonals.

A reshape keeps its index arithmetic small: extents that both shapes share are matched first, so that only what is
really merged or split gets a `//` and a `%`, and the inverse is easily recognised.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_extent
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.elements import (
    as_tensor,
    is_one,
    is_zero,
    normal_axes,
    normal_axis,
    product,
    shape_text,
    tensor_of,
)
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.tensor import Shape, Tensor

__all__ = [
    "diagonal", "expand_dims", "flip", "moveaxis", "ravel", "reshape", "roll", "squeeze", "swapaxes", "transpose",
    "tril", "triu",
]  # fmt: skip

_ONE = Const(1, INT32)
_ZERO = Const(0, INT32)


def reshape(x: Any, *shape: Any) -> Tensor:
    """The elements in row-major order under another shape; one extent may be -1."""
    source = as_tensor(x, "te.reshape")
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    extents = _target(source, tuple(wanted))
    if len(extents) == source.ndim and all(a is b for a, b in zip(extents, source.extents, strict=True)):
        return source
    if any(map(is_zero, extents)):
        return tensor_of(extents, lambda *axes: fn.convert(0, source.dtype), f"{source.name}_reshape")
    groups = _groups(source.extents, extents)

    def element(*axes: Axis) -> Expr:
        indices: list[Expr] = [_ZERO] * source.ndim
        for own, new in groups:
            flat = _flattened([axes[d] for d in new], [extents[d] for d in new])
            for d, index in zip(own, _split(flat, [source.extents[d] for d in own]), strict=True):
                indices[d] = index
        return Read(source, tuple(indices))

    return tensor_of(extents, element, f"{source.name}_reshape")


def _target(x: Tensor, wanted: tuple[Any, ...]) -> Shape:
    """The new shape, -1 resolved, checked to hold as many elements."""
    what = f"te.reshape of {x!r}"
    unknown = [d for d, v in enumerate(wanted) if isinstance(v, (int, np.integer)) and v == -1]
    if len(unknown) > 1:
        raise ValueError(
            f"{what} at {user_location()}: only one extent can be -1, found ({', '.join(map(str, wanted))})"
        )
    known = {d: as_extent(v, what) for d, v in enumerate(wanted) if d not in unknown}
    if unknown:
        known[unknown[0]] = _inferred(x, list(known.values()), wanted, what)
    extents = tuple(known[d] for d in range(len(wanted)))
    if not same_extent(product(x.extents), product(extents)):
        raise ValueError(
            f"{what} at {user_location()}: {shape_text(extents)} holds {product(extents)} elements, "
            f"{shape_text(x.extents)} holds {product(x.extents)}"
        )
    return extents


def _inferred(x: Tensor, known: list[Expr], wanted: tuple[Any, ...], what: str) -> Expr:
    """The extent for -1: what is left of x's extents once the known ones are taken out."""
    left = list(x.extents)
    rest: list[Expr] = []
    for extent in known:
        match = next((p for p, own in enumerate(left) if same_extent(own, extent)), None)
        if match is None:
            rest.append(extent)
        else:
            del left[match]
    total, divisor = product(left), product(rest)
    if isinstance(divisor, Const) and divisor.value > 0:
        remainder = simplify_extent(total % divisor)
        if is_zero(remainder):
            return as_extent(simplify_extent(total // divisor), what)
    raise ValueError(
        f"{what} at {user_location()}: the extent for -1 in ({', '.join(map(str, wanted))}) cannot be found: "
        f"{product(x.extents)} elements are not provably divisible by {product(known)}"
    )


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Dimensions of both shapes, extents of 1 left out, cut where the products so far are equal."""
    own = [d for d, e in enumerate(old) if not is_one(e)]
    target = [d for d, e in enumerate(new) if not is_one(e)]
    groups: list[tuple[list[int], list[int]]] = []
    start = (0, 0)
    while start != (len(own), len(target)):
        end = _next_cut(old, new, own, target, start)
        groups.append((own[start[0] : end[0]], target[start[1] : end[1]]))
        start = end
    return groups


def _next_cut(old: Shape, new: Shape, own: list[int], target: list[int], start: tuple[int, int]) -> tuple[int, int]:
    """The nearest point after `start` at which both shapes have used up the same number of elements."""
    p0, q0 = start
    for length in range(2, len(own) + len(target) + 1):
        for p in range(p0 + 1, min(len(own), p0 + length - 1) + 1):
            q = q0 + length - (p - p0)
            if q <= len(target) and same_extent(
                product(old[d] for d in own[p0:p]), product(new[d] for d in target[q0:q])
            ):
                return p, q
    return len(own), len(target)


def _flattened(axes: list[Axis], extents: list[Expr]) -> Expr:
    """The row-major position of `axes` within `extents`, in 64 bits where 32 do not hold it."""
    total = product(extents)
    wide = isinstance(total, Const) and total.value >= 2**31
    flat: Expr = Const(0, INT64 if wide else INT32)
    for axis, extent in zip(axes, extents, strict=True):
        flat = flat * extent + axis
    return flat


def _split(flat: Expr, extents: list[Expr]) -> list[Expr]:
    """The indices whose row-major position within `extents` is `flat`."""
    indices: list[Expr] = []
    for d, extent in enumerate(extents):
        inner = product(extents[d + 1 :])
        index = flat if inner is _ONE else flat // inner
        indices.append(index if d == 0 else index % extent)
    return indices


def ravel(x: Any) -> Tensor:
    """All elements in row-major order along one axis."""
    return reshape(x, -1)


def transpose(x: Any, *axes: Any) -> Tensor:
    """The axes in another order: result axis d is axis axes[d] of `x`; reversed when none is given."""
    source, what = as_tensor(x, "te.transpose"), "te.transpose"
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        axes = tuple(axes[0] or ()) if axes[0] is None or source.ndim else ()
    order = normal_axes(axes, source.ndim, what) if axes else tuple(reversed(range(source.ndim)))
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


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    source = as_tensor(x, "te.swapaxes")
    order = list(range(source.ndim))
    a, b = (normal_axis(v, source.ndim, "te.swapaxes") for v in (axis1, axis2))
    order[a], order[b] = b, a
    return transpose(source, order) if order else source


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


def squeeze(x: Any, axis: Any = None) -> Tensor:
    """Without the axes of extent 1 (all of them, or those named)."""
    source, what = as_tensor(x, "te.squeeze"), "te.squeeze"
    if axis is None:
        gone = {d for d, e in enumerate(source.extents) if is_one(e)}
    else:
        gone = set(normal_axes(axis, source.ndim, what))
    for d in sorted(gone):
        if not is_one(source.extents[d]):
            raise ValueError(
                f"{what} at {user_location()}: axis {d} of {source!r} has extent {source.extents[d]}, expected 1"
            )
    return reshape(source, tuple(e for d, e in enumerate(source.extents) if d not in gone))


def expand_dims(x: Any, axis: Any) -> Tensor:
    """With new axes of extent 1 at the places `axis` of the result."""
    source = as_tensor(x, "te.expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    new = set(
        normal_axes(
            axis if count != 1 or isinstance(axis, (tuple, list)) else (axis,), source.ndim + count, "te.expand_dims"
        )
    )
    own = iter(source.extents)
    return reshape(source, tuple(_ONE if d in new else next(own) for d in range(source.ndim + count)))


def flip(x: Any, axis: Any = None) -> Tensor:
    """Reversed along the axes named (all when None)."""
    source = as_tensor(x, "te.flip")
    turned = set(normal_axes(axis, source.ndim, "te.flip"))
    return tensor_of(
        source.extents,
        lambda *axes: Read(source, tuple(source.extents[d] - 1 - a if d in turned else a for d, a in enumerate(axes))),
        f"{source.name}_flip",
    )


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


def tril(x: Any, k: int = 0) -> Tensor:
    """The last two axes with everything above diagonal `k` set to 0."""
    return _band(x, k, "te.tril", lambda distance, offset: distance <= offset)


def triu(x: Any, k: int = 0) -> Tensor:
    """The last two axes with everything below diagonal `k` set to 0."""
    return _band(x, k, "te.triu", lambda distance, offset: distance >= offset)


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
