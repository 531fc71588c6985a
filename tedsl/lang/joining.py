"""Tensors put together and taken apart: concatenate, stack, split, pad."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.borders import BORDERS, border_of
from tedsl.lang.dtypes import INT32, INT64, integer_bounds, promote
from tedsl.lang.elements import (
    as_tensor,
    as_tensors,
    is_zero,
    normal_axis,
    same_shape,
    scalar_operand,
    shape_text,
    tensor_of,
)
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read
from tedsl.lang.extents import simplify_extent, two_of_a_name
from tedsl.lang.indexing import slice_axis
from tedsl.lang.shaping import as_int
from tedsl.lang.tensor import Shape, Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["concatenate", "diff", "pad", "split", "stack"]


def _parts(tensors: Any, what: str) -> list[Tensor]:
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        raise TypeError(f"{what} at {user_location()}: expected a sequence of tensors, found {type(tensors).__name__}")
    if not tensors:
        raise ValueError(f"{what} at {user_location()}: expected at least one tensor, found none")
    return as_tensors(tensors, what)


def _agree(parts: list[Tensor], shapes: list[Shape], what: str, but: str) -> None:
    for part, shape in zip(parts[1:], shapes[1:], strict=True):
        if not same_shape(shape, shapes[0]):
            raise ValueError(
                f"{what} at {user_location()}: expected equal shapes{but}, found {parts[0].name} "
                f"{shape_text(parts[0].extents)} and {part.name} {shape_text(part.extents)}"
                f"{two_of_a_name(*parts[0].extents, *part.extents)}"
            )


@takes_variables
def concatenate(tensors: Any, axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`."""
    what = "te.concatenate"
    parts = _parts(tensors, what)
    if not all(p.ndim for p in parts):
        raise ValueError(f"{what} at {user_location()}: 0-rank tensors have no axis to join along; use te.stack")
    dim = normal_axis(axis, parts[0].ndim, what)
    _agree(
        parts,
        [p.extents[:dim] + p.extents[dim + 1 :] if p.ndim > dim else p.extents for p in parts],
        what,
        f" but for axis {dim}",
    )
    dtype = promote(p.dtype for p in parts)
    begins: list[Expr] = [Const(0, INT32)]
    for part in parts:
        begins.append(simplify_extent(begins[-1] + part.extents[dim]))
    shape = (*parts[0].extents[:dim], begins[-1], *parts[0].extents[dim + 1 :])

    def element(*axes: Axis) -> Expr:
        values = [
            fn.convert(Read(p, (*axes[:dim], axes[dim] - begin, *axes[dim + 1 :])), dtype)
            for p, begin in zip(parts, begins, strict=False)
        ]
        body = values[-1]
        for value, end in zip(values[-2::-1], begins[-2:0:-1], strict=True):
            body = fn.select(axes[dim] < end, value, body)
        return body

    return tensor_of(shape, element, "concatenate")


@takes_variables
def stack(tensors: Any, axis: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis."""
    what = "te.stack"
    parts = _parts(tensors, what)
    _agree(parts, [p.extents for p in parts], what, "")
    dim = normal_axis(axis, parts[0].ndim + 1, what)
    dtype = promote(p.dtype for p in parts)
    own = parts[0].extents
    shape = (*own[:dim], Const(len(parts), INT32), *own[dim:])

    def element(*axes: Axis) -> Expr:
        rest = axes[:dim] + axes[dim + 1 :]
        body = fn.convert(Read(parts[-1], rest), dtype)
        for position in range(len(parts) - 2, -1, -1):
            body = fn.select(axes[dim] == position, fn.convert(Read(parts[position], rest), dtype), body)
        return body

    return tensor_of(shape, element, "stack")


@takes_variables
def split(x: Any, sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `axis`: a number of equal ones, or cut at the positions listed."""
    source, what = as_tensor(x, "te.split"), "te.split"
    dim = normal_axis(axis, source.ndim, what)
    if isinstance(sections, (tuple, list)):
        cuts = [None, *sections, None]
        return tuple(slice_axis(source, dim, a, b) for a, b in pairwise(cuts))
    count = as_int(sections, what)
    if count < 1:
        raise ValueError(f"{what} at {user_location()}: expected 1 section or more, found {count}")
    extent = source.extents[dim]
    if not is_zero(simplify_extent(extent % count)):
        raise ValueError(
            f"{what} at {user_location()}: axis {dim} of {source!r} has extent {extent}, which does not divide into "
            f"{count} equal sections; give the positions of the cuts"
        )
    width = simplify_extent(extent // count)
    return tuple(slice_axis(source, dim, width * p, width * (p + 1)) for p in range(count))


@takes_variables
def pad(x: Any, pad_width: Any, mode: str = "constant", value: Any = 0, *, constant_values: Any = None) -> Tensor:
    """Padded by "constant" (`value`), "zero", "clamp" (the edge), "reflect" or "symmetric" (mirror images) or "wrap".

    "reflect" has the edge once, "symmetric" twice. np.pad calls the value constant_values.
    """
    value = value if constant_values is None else constant_values
    source, what = as_tensor(x, "te.pad"), "te.pad"
    border = border_of(mode, what, allowed=("constant", *BORDERS, "symmetric"))
    widths = _widths(pad_width, source.ndim, what)
    for d, (before, after) in enumerate(widths):
        if border not in ("zero", "constant") and is_zero(source.extents[d]) and before + after:
            raise ValueError(
                f"{what} at {user_location()}: axis {d} of {source!r} is empty and cannot be padded by {mode!r}"
            )
    shape = tuple(simplify_extent(e + (b + a)) for e, (b, a) in zip(source.extents, widths, strict=True))
    scalar_operand(value, what)

    def element(*axes: Axis) -> Expr:
        indices = [a - b if b else a for a, (b, _) in zip(axes, widths, strict=True)]
        if border in ("zero", "constant"):
            fill = 0 if border == "zero" else value
            return _inside(source, indices, widths, fn.convert(fill, source.dtype))
        if border == "symmetric":
            places = zip(indices, source.extents, widths, strict=True)
            return Read(source, tuple(_mirrored(i, n, max(w)) if any(w) else i for i, n, w in places))
        return source.at(*indices, mode=border)

    return tensor_of(shape, element, f"{source.name}_pad")


def _mirrored(index: Expr, extent: Expr, width: int) -> Expr:
    """An index no further than `width` outside, mirrored at both edges, whose elements are there twice."""
    if isinstance(extent, Const) and 2 * extent.value + width > integer_bounds(INT32)[1]:
        index, extent = fn.convert(index, INT64), fn.convert(extent, INT64)
    if isinstance(extent, Const) and width <= extent.value:
        return fn.clip(fn.maximum(fn.minimum(index, 2 * extent - 1 - index), -1 - index), 0, extent - 1)
    place = index % fn.maximum(2 * extent, 1)
    return fn.minimum(place, 2 * extent - 1 - place)


@takes_variables
def diff(x: Any, n: int = 1, axis: int = -1) -> Tensor:
    """The differences of neighbors along `axis`, taken `n` times; of bools, whether they differ."""
    source, what = as_tensor(x, "te.diff"), "te.diff"
    dim = normal_axis(axis, source.ndim, what)
    if as_int(n, what) < 0:
        raise ValueError(f"{what} at {user_location()}: expected n of 0 or more, found {n}")
    for _ in range(n):
        after, before = slice_axis(source, dim, 1, None), slice_axis(source, dim, None, -1)
        source = after != before if source.dtype.is_bool else after - before
    return source


def _inside(x: Tensor, indices: list[Any], widths: list[tuple[int, int]], fill: Expr) -> Expr:
    """x[indices] where they are inside, else `fill`; only margins that exist are tested."""
    inside: Expr = TRUE
    for index, extent, (before, after) in zip(indices, x.extents, widths, strict=True):
        if before:
            inside = fn.logical_and(inside, index >= 0)
        if after:
            inside = fn.logical_and(inside, index < extent)
    return fn.select(inside, Read(x, tuple(indices)), fill)


def _widths(pad_width: Any, ndim: int, what: str) -> list[tuple[int, int]]:
    """(before, after) for every axis, from a number, a pair, or a pair per axis."""
    try:
        pairs = np.broadcast_to(np.asarray(pad_width), (ndim, 2))
    except ValueError:
        raise ValueError(
            f"{what} at {user_location()}: expected a width, a (before, after) or one pair for each of {ndim} axes; "
            f"found {pad_width!r}"
        ) from None
    if pairs.dtype.kind not in "iu" and pairs.size:
        raise TypeError(f"{what} at {user_location()}: widths must be integers, found {pad_width!r}")
    if (pairs < 0).any():
        raise ValueError(f"{what} at {user_location()}: widths cannot be negative, found {pad_width!r}; slice to cut")
    return [(int(b), int(a)) for b, a in pairs]
