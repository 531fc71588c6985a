"""Indices that follow no rule but are few: their inverse is found by trying every point, and written down.

`S[i * i % 20]` has at most four points for an element. Which they are is the same each time the program runs, so it is
a constant of the program: for each element a short row of points, and how many of them there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autodiff.turning.affine_read import Reader, has_axis_product, is_opaque
from autodiff.turning.changes import Change
from autodiff.turning.sent import Sent, Shape
from tedsl.analysis.points import box_size, is_data_free, static_range, values_at
from tedsl.lang.constants import constant
from tedsl.lang.expr import Axis, Const, Expr, Read, Var
from tedsl.lang.traverse import free_axes, topological

__all__ = ["tabulated"]

MOST_POINTS = 1 << 16
WASTE = 2
"""Entries of the table, for each point and each element: one element that all points reach would make it wide."""

Array = np.ndarray[Any, Any]


def tabulated(read: Sent, shape: Shape, reader: Reader) -> Change | None:
    """rewrites   S[f(i)]   ->   S[y], i = inverse[y, t], where t < count[y]"""
    rows = [j for j, e in enumerate(read.index) if _is_unread(e, reader) and _is_static(e, shape[j])]
    if not rows:
        return None
    inside = set(free_axes(tuple(read.index[j] for j in rows)))
    rows = [j for j, e in enumerate(read.index) if any(a in inside for a in free_axes(e))]
    if not all(_is_static(read.index[j], shape[j]) for j in rows):
        return None
    inside = set(free_axes(tuple(read.index[j] for j in rows)))
    axes = [a for a in read.axes if a in inside]
    points = box_size(axes)
    if not axes or points is None or not 0 < points <= MOST_POINTS:
        return None
    extents = [int(shape[j].value) for j in rows]  # type: ignore[attr-defined]
    found = _inverse(read, rows, axes, extents)
    if found is None:
        return None
    tables, count = found
    new = tuple(Axis(f"s{j}", shape[j]) for j in rows)
    width = tables[0].shape[-1]
    loops = (Axis(axes[0].name, Const(width, new[0].dtype)),) if width > 1 else ()
    where = (*new, *(loops or (Const(0, new[0].dtype),)))
    values: dict[Expr, Expr] = {a: Read(constant(t, f"{a.name}_of"), where) for a, t in zip(axes, tables, strict=True)}
    known: dict[Expr, Expr] = {}
    for j, e in zip(rows, new, strict=True):
        (values if isinstance(read.index[j], Axis) else known)[read.index[j]] = e
    if (count == width).all():
        return Change(values, (*new, *loops), known)
    some = Read(constant(count, "points_of"), new) > where[-1]
    return Change(values, (*new, *loops), known, (some,))


def _is_unread(e: Expr, reader: Reader) -> bool:
    form = reader.form(e)
    return is_opaque(form) or has_axis_product(form)


def _is_static(e: Expr, extent: Expr) -> bool:
    return isinstance(extent, Const) and is_data_free((e,)) and not any(isinstance(n, Var) for n in topological(e))


def _inverse(
    read: Sent, rows: Sequence[int], axes: Sequence[Axis], extents: Sequence[int]
) -> tuple[list[Array], Array] | None:
    """(for each axis the points of each element, padded; how many there are), where that is not mostly padding."""
    ranges = [static_range(a) or (0, 0) for a in axes]
    box = tuple(end - begin for begin, end in ranges)
    coordinates = {a: np.arange(begin, end) for a, (begin, end) in zip(axes, ranges, strict=True)}
    index = [np.broadcast_to(v, box).reshape(-1) for v in values_at([read.index[j] for j in rows], coordinates)]
    valid = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, extents, strict=True)])
    points = np.flatnonzero(valid)
    if not len(points):
        return None
    elements = np.ravel_multi_index(tuple(i[points] for i in index), tuple(extents))
    size = math.prod(extents)
    count = np.bincount(elements, minlength=size)
    width = int(count.max())
    if size * width > WASTE * (len(points) + size):
        return None
    order = np.argsort(elements, kind="stable")
    sorted_elements = elements[order]
    rank = np.arange(len(order)) - (np.cumsum(count) - count)[sorted_elements]
    flat = np.zeros((size, width), np.int64)
    flat[sorted_elements, rank] = points[order]
    begins = [begin for begin, _ in ranges]
    tables = [(c + b).astype(np.int32) for c, b in zip(np.unravel_index(flat, box), begins, strict=True)]
    shaped = [t.reshape(*extents, width) for t in tables]
    return shaped, count.astype(np.int32).reshape(extents)
