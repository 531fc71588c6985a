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
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Const, Expr, Read, Var
from tedsl.lang.traverse import free_axes, topological

__all__ = ["shape_of_table", "tabulated"]

MOST_POINTS = 1 << 16
MOST_ELEMENTS = 1 << 18
WASTE = 2
"""Entries of the table, for each point and each element: one element that all points reach would make it wide."""

Array = np.ndarray[Any, Any]


def tabulated(read: Sent, shape: Shape, reader: Reader) -> Change | None:
    """rewrites   S[f(i)]   ->   S[y], i = inverse[y, t], where t < count[y]"""
    found = _rows(read, shape, reader)
    if found is None:
        return None
    rows, axes = found
    extents = [_number(shape[j]) for j in rows]
    counted = _counted(read, rows, axes, extents)
    if counted is None or counted.is_wasteful:
        return None
    tables, count = counted.tables(axes, extents), counted.count.astype(np.int32).reshape(extents)
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
    """Whether it is known at each point, and an integer all the way: places that floats give, as those of a resampler,
    are shared by several reads, which one scatter adds up together."""
    nodes = topological(e)
    known = is_data_free((e,)) and not any(isinstance(n, Var) or n.dtype.is_float for n in nodes)
    return isinstance(extent, Const) and known


def _rows(read: Sent, shape: Shape, reader: Reader) -> tuple[list[int], list[Axis]] | None:
    """The rows that a table is for, and the axes that it tells, where all of that is numbers."""
    rows = [j for j, e in enumerate(read.index) if _is_unread(e, reader) and _is_static(e, shape[j])]
    inside = set(free_axes(tuple(read.index[j] for j in rows)))
    rows = [j for j, e in enumerate(read.index) if any(a in inside for a in free_axes(e))]
    if not rows or not all(_is_static(read.index[j], shape[j]) for j in rows):
        return None
    inside = set(free_axes(tuple(read.index[j] for j in rows)))
    axes = [a for a in read.axes if a in inside]
    points = box_size(axes)
    return (rows, axes) if axes and points is not None and 0 < points <= MOST_POINTS else None


def shape_of_table(read: Sent, shape: Shape) -> tuple[int, int, int] | None:
    """(points, elements, the most points of an element), where all of that is numbers."""
    found = _rows(read, shape, Reader(read.axes, shape))
    counted = None if found is None else _counted(read, *found, [_number(shape[j]) for j in found[0]])
    return None if counted is None else (len(counted.points), len(counted.count), int(counted.count.max()))


def _number(extent: Expr) -> int:
    assert isinstance(extent, Const), f"{extent} is no number"
    return int(extent.value)


@dataclass(frozen=True)
class _Counted:
    """The points of a box that reach an element, by number, the element of each, and how many each element has."""

    box: tuple[int, ...]
    points: Array
    elements: Array
    count: Array

    @property
    def is_wasteful(self) -> bool:
        return len(self.count) * int(self.count.max()) > WASTE * (len(self.points) + len(self.count))

    def tables(self, axes: Sequence[Axis], extents: Sequence[int]) -> list[Array]:
        """For each axis its value at the points of each element, padded."""
        order = np.argsort(self.elements, kind="stable")
        elements = self.elements[order]
        rank = np.arange(len(order)) - (np.cumsum(self.count) - self.count)[elements]
        flat = np.zeros((len(self.count), int(self.count.max())), np.int64)
        flat[elements, rank] = self.points[order]
        begins = [(static_range(a) or (0, 0))[0] for a in axes]
        values = zip(np.unravel_index(flat, self.box), begins, strict=True)
        return [(c + b).astype(np.int32).reshape(*extents, -1) for c, b in values]


def _counted(read: Sent, rows: Sequence[int], axes: Sequence[Axis], extents: Sequence[int]) -> _Counted | None:
    """Every point tried; None where none reaches an element, or the elements are too many to look at."""
    if math.prod(extents) > MOST_ELEMENTS:
        return None
    ranges = {a: static_range(a) or (0, 0) for a in axes}
    box = tuple(end - begin for begin, end in ranges.values())
    found = values_at([read.index[j] for j in rows], {a: np.arange(*r) for a, r in ranges.items()})
    index = [np.broadcast_to(v, box).reshape(-1) for v in found]
    points = np.flatnonzero(np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, extents, strict=True)]))
    if not len(points):
        return None
    elements = np.ravel_multi_index(tuple(i[points] for i in index), tuple(extents))
    return _Counted(box, points, elements, np.bincount(elements, minlength=math.prod(extents)))
