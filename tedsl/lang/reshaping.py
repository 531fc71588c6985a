"""Reshape, and what comes down to it: ravel, squeeze, expand_dims.

Index arithmetic is kept small: extents that both shapes share are matched first, so that only what is really merged or
split gets a `//` and a `%`, and the inverse is easily recognized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_extent
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.elements import as_tensor, is_one, is_zero, normal_axes, product, removed_axes, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.tensor import Shape, Tensor
from tedsl.lang.titles import takes_variables

__all__ = [
    "expand_dims", "flattened", "ravel", "reshape", "shape_groups", "split_position", "squeeze", "target_shape",
]  # fmt: skip

_ONE = Const(1, INT32)
_ZERO = Const(0, INT32)


@takes_variables
def reshape(x: Any, *shape: Any) -> Tensor:
    """The elements in row-major order under another shape; one extent may be -1."""
    source = as_tensor(x, "te.reshape")
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    extents = target_shape(source.extents, tuple(wanted), f"te.reshape of {source!r}")
    if len(extents) == source.ndim and all(a is b for a, b in zip(extents, source.extents, strict=True)):
        return source
    if any(map(is_zero, extents)):
        return tensor_of(extents, lambda *axes: fn.convert(0, source.dtype), f"{source.name}_reshape")
    groups = shape_groups(source.extents, extents)

    def element(*axes: Axis) -> Expr:
        indices: list[Expr] = [_ZERO] * source.ndim
        for own, new in groups:
            flat = flattened([axes[d] for d in new], [extents[d] for d in new])
            for d, index in zip(own, split_position(flat, [source.extents[d] for d in own]), strict=True):
                indices[d] = index
        return Read(source, tuple(indices))

    return tensor_of(extents, element, f"{source.name}_reshape")


def target_shape(own: Shape, wanted: tuple[Any, ...], what: str) -> Shape:
    """The new shape for an old one, -1 resolved, checked to hold as many elements."""
    unknown = [d for d, v in enumerate(wanted) if isinstance(v, (int, np.integer)) and v == -1]
    if len(unknown) > 1:
        raise ValueError(
            f"{what} at {user_location()}: only one extent can be -1, found ({', '.join(map(str, wanted))})"
        )
    known = {d: as_extent(v, what) for d, v in enumerate(wanted) if d not in unknown}
    if unknown:
        known[unknown[0]] = _inferred(own, list(known.values()), wanted, what)
    extents = tuple(known[d] for d in range(len(wanted)))
    if not same_extent(product(own), product(extents)):
        raise ValueError(
            f"{what} at {user_location()}: {shape_text(extents)} holds {product(extents)} elements, "
            f"{shape_text(own)} holds {product(own)}"
        )
    return extents


def _inferred(own: Shape, known: list[Expr], wanted: tuple[Any, ...], what: str) -> Expr:
    """The extent for -1: what is left of the extents once the known ones are taken out."""
    left = list(own)
    rest: list[Expr] = []
    for extent in known:
        match = next((p for p, other in enumerate(left) if same_extent(other, extent)), None)
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
        f"{product(own)} elements are not provably divisible by {product(known)}"
    )


def shape_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
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


def flattened(axes: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The row-major position of `axes` within `extents`, in 64 bits where 32 do not hold it."""
    total = product(extents)
    wide = isinstance(total, Const) and total.value >= 2**31
    flat: Expr = Const(0, INT64 if wide else INT32)
    for axis, extent in zip(axes, extents, strict=True):
        flat = flat * extent + axis
    return flat


def split_position(flat: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The indices whose row-major position within `extents` is `flat`."""
    indices: list[Expr] = []
    for d, extent in enumerate(extents):
        inner = product(extents[d + 1 :])
        index = flat if inner is _ONE else flat // inner
        indices.append(index if d == 0 else index % extent)
    return indices


@takes_variables
def ravel(x: Any) -> Tensor:
    """All elements in row-major order along one axis."""
    return reshape(x, -1)


@takes_variables
def squeeze(x: Any, axis: Any = None) -> Tensor:
    """Without the axes of extent 1 (all of them, or those named)."""
    source, what = as_tensor(x, "te.squeeze"), "te.squeeze"
    if axis is None:
        gone = {d for d, e in enumerate(source.extents) if is_one(e)}
    else:
        gone = set(removed_axes(axis, source.ndim, what))
    for d in sorted(gone):
        if not is_one(source.extents[d]):
            raise ValueError(
                f"{what} at {user_location()}: axis {d} of {source!r} has extent {source.extents[d]}, expected 1"
            )
    return reshape(source, tuple(e for d, e in enumerate(source.extents) if d not in gone))


@takes_variables
def expand_dims(x: Any, axis: Any) -> Tensor:
    """With new axes of extent 1 at the places `axis` of the result."""
    source = as_tensor(x, "te.expand_dims")
    places = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    count = len(places)
    new = set(normal_axes(places, source.ndim + count, "te.expand_dims"))
    own = iter(source.extents)
    return reshape(source, tuple(_ONE if d in new else next(own) for d in range(source.ndim + count)))
