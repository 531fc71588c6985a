"""Expressions without data evaluated at points: what intervals cannot decide on a small box, enumeration does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tedsl.analysis.pointwise import Array, apply_numpy, held_type
from tedsl.lang.expr import Apply, Axis, Const, Expr, Read, Reduce, Var
from tedsl.lang.traverse import topological

__all__ = ["box_size", "is_data_free", "static_range", "values_at"]


def is_data_free(exprs: Iterable[Expr]) -> bool:
    """Whether expressions depend on axes and sizes only."""
    return not any(isinstance(node, (Read, Reduce)) for node in topological(exprs))


def static_range(axis: Axis) -> tuple[int, int] | None:
    """[begin, end) of an axis where both are numbers."""
    if not isinstance(axis.begin, Const) or not isinstance(axis.extent, Const):
        return None
    return int(axis.begin.value), int(axis.begin.value) + int(axis.extent.value)


def box_size(axes: Iterable[Axis]) -> int | None:
    """The number of points of a box, where all its extents are numbers."""
    ranges = [static_range(a) for a in axes]
    known = [r for r in ranges if r is not None]
    return math.prod(end - begin for begin, end in known) if len(known) == len(ranges) else None


def values_at(exprs: Sequence[Expr], axes: Mapping[Axis, Array], sizes: Mapping[Var, int] | None = None) -> list[Array]:
    """The value of data-free expressions for all combinations of the axes' values, one array dimension per axis."""
    value: dict[Expr, Array] = {}
    rank = max(1, len(axes))
    for d, (axis, values) in enumerate(axes.items()):
        value[axis] = np.asarray(values, np.int32).reshape([-1 if k == d else 1 for k in range(rank)])
    for node in topological(exprs):
        if isinstance(node, Const):
            value[node] = np.full((1,) * rank, node.value, held_type(node.dtype))
        elif isinstance(node, Var):
            assert sizes is not None
            value[node] = np.full((1,) * rank, sizes[node], np.int32)
        elif isinstance(node, Apply):
            value[node] = apply_numpy(node.fn, [value[a] for a in node.args], node.dtype)
    return [value[e] for e in exprs]
